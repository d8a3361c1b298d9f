// The tokens that a template is cut into; for the lexer and the parser alone.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/jinja.h"

namespace split::jinja {

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
// Reads a template like Jinja's lexer with trim_blocks and lstrip_blocks; the last token is kEnd.
// Throws the errors of parse().
std::vector<Token> tokens_of(std::string_view text);

[[noreturn]] inline void refuse(int line, const std::string& what) {
  throw Error(ErrorKind::kInput, cat("line ", line, ": ", what));
}

// Takes one token after the other.
class TokenReader {
 public:
  explicit TokenReader(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

 protected:
  const Token& here() const { return tokens_[at_]; }
  bool is_sign(std::string_view sign) const {
    return here().kind == Token::Kind::kSign && here().text == sign;
  }
  bool is_name(std::string_view name) const {
    return here().kind == Token::Kind::kName && here().text == name;
  }
  bool take_sign(std::string_view sign) { return is_sign(sign) && ++at_ > 0; }
  bool take_name(std::string_view name) { return is_name(name) && ++at_ > 0; }
  [[noreturn]] void unexpected() const {
    const Token& token = here();
    refuse(token.line, token.kind == Token::Kind::kEnd
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
    expect(Token::Kind::kName);
    return tokens_[at_ - 1].text;
  }
  void expect(Token::Kind kind) {
    if (here().kind != kind) unexpected();
    ++at_;
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
};

}  // namespace split::jinja
