#include "text/grammar.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/resources/memory_budget.h"
#include "base/sort.h"

namespace split {
namespace {

// More than any schema written by hand.
constexpr size_t kMostRules = 1 << 15, kMostSymbols = 1 << 17;
// Bytes of a rule with its alternatives, and of a symbol, while their vectors grow; texts are first
// copied into sequences.
constexpr size_t kRuleBytes = 128, kSymbolBytes = 24, kLiteralBytes = 48;
constexpr size_t kDeepStack = 150;  // three for each object or list around
// Limits of a place: words of 4 bytes for its stacks, kStackWords of them for each stack, and steps
// to find them.
constexpr size_t kMostWords = 1 << 14, kStackWords = 8, kMostExpansions = 1 << 14;

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
  // Many texts that each fit would exceed all symbols together before they are added.
  if (literals_ + text.size() >= most_.literals) refuse_size();
  literals_ += text.size();
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

struct Grammar::Wave {
  State state = {};
  size_t words = 0, expansions = 0;
};

// Adds the stacks that begin with bytes, or are empty, in the order of the alternatives. The end of
// a rule that is the last of a sequence is not kept below it, so that a list of any length takes a
// stack of one.
void Grammar::expand(Stack stack, Wave& wave) const {
  std::vector<Stack> ahead = {std::move(stack)};
  while (!ahead.empty() && wave.words < kMostWords && wave.expansions++ < kMostExpansions) {
    Stack at = std::move(ahead.back());
    ahead.pop_back();
    while (!at.empty() && symbols_[at.back()].kind == Symbol::kEnd) at.pop_back();
    if (at.empty() || symbols_[at.back()].kind == Symbol::kBytes) {
      wave.words += at.size() + kStackWords;
      wave.state.push_back(std::move(at));
      continue;
    }
    const Rule& rule = rules_[symbols_[at.back()++].index];
    if (symbols_[at.back()].kind == Symbol::kEnd) at.pop_back();
    if (rule.nests && at.size() > kDeepStack) continue;
    for (size_t i = rule.alternatives.size(); i-- > 0;) {
      ahead.push_back(at);
      ahead.back().push_back(rule.alternatives[i]);
    }
  }
}

Grammar::State Grammar::sorted(State state) {
  if (!std::ranges::is_sorted(state)) sort_stably(state);  // mostly it is, on the way of each byte
  state.erase(std::unique(state.begin(), state.end()), state.end());
  return state;
}

Grammar::State Grammar::start(uint32_t rule) const {
  Wave wave;
  for (const uint32_t begin : rules_.at(rule).alternatives) expand({begin}, wave);
  return sorted(std::move(wave.state));
}

Grammar::State Grammar::after(const State& state, uint8_t byte) const {
  Wave wave;
  for (const Stack& stack : state) {
    if (stack.empty() || !sets_[symbols_[stack.back()].index].test(byte)) continue;
    Stack moved = stack;
    ++moved.back();
    expand(std::move(moved), wave);
  }
  return sorted(std::move(wave.state));
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

size_t TokenGrammar::bytes_of(const State& state) {
  constexpr size_t kNodeBytes = sizeof(Node) + 96;  // with its place in a map
  size_t bytes = kNodeBytes;
  for (const Grammar::Stack& stack : state)
    bytes += (stack.size() + kStackWords) * sizeof(uint32_t);
  return bytes;
}

uint32_t TokenGrammar::node_of(State state) const {
  if (state.empty()) return Node::kDead;
  const auto [at, fresh] =
      numbers_.try_emplace(std::move(state), static_cast<uint32_t>(nodes_.size()) + 2);
  if (fresh) {
    nodes_.push_back({.state = &at->first, .next = {}, .mask = {}});
    bytes_ += bytes_of(at->first);
  }
  return at->second;
}

// Most bytes lead where many others do, a string's letters for example.
uint32_t TokenGrammar::next(uint32_t node, uint8_t byte) const {
  Node& from = nodes_[node - 2];  // a deque's elements stay
  if (from.next[byte] != Node::kUnknown) return from.next[byte];
  const uint32_t to = node_of(grammar_.after(*from.state, byte));
  const ByteSet alike = grammar_.alike(*from.state, byte);
  for (size_t one = 0; one < alike.size(); ++one) {
    if (alike.test(one)) from.next[one] = to;
  }
  return to;
}

// Whether the mask that is being made may look at this place: once for all tokens that lead there.
// A mask does not depend on earlier ones.
bool TokenGrammar::look_at(uint32_t node, size_t& left) const {
  Node& at = nodes_[node - 2];
  if (std::exchange(at.mask_number, mask_number_) == mask_number_) return true;
  const size_t bytes = bytes_of(*at.state);
  left -= std::min(left, bytes);
  return left > 0;
}

// Goes through the tokens in the order of their bytes: a shared beginning is looked at once, and no
// token behind a dead one.
std::vector<uint8_t> TokenGrammar::look(uint32_t start) const {
  std::vector<uint8_t> allowed(static_cast<size_t>(tokenizer_.size()), 0);
  std::vector<uint32_t> at(tokenizer_.longest() + 1);  // nodes of the token before, by bytes
  at[0] = start;
  uint32_t live = 0;  // bytes of it with a live node
  size_t left = kMostBytes / 2;
  ++mask_number_;
  const Tokenizer::ByBytes& all = tokenizer_.by_bytes();
  const char* own = all.own.data();
  for (const Tokenizer::InOrder& token : all.tokens) {
    const std::string_view bytes(own, token.own);
    own += token.own;
    const auto id = static_cast<size_t>(token.id);
    if (left == 0) {
      const bool one = token.shared == 0 && bytes.size() == 1;
      const auto byte = static_cast<uint8_t>(one ? bytes[0] : 0);
      if (one && !grammar_.after(*nodes_[start - 2].state, byte).empty()) allowed[id] = 1;
      continue;
    }
    if (token.shared > live) continue;
    live = token.shared;
    uint32_t node = at[live];
    for (const char byte : bytes) {
      node = next(node, static_cast<uint8_t>(byte));
      if (node == Node::kDead) break;
      at[++live] = node;
      if (!look_at(node, left)) break;
    }
    if (live == token.shared + bytes.size()) allowed[id] = 1;
  }
  for (const int32_t id : special_) {
    State state = *nodes_[start - 2].state;
    for (const char byte : tokenizer_.token_bytes(id))
      state = grammar_.after(state, static_cast<uint8_t>(byte));
    if (!state.empty()) allowed[static_cast<size_t>(id)] = 1;
  }
  return allowed;
}

size_t TokenGrammar::kept_bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

std::shared_ptr<const std::vector<uint8_t>> TokenGrammar::allowed(const State& state) const {
  const std::lock_guard lock(mutex_);
  const auto known = numbers_.find(state);
  if (known != numbers_.end() && nodes_[known->second - 2].mask != nullptr) {
    return nodes_[known->second - 2].mask;
  }
  if (bytes_ > kMostBytes / 2 || masks_ == kMostMasks) {
    nodes_.clear();
    numbers_.clear();
    masks_ = bytes_ = 0;
  }
  const uint32_t node = node_of(state);
  CHECK(node != Node::kDead);
  nodes_[node - 2].mask = std::make_shared<const std::vector<uint8_t>>(look(node));
  ++masks_;
  return nodes_[node - 2].mask;
}

}  // namespace split
