// Cuts a template into texts, statements and expressions.
#include <algorithm>
#include <charconv>

#include "text/jinja/tokens.h"
#include "text/jinja/tree.h"
#include "text/unicode.h"

namespace split::jinja {
namespace {

using Kind = Token::Kind;

bool is_white(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) {
    for (size_t i = 0; i < source.size(); ++i) {  // any newline is \n
      if (source[i] != '\r') {
        text_ += source[i];
      } else if (i + 1 == source.size() || source[i + 1] != '\n') {
        text_ += '\n';
      }
    }
    if (text_.ends_with('\n')) text_.pop_back();
  }

  std::vector<Token> run() {
    while (at_ < text_.size()) {
      const size_t begin = next_tag();
      const std::string_view data = std::string_view(text_).substr(at_, begin - at_);
      if (begin == text_.size()) {
        add_text(data);
        break;
      }
      const char kind = text_[begin + 1];
      const char sign = begin + 2 < text_.size() ? text_[begin + 2] : '\0';
      add_text(before_tag(data, kind, sign));
      count_lines(data);
      at_ = begin + 2 + (sign == '-' || sign == '+' ? 1 : 0);
      if (kind == '#') {
        comment();
      } else {
        inside(kind);
      }
    }
    add(Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  size_t next_tag() const {
    for (size_t at = at_; (at = text_.find('{', at)) != text_.npos; ++at) {
      if (at + 1 < text_.size() &&
          std::string_view("{%#").find(text_[at + 1]) != std::string::npos) {
        return at;
      }
    }
    return text_.size();
  }

  // The text before a tag, without what the tag strips.
  std::string_view before_tag(std::string_view data, char kind, char sign) const {
    if (sign == '-') return strip(data, {}, false, true);
    if (sign == '+' || kind == '{') return data;
    const size_t line = data.rfind('\n') + 1;  // 0: no newline
    if (line == 0 && !line_starts_) return data;
    return std::ranges::all_of(data.substr(line), is_white) ? data.substr(0, line) : data;
  }

  void count_lines(std::string_view text) {
    line_ += static_cast<int>(std::ranges::count(text, '\n'));
  }
  void add(Kind kind, std::string text) { tokens_.push_back({kind, line_, std::move(text)}); }
  void add_text(std::string_view text) {
    if (!text.empty()) add(Kind::kText, std::string(text));
  }

  // Skips behind a tag: `-` strips white space, a block or comment the first newline.
  void after_tag(char sign, bool block) {
    const size_t begin = at_;
    if (sign == '-') {
      const std::string_view rest = std::string_view(text_).substr(at_);
      at_ += rest.size() - strip(rest, {}, true, false).size();
    } else if (block && sign != '+' && at_ < text_.size() && text_[at_] == '\n') {
      ++at_;
    }
    count_lines(std::string_view(text_).substr(begin, at_ - begin));
    line_starts_ = at_ > begin && text_[at_ - 1] == '\n';
  }

  void comment() {
    const size_t end = text_.find("#}", at_);
    if (end == text_.npos) refuse(line_, "a comment without its end");
    count_lines(std::string_view(text_).substr(at_, end - at_));
    const char sign = end > at_ ? text_[end - 1] : '\0';
    at_ = end + 2;
    after_tag(sign, true);
  }

  void inside(char kind) {
    const bool block = kind == '%';
    add(block ? Kind::kBlockBegin : Kind::kPrintBegin, "");
    const std::string end = block ? "%}" : "}}";
    std::string open;  // open brackets
    for (;;) {
      while (at_ < text_.size() && is_white(text_[at_])) {
        if (text_[at_++] == '\n') ++line_;
      }
      if (at_ == text_.size()) refuse(line_, cat("expected '", end, "', got the end"));
      const std::string_view rest = std::string_view(text_).substr(at_);
      const bool signed_end =
          (rest[0] == '-' || (block && rest[0] == '+')) && rest.substr(1).starts_with(end);
      if (open.empty() && (signed_end || rest.starts_with(end))) {
        const char sign = signed_end ? rest[0] : '\0';
        at_ += signed_end ? 3 : 2;
        add(block ? Kind::kBlockEnd : Kind::kPrintEnd, "");
        return after_tag(sign, block);
      }
      token(rest, open);
    }
  }

  void token(std::string_view rest, std::string& open) {
    const char c = rest[0];
    if (is_letter(c)) {
      size_t length = 1;
      while (length < rest.size() && (is_letter(rest[length]) || is_digit(rest[length]))) ++length;
      add(Kind::kName, std::string(rest.substr(0, length)));
      at_ += length;
    } else if (is_digit(c)) {
      number(rest);
    } else if (c == '\'' || c == '"') {
      text(c);
    } else {
      for (const std::string_view sign : {"**", "//", "==", "!=", "<=", ">="}) {
        if (!rest.starts_with(sign)) continue;
        add(Kind::kSign, std::string(sign));
        at_ += 2;
        return;
      }
      if (std::string_view("+-*/%~()[]{},:.|=<>").find(c) == std::string_view::npos) {
        refuse(line_, cat("unexpected character ", shown(rest.substr(0, 1))));
      }
      if (c == '(' || c == '[' || c == '{') {
        open += c == '(' ? ')' : c == '[' ? ']' : '}';
        if (open.size() > JinjaLimits::kNesting) refuse(line_, "brackets nest too deeply");
      } else if (c == ')' || c == ']' || c == '}') {
        if (open.empty() || open.back() != c) refuse(line_, cat("unexpected '", c, "'"));
        open.pop_back();
      }
      add(Kind::kSign, std::string(1, c));
      ++at_;
    }
  }

  void number(std::string_view rest) {
    size_t length = 0;
    const auto digits = [&] {
      while (length < rest.size() && (is_digit(rest[length]) || rest[length] == '_')) ++length;
    };
    digits();
    bool fraction = false;
    if (length + 1 < rest.size() && rest[length] == '.' && is_digit(rest[length + 1])) {
      fraction = true;
      ++length;
      digits();
    }
    const size_t sign =
        length + 1 < rest.size() && (rest[length + 1] == '-' || rest[length + 1] == '+');
    if (length + 1 + sign < rest.size() && (rest[length] == 'e' || rest[length] == 'E') &&
        is_digit(rest[length + 1 + sign])) {
      fraction = true;
      length += 1 + sign;
      digits();
    }
    std::string digits_alone(rest.substr(0, length));
    std::erase(digits_alone, '_');
    add(fraction ? Kind::kFloat : Kind::kInteger, std::move(digits_alone));
    at_ += length;
  }

  char32_t hexadecimal(size_t digits) {
    uint32_t code = 0;
    const char* begin = text_.data() + at_;
    if (at_ + digits > text_.size() ||
        std::from_chars(begin, begin + digits, code, 16).ptr != begin + digits || code > 0x10FFFF ||
        (code >= 0xD800 && code < 0xE000)) {
      refuse(line_, "an escape in a string that names no character");
    }
    at_ += digits;
    return code;
  }

  void text(char quote) {
    std::string out;
    const int line = line_;
    for (++at_;; ++at_) {
      if (at_ >= text_.size()) refuse(line, "a string without its end");
      char c = text_[at_];
      if (c == quote) break;
      if (c == '\n') ++line_;
      if (c != '\\' || at_ + 1 == text_.size()) {
        out += c;
        continue;
      }
      c = text_[++at_];
      constexpr std::string_view kEscapes = "ntrbfva\\'\"0",
                                 kMeanings = {"\n\t\r\b\f\v\a\\'\"\0", 11};
      if (c == 'x' || c == 'u' || c == 'U') {
        ++at_;
        append_utf8(hexadecimal(c == 'x' ? 2 : c == 'u' ? 4 : 8), out);
        --at_;
      } else if (const size_t which = kEscapes.find(c); which != kEscapes.npos) {
        out += kMeanings[which];
      } else if (c == '\n') {
        ++line_;
      } else {
        out += '\\';
        out += c;
      }
    }
    ++at_;
    add(Kind::kString, std::move(out));
    tokens_.back().line = line;
  }

  std::string text_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokens_of(std::string_view text) { return Lexer(text).run(); }

}  // namespace split::jinja
