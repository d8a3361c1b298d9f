#include "text/grammar.h"

#include <algorithm>

#include "base/error.h"
#include "base/resources/memory_budget.h"

namespace split {
namespace {

// More than any schema that somebody wrote.
constexpr size_t kMostRules = 1 << 15, kMostSymbols = 1 << 17;
// A rule and where its alternatives begin, and a symbol, while their vectors grow; a text is copied
// into sequences first.
constexpr size_t kRuleBytes = 128, kSymbolBytes = 24, kLiteralBytes = 48;
constexpr size_t kMostStacks = 1 << 12;  // of one place
constexpr size_t kDeepStack = 150;       // three for each object or list around
constexpr size_t kMostNodes = 1 << 11;   // 2 KB each

[[noreturn]] void refuse(std::string_view what) {
  throw Error(ErrorKind::kInput, cat("'response_format': ", what), "response_format");
}

}  // namespace

Grammar::Grammar(MemoryShare* memory)
    : most_{kMostRules, kMostSymbols, kMostSymbols}, memory_(memory) {}

void Grammar::allow(size_t parts) {
  const auto share = [parts](size_t& most, size_t now, size_t all) {
    most = std::min(all, now + all / parts);
  };
  share(most_.rules, rules_.size(), kMostRules);
  share(most_.symbols, symbols_.size(), kMostSymbols);
  share(most_.literals, literals_, kMostSymbols);
}

void Grammar::refuse_size() { refuse("the schema is too large"); }

void Grammar::pay(size_t bytes) {
  if (memory_ != nullptr) memory_->take(bytes);
}

uint32_t Grammar::add_rule(bool nests) {
  if (rules_.size() >= most_.rules) refuse_size();
  pay(kRuleBytes);
  rules_.push_back({nests, {}});
  return static_cast<uint32_t>(rules_.size() - 1);
}

void Grammar::add(uint32_t rule, const Sequence& alternative) {
  if (symbols_.size() + alternative.size() >= most_.symbols) refuse_size();
  pay((alternative.size() + 1) * kSymbolBytes);
  rules_.at(rule).alternatives.push_back(static_cast<uint32_t>(symbols_.size()));
  symbols_.insert(symbols_.end(), alternative.begin(), alternative.end());
  symbols_.push_back({});
}

Grammar::Symbol Grammar::bytes(const ByteSet& set) {
  auto at = std::ranges::find(sets_, set);
  if (at == sets_.end()) at = sets_.insert(at, set);
  return {Symbol::kBytes, static_cast<uint32_t>(at - sets_.begin())};
}

Grammar::Sequence Grammar::literal(std::string_view text) {
  // Many texts that fit alone would take more than all symbols together before they are added.
  if ((literals_ += text.size()) >= most_.literals) refuse_size();
  pay(text.size() * kLiteralBytes);
  Sequence out;
  out.reserve(text.size());
  for (const char c : text) {
    ByteSet set;
    set.set(static_cast<uint8_t>(c));
    out.push_back(bytes(set));
  }
  return out;
}

// Adds the stacks that begin with bytes, or are empty. Where a rule is the last of a sequence, its
// end is not kept below it, so that a list of any length takes a stack of one.
void Grammar::expand(Stack stack, State& out) const {
  while (!stack.empty() && symbols_[stack.back()].kind == Symbol::kEnd) stack.pop_back();
  if (stack.empty() || symbols_[stack.back()].kind == Symbol::kBytes) {
    if (out.size() == kMostStacks) refuse("the schema has too many alternatives at one place");
    out.push_back(std::move(stack));
    return;
  }
  const Rule& rule = rules_[symbols_[stack.back()++].index];
  if (symbols_[stack.back()].kind == Symbol::kEnd) stack.pop_back();
  if (rule.nests && stack.size() > kDeepStack) return;
  for (const uint32_t begin : rule.alternatives) {
    Stack next = stack;
    next.push_back(begin);
    expand(std::move(next), out);
  }
}

Grammar::State Grammar::sorted(State state) {
  std::ranges::sort(state);
  state.erase(std::unique(state.begin(), state.end()), state.end());
  return state;
}

Grammar::State Grammar::start(uint32_t rule) const {
  State state;
  for (const uint32_t begin : rules_.at(rule).alternatives) expand({begin}, state);
  return sorted(std::move(state));
}

Grammar::State Grammar::after(const State& state, uint8_t byte) const {
  State next;
  for (const Stack& stack : state) {
    if (stack.empty() || !sets_[symbols_[stack.back()].index].test(byte)) continue;
    Stack moved = stack;
    ++moved.back();
    expand(std::move(moved), next);
  }
  return sorted(std::move(next));
}

ByteSet Grammar::alike(const State& state, uint8_t byte) const {
  ByteSet alike;
  alike.set();
  for (const Stack& stack : state) {
    if (stack.empty()) continue;
    const ByteSet& set = sets_[symbols_[stack.back()].index];
    alike &= set.test(byte) ? set : ~set;
  }
  return alike;
}

TokenGrammar::TokenGrammar(Grammar grammar, const Tokenizer& tokenizer,
                           std::vector<int32_t> special)
    : grammar_(std::move(grammar)), tokenizer_(tokenizer), special_(std::move(special)) {}

TokenGrammar::State TokenGrammar::after(const State& state, int32_t id) const {
  State next = state;
  for (const char byte : tokenizer_.token_bytes(id)) {
    next = grammar_.after(next, static_cast<uint8_t>(byte));
  }
  return next;
}

uint32_t TokenGrammar::node_of(State state) const {
  if (state.empty()) return Node::kDead;
  const auto [at, fresh] = numbers_.try_emplace(state, static_cast<uint32_t>(nodes_.size()) + 2);
  if (fresh) nodes_.push_back({.state = std::move(state), .next = {}, .mask = {}});
  return at->second;
}

// Most bytes lead where many others do, the letters of a string for one.
uint32_t TokenGrammar::next(uint32_t node, uint8_t byte) const {
  Node& from = nodes_[node - 2];  // a deque's places stay
  if (from.next[byte] != Node::kUnknown) return from.next[byte];
  const uint32_t to = node_of(grammar_.after(from.state, byte));
  const ByteSet alike = grammar_.alike(from.state, byte);
  for (size_t one = 0; one < alike.size(); ++one) {
    if (alike.test(one)) from.next[one] = to;
  }
  return to;
}

// Goes through the tokens in the order of their bytes: a beginning that several share is looked at
// once, and none behind one that leads nowhere.
std::vector<uint8_t> TokenGrammar::look(uint32_t start) const {
  std::vector<uint8_t> allowed(static_cast<size_t>(tokenizer_.size()), 0);
  std::vector<uint32_t> at(tokenizer_.longest() + 1);  // behind so many bytes of the token before
  at[0] = start;
  uint32_t live = 0;  // so many of its bytes lead somewhere
  const Tokenizer::ByBytes& all = tokenizer_.by_bytes();
  const char* own = all.own.data();
  for (const Tokenizer::InOrder& token : all.tokens) {
    const std::string_view bytes(own, token.own);
    own += token.own;
    if (token.shared > live) continue;
    live = token.shared;
    uint32_t node = at[live];
    for (const char byte : bytes) {
      node = next(node, static_cast<uint8_t>(byte));
      if (node == Node::kDead) break;
      at[++live] = node;
    }
    if (node != Node::kDead) allowed[static_cast<size_t>(token.id)] = 1;
  }
  for (const int32_t id : special_) {
    uint32_t node = start;
    for (const char byte : tokenizer_.token_bytes(id)) {
      if (node != Node::kDead) node = next(node, static_cast<uint8_t>(byte));
    }
    if (node != Node::kDead) allowed[static_cast<size_t>(id)] = 1;
  }
  return allowed;
}

std::shared_ptr<const std::vector<uint8_t>> TokenGrammar::allowed(const State& state) const {
  const std::lock_guard lock(mutex_);
  const auto known = numbers_.find(state);
  if (known != numbers_.end() && nodes_[known->second - 2].mask != nullptr) {
    return nodes_[known->second - 2].mask;
  }
  if (nodes_.size() > kMostNodes || masks_ == kMostMasks) {
    nodes_.clear();
    numbers_.clear();
    masks_ = 0;
  }
  const uint32_t node = node_of(state);
  CHECK(node != Node::kDead);
  nodes_[node - 2].mask = std::make_shared<const std::vector<uint8_t>>(look(node));
  ++masks_;
  return nodes_[node - 2].mask;
}

}  // namespace split
