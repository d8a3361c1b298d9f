// Reads a template: cuts it into texts, statements and expressions as Jinja's lexer does with
// trim_blocks and lstrip_blocks, and builds the tree.
#include <algorithm>
#include <charconv>

#include "text/jinja/tree.h"
#include "text/unicode.h"

namespace split::jinja {
namespace {

constexpr int kMostHeight = 256;  // of the tree; a chain of operators counts

struct Token {
  enum class Kind : uint8_t {
    kText,
    kPrintBegin,
    kPrintEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kString,
    kInteger,
    kFloat,
    kSign,
    kEnd
  };
  Kind kind;
  int line;
  std::string text;
};
using Kind = Token::Kind;

[[noreturn]] void refuse(int line, const std::string& what) {
  throw Error(ErrorKind::kInput, cat("line ", line, ": ", what));
}

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

  // The text before a tag, less what the tag takes away.
  std::string_view before_tag(std::string_view data, char kind, char sign) const {
    if (sign == '-') return strip(data, {}, false, true);
    if (sign == '+' || kind == '{') return data;
    const size_t line = data.rfind('\n') + 1;  // 0: none
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

  // Behind a tag: `-` takes white space away, a block or comment the first newline.
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
    std::string open;  // brackets
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

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  std::vector<NodePtr> run() {
    std::vector<NodePtr> all = body({});
    if (here().kind != Kind::kEnd) unexpected();
    return all;
  }

 private:
  const Token& here() const { return tokens_[at_]; }
  bool is_sign(std::string_view sign) const {
    return here().kind == Kind::kSign && here().text == sign;
  }
  bool is_name(std::string_view name) const {
    return here().kind == Kind::kName && here().text == name;
  }
  bool take_sign(std::string_view sign) { return is_sign(sign) && ++at_ > 0; }
  bool take_name(std::string_view name) { return is_name(name) && ++at_ > 0; }
  [[noreturn]] void unexpected() const {
    const Token& token = here();
    refuse(token.line, token.kind == Kind::kEnd
                           ? "unexpected end"
                           : cat("unexpected ", token.text.empty() ? "tag" : shown(token.text)));
  }
  void expect_sign(std::string_view sign) {
    if (!take_sign(sign)) unexpected();
  }
  void expect_name(std::string_view name) {
    if (!take_name(name)) unexpected();
  }
  std::string name() {
    expect(Kind::kName);
    return tokens_[at_ - 1].text;
  }
  void expect(Kind kind) {
    if (here().kind != kind) unexpected();
    ++at_;
  }
  void end_of_block() { expect(Kind::kBlockEnd); }

  NodePtr node(Op op, int line, std::string text = {}) const {
    auto made = std::make_unique<Node>();
    made->op = op;
    made->line = line;
    made->text = std::move(text);
    return made;
  }
  // With its first kid.
  NodePtr node(Op op, int line, NodePtr kid, std::string text = {}) const {
    NodePtr made = node(op, line, std::move(text));
    add(*made, std::move(kid));
    return made;
  }
  void add(Node& parent, NodePtr kid) const {
    if (kid != nullptr) parent.height = std::max(parent.height, kid->height + 1);
    if (parent.height > kMostHeight) refuse(parent.line, "an expression nests too deeply");
    parent.kids.push_back(std::move(kid));
  }

  struct Nested {
    explicit Nested(Parser& parser) : depth(parser.depth_) {
      if (++depth > JinjaLimits::kNesting) refuse(parser.here().line, "blocks nest too deeply");
    }
    ~Nested() { --depth; }
    int& depth;
  };

  // Statements up to one of these names, which is left behind its block's begin.
  std::vector<NodePtr> body(Names ends) {
    const Nested nested(*this);
    std::vector<NodePtr> all;
    for (;;) {
      const Token& token = here();
      if (token.kind == Kind::kEnd) {
        if (ends.size() > 0)
          refuse(token.line, cat("expected ", *(ends.end() - 1), ", got the end"));
        return all;
      }
      ++at_;
      if (token.kind == Kind::kText) {
        all.push_back(node(Op::kText, token.line, token.text));
      } else if (token.kind == Kind::kPrintBegin) {
        all.push_back(node(Op::kPrint, token.line, tuple_or_expression()));
        expect(Kind::kPrintEnd);
      } else {
        if (here().kind == Kind::kName && is_any(here().text, ends)) return all;
        all.push_back(statement());
      }
    }
  }

  NodePtr statement() {
    const int line = here().line;
    const std::string word = name();
    if (word == "if") return if_block(line);
    if (word == "for") return for_block(line);
    if (word == "set") return set_block(line);
    if (word == "macro") return macro(line);
    if (word == "break" || word == "continue") {
      if (loops_ == 0) refuse(line, cat(word, " outside of a loop"));
      end_of_block();
      return node(word == "break" ? Op::kBreak : Op::kContinue, line);
    }
    if (word == "generation") {  // marks what the assistant said, for training
      end_of_block();
      return with_body(node(Op::kScope, line), "endgeneration");
    }
    if (is_any(word, {"endif", "endfor", "endset", "endmacro", "else", "elif", "endgeneration"})) {
      refuse(line, cat("unexpected ", word));
    }
    throw JinjaUnsupported(line, cat("{% ", shown(word), " %}"));
  }

  // With the statements up to this end as its body.
  NodePtr with_body(NodePtr made, std::string_view end) {
    made->bodies.push_back(body({end}));
    ++at_;
    end_of_block();
    return made;
  }
  // The same behind an else, if there is one.
  NodePtr with_else(NodePtr made, std::string_view end) {
    if (take_name("else")) {
      end_of_block();
      return with_body(std::move(made), end);
    }
    expect_name(end);
    end_of_block();
    return made;
  }

  NodePtr if_block(int line) {
    NodePtr made = node(Op::kIf, line);
    for (;;) {
      add(*made, tuple_or_expression());
      end_of_block();
      made->bodies.push_back(body({"elif", "else", "endif"}));
      if (!take_name("elif")) return with_else(std::move(made), "endif");
    }
  }

  NodePtr for_block(int line) {
    NodePtr made = node(Op::kFor, line);
    const bool bracket = take_sign("(");
    do {
      made->names.push_back(name());
    } while (take_sign(",") && here().kind == Kind::kName && !is_name("in"));
    if (bracket) expect_sign(")");
    expect_name("in");
    add(*made, tuple_or_expression(false));
    add(*made, take_name("if") ? expression() : nullptr);
    if (is_name("recursive")) throw JinjaUnsupported(line, "a recursive loop");
    end_of_block();
    ++loops_;
    made->bodies.push_back(body({"else", "endfor"}));
    --loops_;
    return with_else(std::move(made), "endfor");
  }

  NodePtr set_block(int line) {
    std::vector<NodePtr> targets;
    do {
      NodePtr target = node(Op::kName, line, name());
      if (take_sign(".")) target = node(Op::kAttribute, line, std::move(target), name());
      targets.push_back(std::move(target));
    } while (take_sign(","));
    if (take_sign("=")) {
      NodePtr made = node(Op::kSet, line);
      for (NodePtr& target : targets) add(*made, std::move(target));
      add(*made, tuple_or_expression());
      end_of_block();
      return made;
    }
    if (is_sign("|")) throw JinjaUnsupported(line, "a filter of a {% set %} block");
    if (targets.size() != 1) unexpected();
    end_of_block();
    return with_body(node(Op::kSetBlock, line, std::move(targets[0])), "endset");
  }

  NodePtr macro(int line) {
    NodePtr made = node(Op::kMacro, line, name());
    expect_sign("(");
    list(")", [&] {
      made->names.push_back(name());
      if (take_sign("=")) {
        add(*made, expression());
      } else if (!made->kids.empty()) {
        refuse(line, "a parameter without a default behind one with it");
      }
    });
    end_of_block();
    const int loops = std::exchange(loops_, 0);
    made = with_body(std::move(made), "endmacro");
    loops_ = loops;
    return made;
  }

  // Reads a list by `read`, with commas between, up to the closing bracket.
  template <typename Read>
  void list(std::string_view close, const Read& read) {
    while (!is_sign(close)) {
      read();
      if (!take_sign(",")) break;
    }
    expect_sign(close);
  }

  // a, b is a tuple. Without `conditions`, an `if` behind is not the expression's.
  NodePtr tuple_or_expression(bool conditions = true) {
    const int line = here().line;
    NodePtr first = conditions ? expression() : either();
    if (!is_sign(",")) return first;
    NodePtr tuple = node(Op::kTuple, line, std::move(first));
    while (take_sign(",")) {
      if (here().kind == Kind::kBlockEnd || here().kind == Kind::kPrintEnd || is_sign(")")) break;
      add(*tuple, conditions ? expression() : either());
    }
    return tuple;
  }

  NodePtr expression() {
    const Nested nested(*this);
    const int line = here().line;
    NodePtr value = either();
    while (take_name("if")) {
      value = node(Op::kCondition, line, std::move(value));
      add(*value, either());
      add(*value, take_name("else") ? expression() : nullptr);
    }
    return value;
  }

  NodePtr either() { return chain(Op::kOr, {"or"}, &Parser::both); }
  NodePtr both() { return chain(Op::kAnd, {"and"}, &Parser::negation); }
  // Reads parts by `part`, with these operators between, from left to right.
  NodePtr chain(Op op, Names operators, NodePtr (Parser::*part)()) {
    NodePtr left = (this->*part)();
    while (is_operator(operators)) {
      const Token& token = tokens_[at_++];
      left = node(op, token.line, std::move(left), token.text);
      add(*left, (this->*part)());
    }
    return left;
  }
  bool is_operator(Names operators) const {
    const bool may_be = here().kind == Kind::kSign || here().kind == Kind::kName;
    return may_be && is_any(here().text, operators);
  }

  NodePtr negation() {
    if (!is_name("not")) return comparison();
    const Nested nested(*this);
    const int line = tokens_[at_++].line;
    return node(Op::kNot, line, negation());
  }

  NodePtr comparison() {
    const int line = here().line;
    NodePtr value = sum();
    bool compares = false;
    for (std::string sign; !(sign = comparing_sign()).empty();) {
      if (!std::exchange(compares, true)) value = node(Op::kCompare, line, std::move(value));
      value->names.push_back(std::move(sign));
      add(*value, sum());
    }
    return value;
  }
  // Takes one; returns nothing where there is none.
  std::string comparing_sign() {
    if (is_operator({"==", "!=", "<", "<=", ">", ">=", "in"})) return tokens_[at_++].text;
    const Token& next = tokens_[std::min(at_ + 1, tokens_.size() - 1)];
    if (!is_name("not") || next.kind != Kind::kName || next.text != "in") return {};
    at_ += 2;
    return "not in";
  }

  NodePtr sum() { return chain(Op::kBinary, {"+", "-"}, &Parser::joined); }
  NodePtr joined() { return chain(Op::kBinary, {"~"}, &Parser::product); }
  NodePtr product() { return chain(Op::kBinary, {"*", "/", "//", "%"}, &Parser::power); }
  NodePtr power() {
    NodePtr left = unary(true);
    if (is_sign("**")) throw JinjaUnsupported(here().line, "the operator **");
    return left;
  }

  NodePtr unary(bool filters) {
    const Nested nested(*this);
    NodePtr value;
    if (is_sign("-") || is_sign("+")) {
      const Token& sign = tokens_[at_++];
      value = node(sign.text == "-" ? Op::kMinus : Op::kPlus, sign.line, unary(false));
    } else {
      value = postfix(primary());
    }
    return filters ? filtered(std::move(value)) : std::move(value);
  }

  NodePtr primary() {
    const Token& token = here();
    NodePtr made = node(Op::kValue, token.line);
    if (token.kind == Kind::kString) {
      std::string text;
      while (here().kind == Kind::kString) text += tokens_[at_++].text;
      made->value = string(std::move(text));
      return made;
    }
    if (token.kind == Kind::kInteger || token.kind == Kind::kFloat) {
      ++at_;
      const bool whole = token.kind == Kind::kInteger;
      const auto number = whole ? number_in<int64_t>(token.text) : std::nullopt;
      if (whole && !number) refuse(token.line, "a number too large");
      made->value = whole ? integer(*number) : floating(number_in<double>(token.text).value_or(0));
      return made;
    }
    if (token.kind == Kind::kName) {
      ++at_;
      const std::pair<std::string_view, Value> literals[] = {
          {"true", boolean(true)},   {"True", boolean(true)}, {"false", boolean(false)},
          {"False", boolean(false)}, {"none", none()},        {"None", none()}};
      for (const auto& [word, value] : literals) {
        if (token.text == word) return made->value = value, std::move(made);
      }
      return node(Op::kName, token.line, token.text);
    }
    if (take_sign("(")) {
      if (take_sign(")")) return made->op = Op::kTuple, std::move(made);
      NodePtr inner = tuple_or_expression();
      expect_sign(")");
      return inner;
    }
    if (take_sign("[")) {
      made->op = Op::kList;
      list("]", [&] { add(*made, expression()); });
      return made;
    }
    if (take_sign("{")) {
      made->op = Op::kMap;
      list("}", [&] {
        add(*made, expression());
        expect_sign(":");
        add(*made, expression());
      });
      return made;
    }
    unexpected();
  }

  NodePtr postfix(NodePtr value) {
    for (;;) {
      const int line = here().line;
      if (take_sign(".")) {
        if (here().kind == Kind::kInteger)
          throw JinjaUnsupported(line, "an attribute that is a number");
        value = node(Op::kAttribute, line, std::move(value), name());
      } else if (take_sign("[")) {
        value = subscript(std::move(value), line);
      } else if (take_sign("(")) {
        value = with_arguments(node(Op::kCall, line, std::move(value)));
      } else {
        return value;
      }
    }
  }

  NodePtr subscript(NodePtr value, int line) {
    NodePtr made = node(Op::kItem, line, std::move(value));
    const auto part = [&]() -> NodePtr {
      return is_sign(":") || is_sign("]") ? nullptr : expression();
    };
    add(*made, part());
    if (is_sign(":")) {
      made->op = Op::kSlice;
      for (int i = 0; i < 2; ++i) add(*made, take_sign(":") ? part() : nullptr);
    } else if (made->kids[1] == nullptr) {
      unexpected();
    }
    if (is_sign(",")) throw JinjaUnsupported(line, "a subscript of several parts");
    expect_sign("]");
    return made;
  }

  // Behind the opening bracket.
  NodePtr with_arguments(NodePtr call) {
    list(")", [&] {
      if (is_sign("*") || is_sign("**")) throw JinjaUnsupported(here().line, "unpacked arguments");
      if (here().kind == Kind::kName && tokens_[at_ + 1].kind == Kind::kSign &&
          tokens_[at_ + 1].text == "=") {
        call->names.push_back(name());
        ++at_;
      } else if (!call->names.empty()) {
        unexpected();
      }
      add(*call, expression());
    });
    return call;
  }

  NodePtr filtered(NodePtr value) {
    for (;;) {
      const int line = here().line;
      if (take_sign("|")) {
        value = node(Op::kFilter, line, std::move(value), name());
        if (!is_filter(value->text)) {
          throw JinjaUnsupported(line, cat("the filter ", shown(value->text)));
        }
        if (take_sign("(")) value = with_arguments(std::move(value));
      } else if (take_name("is")) {
        const bool negated = take_name("not");
        value = test(std::move(value), line);
        if (negated) value = node(Op::kNot, line, std::move(value));
      } else if (take_sign("(")) {
        value = with_arguments(node(Op::kCall, line, std::move(value)));
      } else {
        return value;
      }
    }
  }

  NodePtr test(NodePtr value, int line) {
    const bool named = is_sign("==") || here().kind == Kind::kName;
    NodePtr made = node(Op::kTest, line, std::move(value), named ? tokens_[at_++].text : "");
    if (!is_test(made->text)) throw JinjaUnsupported(line, cat("the test ", shown(made->text)));
    if (take_sign("(")) return with_arguments(std::move(made));
    const bool begins = here().kind == Kind::kName
                            ? !is_operator({"else", "or", "and", "is", "if", "not", "in"})
                            : here().kind == Kind::kString || here().kind == Kind::kInteger ||
                                  here().kind == Kind::kFloat || is_sign("[") || is_sign("{");
    if (begins) add(*made, postfix(primary()));
    return made;
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  int loops_ = 0;
};

}  // namespace

std::vector<NodePtr> parse(std::string_view text) {
  if (text.size() > JinjaLimits::kTemplate) {
    throw Error(ErrorKind::kInput, cat("a template of ", text.size(), " bytes, expected at most ",
                                       JinjaLimits::kTemplate));
  }
  return Parser(Lexer(text).run()).run();
}

}  // namespace split::jinja
