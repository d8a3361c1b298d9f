// Builds the tree of a template from its tokens.
#include <algorithm>

#include "text/jinja/tokens.h"
#include "text/jinja/tree.h"

namespace split::jinja {
namespace {

constexpr int kMostHeight = 256;  // tree height; a chain of operators counts

using Kind = Token::Kind;

class Parser : TokenReader {
 public:
  using TokenReader::TokenReader;

  std::vector<NodePtr> run() {
    std::vector<NodePtr> all = body({});
    if (here().kind != Kind::kEnd) unexpected();
    return all;
  }

 private:
  void end_of_block() { expect(Kind::kBlockEnd); }

  NodePtr node(Op op, int line, std::string text = {}) const {
    auto made = std::make_unique<Node>();
    made->op = op;
    made->line = line;
    made->text = std::move(text);
    return made;
  }
  // Makes a node with its first kid.
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

  // Reads statements up to one of these names, which is left behind its block's begin.
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
    if (word == "generation") {  // for training: marks the assistant's text
      end_of_block();
      return with_body(node(Op::kScope, line), "endgeneration");
    }
    if (is_any(word, {"endif", "endfor", "endset", "endmacro", "else", "elif", "endgeneration"})) {
      refuse(line, cat("unexpected ", word));
    }
    throw JinjaUnsupported(line, cat("{% ", shown(word), " %}"));
  }

  // Adds the statements up to this end as a body.
  NodePtr with_body(NodePtr made, std::string_view end) {
    made->bodies.push_back(body({end}));
    ++at_;
    end_of_block();
    return made;
  }
  // Adds a body behind an else, if there is one.
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

  // Reads a tuple, a, b. Without `conditions`, a following `if` is not the expression's.
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
  // Takes a sign; returns nothing if there is none.
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

  // Reads arguments behind the opening bracket.
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

  int depth_ = 0;
  int loops_ = 0;
};

}  // namespace

std::vector<NodePtr> parse(std::string_view text) {
  if (text.size() > JinjaLimits::kTemplate) {
    throw Error(ErrorKind::kInput, cat("a template of ", text.size(), " bytes, expected at most ",
                                       JinjaLimits::kTemplate));
  }
  return Parser(tokens_of(text)).run();
}

}  // namespace split::jinja
