#include "tensor/wgsl.h"

#include <array>
#include <cctype>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tensor/op.h"

namespace split {
namespace {

// Beside WGSL's own. The bits of a number pass through a function: WGSL refuses a constant that is
// infinite or NaN.
constexpr std::string_view kPrelude =
    "fn intBitsToFloat(x: i32) -> f32 { return bitcast<f32>(x); }\n"
    "fn floatBitsToInt(x: f32) -> i32 { return bitcast<i32>(x); }\n"
    "fn quotient(x: i32, z: i32) -> i32 {\n"
    "  if (z == 0) { return 0; }\n"
    "  if (z == -1) { return -x; }\n"
    "  return x / z;\n"
    "}\n"
    "const ZERO: i32 = 0;\nconst ONE: i32 = 1;\nconst BITS: i32 = 32;\n"
    "const LOWEST: i32 = -2147483647 - 1;\nconst HIGHEST: i32 = 2147483647;\n";

constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kWords = {
    {{"float", "f32"}, {"int", "i32"}, {"uint", "u32"}, {"bool", "bool"}, {"roundEven", "round"}}};

bool in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// A word, a number or a sign, and the space before it.
struct Token {
  std::string_view space, text;
  bool is_word() const { return in_word(text[0]) && std::isdigit(text[0]) == 0; }
};

std::vector<Token> tokens_of(std::string_view text) {
  std::vector<Token> tokens;
  for (size_t at = 0; at < text.size();) {
    const size_t space = at;
    while (at < text.size() && std::isspace(static_cast<unsigned char>(text[at])) != 0) ++at;
    if (at == text.size()) break;
    const size_t first = at++;
    const bool number = std::isdigit(static_cast<unsigned char>(text[first])) != 0;
    if (in_word(text[first])) {
      const bool hex = number && text.substr(first, 2) == "0x";
      const auto goes_on = [&](char c) {
        return in_word(c) || (number && c == '.') ||
               (number && !hex && (c == '-' || c == '+') && text[at - 1] == 'e');
      };
      while (at < text.size() && goes_on(text[at])) ++at;
    } else if (at < text.size()) {
      const std::string_view two = text.substr(first, 2);
      for (const std::string_view sign :
           {"<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "++", "+="}) {
        if (two == sign) at = first + 2;
      }
    }
    tokens.push_back({text.substr(space, first - space), text.substr(first, at - first)});
  }
  return tokens;
}

class Translator {
 public:
  explicit Translator(std::string_view glsl) : tokens_(tokens_of(glsl)) {}
  std::string all() { return until(tokens_.size()); }

 private:
  std::string_view text(size_t at) const {
    return at < tokens_.size() ? tokens_[at].text : std::string_view();
  }
  static std::string_view word(std::string_view glsl) {
    for (const auto& [from, to] : kWords) {
      if (from == glsl) return to;
    }
    return glsl;
  }
  static bool is_type(std::string_view text) {
    return text == "float" || text == "int" || text == "uint" || text == "bool";
  }
  // The token behind the parenthesis that closes the one at `open`.
  size_t behind(size_t open) const {
    size_t depth = 0, i = open;
    do {
      CHECK(i < tokens_.size());
      if (text(i) == "(") ++depth;
      if (text(i) == ")") --depth;
      ++i;
    } while (depth > 0);
    return i;
  }

  std::string until(size_t end) {
    std::string out;
    while (at_ < end) out += next();
    return out;
  }
  std::string next() {
    const Token token = tokens_[at_++];
    const std::string space(token.space);
    if (token.text == "precise") return "";
    if (token.text == "pick") return cat(space, picked());
    if (token.text == "++") return cat(space, tokens_[at_++].text, "++");
    if (token.text == "<<" || token.text == ">>") return cat(space, token.text, by());
    if (is_type(token.text) && text(at_) != "(") return cat(space, declared(word(token.text)));
    return cat(space, word(token.text));
  }
  // A function's head, or a variable.
  std::string declared(std::string_view type) {
    const std::string_view name = tokens_[at_++].text;
    if (text(at_) != "(") return cat("var ", name, ": ", type);
    std::string out = cat("fn ", name, "(");
    const size_t end = behind(at_) - 1;
    for (++at_; at_ < end; at_ += 2) {
      if (text(at_) == ",") {
        out += ", ";
        ++at_;
      }
      out += cat(text(at_ + 1), ": ", word(text(at_)));
    }
    ++at_;
    return cat(out, ") -> ", type);
  }
  // pick(c, a, b) is select(b, a, c).
  std::string picked() {
    const size_t end = behind(at_) - 1;
    std::array<std::string, 3> parts;
    for (std::string& part : parts) {
      size_t last = ++at_;
      for (; last < end && text(last) != ","; ++last) {
        if (text(last) == "(") last = behind(last) - 1;
      }
      part = until(last);
    }
    ++at_;
    return cat("select(", parts[2].substr(parts[2].find_first_not_of(' ')), ",", parts[1], ", ",
               parts[0], ")");
  }
  // Writes the number of places of a shift, which has no sign in WGSL.
  std::string by() {
    if (!tokens_[at_].is_word() && text(at_) != "(") return next();
    const size_t open = tokens_[at_].is_word() ? at_ + 1 : at_;
    return cat(" u32(", until(text(open) == "(" ? behind(open) : open), ")");
  }

  const std::vector<Token> tokens_;
  size_t at_ = 0;
};

}  // namespace

std::string wgsl_of(std::string_view glsl) { return Translator(glsl).all(); }

std::string op_functions_wgsl(std::string_view text) {
  std::string needed = op_functions_for(text);
  if (needed.starts_with('#')) needed.erase(0, needed.find('\n') + 1);
  return cat(kPrelude, wgsl_of(needed));
}

}  // namespace split
