// A grammar over bytes, and which tokens can come next in a text of it: it makes a model's answer
// JSON of a schema. Rules are lists of alternatives, each of bytes and of other rules; a state is
// the set of places where a text can be, as stacks of what is still to come. Knows no JSON
// (json_grammar.h) and no model.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace split {

class MemoryShare;

using ByteSet = std::bitset<256>;

// Built by one thread, then immutable. No rule may begin with itself.
class Grammar {
 public:
  struct Symbol {
    enum Kind : uint8_t { kBytes, kRule, kEnd } kind = kEnd;
    uint32_t index = 0;  // index of a set, or of a rule
  };
  using Sequence = std::vector<Symbol>;

  // `memory` pays for rules and symbols before they are made; adding them throws Error(kBusy) if it
  // has no more.
  explicit Grammar(MemoryShare* memory = nullptr);

  // Adds a rule without alternatives. Rule 0 is the text. A rule that `nests` is no alternative any
  // more in a text that is some 50 of them deep: its callers have another beside it. Throws
  // Error(kInput) past a bound.
  uint32_t add_rule(bool nests = false);
  void add(uint32_t rule, const Sequence& alternative);
  Symbol bytes(const ByteSet& set);
  static Symbol rule(uint32_t index) { return {Symbol::kRule, index}; }
  // One symbol for each byte of a text.
  Sequence literal(std::string_view text);
  // Throws the error of a bound that is passed.
  [[noreturn]] static void refuse_size();
  // Ends adding.
  void finish() { memory_ = nullptr; }
  // Leaves 1/`parts` of the bounds' rest for what is added from here on.
  void allow(size_t parts);
  // Rules that may still be added.
  size_t room() const { return most_.rules - rules_.size(); }

  // The state of a text: each stack holds offsets into the symbols, the next one last; an empty
  // stack is the end of the text. No stack: the text is not of the grammar. A state of more than
  // some 64 KiB keeps its first stacks only: texts of the others cannot come then.
  using Stack = std::vector<uint32_t>;
  using State = std::vector<Stack>;
  State start(uint32_t rule = 0) const;
  State after(const State& state, uint8_t byte) const;
  // The bytes that lead to the same state as this one.
  ByteSet alike(const State& state, uint8_t byte) const;
  static bool can_end(const State& state) { return !state.empty() && state.front().empty(); }
  static bool must_end(const State& state) { return state.size() == 1 && can_end(state); }

 private:
  struct Rule {
    bool nests = false;
    std::vector<uint32_t> alternatives;  // offsets of their begin
  };
  void pay(size_t bytes);
  struct Wave;
  void expand(Stack stack, Wave& wave) const;
  static State sorted(State state);

  std::vector<ByteSet> sets_;
  std::vector<Symbol> symbols_;  // symbols of all alternatives, each with a kEnd behind it
  std::vector<Rule> rules_;
  size_t literals_ = 0;  // bytes of texts: each becomes a symbol at least
  struct Bounds {
    size_t rules, symbols, literals;
  } most_;
  MemoryShare* memory_;
};

// A grammar in the tokens of a tokenizer, which outlives it. Caches its results: a state's tokens
// are found by one walk through the vocabulary. Any thread.
class TokenGrammar {
 public:
  // Bytes of the cache, also while it makes a mask, beside `vocab` for each of kMostMasks. Half of
  // them are for one mask: if its tokens lead to more places, the tokens of several bytes that come
  // later in the order of their bytes are left out.
  static constexpr size_t kMostBytes = 8 << 20, kMostMasks = 32;

  // Special tokens can come if they are in `special`, as the bytes of their texts.
  TokenGrammar(Grammar grammar, const Tokenizer& tokenizer, std::vector<int32_t> special = {});

  using State = Grammar::State;
  State start(uint32_t rule = 0) const { return grammar_.start(rule); }
  State after(const State& state, int32_t id) const;
  State after_byte(const State& state, char byte) const {
    return grammar_.after(state, static_cast<uint8_t>(byte));
  }
  // 1 for each id of the tokenizer that can come next.
  std::shared_ptr<const std::vector<uint8_t>> allowed(const State& state) const;
  // Bytes of the cache without masks.
  size_t kept_bytes() const;

 private:
  // A state, and the known ones behind each byte.
  struct Node {
    static constexpr uint32_t kUnknown = 0, kDead = 1;
    const State* state;
    uint32_t mask_number = 0;          // the mask that looked at it last
    std::array<uint32_t, 256> next{};  // node numbers, from 2 on
    std::shared_ptr<const std::vector<uint8_t>> mask;
  };
  static size_t bytes_of(const State& state);
  uint32_t node_of(State state) const;
  uint32_t next(uint32_t node, uint8_t byte) const;
  std::vector<uint8_t> look(uint32_t start) const;
  bool look_at(uint32_t node, size_t& left) const;

  const Grammar grammar_;
  const Tokenizer& tokenizer_;
  const std::vector<int32_t> special_;
  mutable std::mutex mutex_;  // guards the cache:
  mutable std::deque<Node> nodes_;
  mutable std::map<State, uint32_t> numbers_;
  mutable size_t masks_ = 0, bytes_ = 0;
  mutable uint32_t mask_number_ = 0;
};

}  // namespace split
