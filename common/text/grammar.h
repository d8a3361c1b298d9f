// A grammar over bytes, and which tokens can come next in a text of it: what makes a model's answer
// JSON of a schema. Rules are lists of alternatives, each of bytes and of other rules; a state is
// the set of places where a text can be in them, as stacks of what is still to come. Knows no JSON
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
    uint32_t index = 0;  // among sets, or rules
  };
  using Sequence = std::vector<Symbol>;

  // `memory` pays for rules and symbols before they are made; adding them throws Error(kBusy) where
  // it has no more.
  explicit Grammar(MemoryShare* memory = nullptr);

  // A rule without alternatives yet. Rule 0 is the text. One that `nests` is no alternative any
  // more where a text is some 50 of them deep: whoever has it has another beside it. Throws
  // Error(kInput) past a bound.
  uint32_t add_rule(bool nests = false);
  void add(uint32_t rule, const Sequence& alternative);
  Symbol bytes(const ByteSet& set);
  static Symbol rule(uint32_t index) { return {Symbol::kRule, index}; }
  // Each byte of a text in turn.
  Sequence literal(std::string_view text);
  // Throws what adding does past a bound.
  [[noreturn]] static void refuse_size();
  // Nothing is added any more.
  void finish() { memory_ = nullptr; }
  // Leaves one part of so many of the bounds for what is added from here on.
  void allow(size_t parts);
  // Rules that may still be added.
  size_t room() const { return most_.rules - rules_.size(); }

  // Where a text is: each stack holds offsets into the symbols, the next one last; an empty stack
  // is the end of the text. None: no text is like this. A place that would take more than some
  // 64 KiB goes on with the first of its stacks: texts of the others do not come then.
  using Stack = std::vector<uint32_t>;
  using State = std::vector<Stack>;
  State start(uint32_t rule = 0) const;
  State after(const State& state, uint8_t byte) const;
  // The bytes behind which a text is where it is behind this one.
  ByteSet alike(const State& state, uint8_t byte) const;
  static bool can_end(const State& state) { return !state.empty() && state.front().empty(); }
  static bool must_end(const State& state) { return state.size() == 1 && can_end(state); }

 private:
  struct Rule {
    bool nests = false;
    std::vector<uint32_t> alternatives;  // where they begin
  };
  void pay(size_t bytes);
  struct Wave;
  void expand(Stack stack, Wave& wave) const;
  static State sorted(State state);

  std::vector<ByteSet> sets_;
  std::vector<Symbol> symbols_;  // of all alternatives, each with a kEnd behind it
  std::vector<Rule> rules_;
  size_t literals_ = 0;  // bytes of texts: each becomes a symbol at least
  struct Bounds {
    size_t rules, symbols, literals;
  } most_;
  MemoryShare* memory_;
};

// A grammar in the tokens of a tokenizer, which outlives it. Keeps what it has computed: tokens of
// a state are a walk through the vocabulary, once. Any thread.
class TokenGrammar {
 public:
  // Bytes that one may keep, also while it makes a mask, beside `vocab` for each of kMostMasks.
  // Half of them are for one mask: where its tokens lead to more places, those of several bytes
  // that come later in the order of their bytes are not in it.
  static constexpr size_t kMostBytes = 8 << 20, kMostMasks = 32;

  // Special tokens can come where they are in `special`, as the bytes of their texts.
  TokenGrammar(Grammar grammar, const Tokenizer& tokenizer, std::vector<int32_t> special = {});

  using State = Grammar::State;
  State start(uint32_t rule = 0) const { return grammar_.start(rule); }
  State after(const State& state, int32_t id) const;
  State after_byte(const State& state, char byte) const {
    return grammar_.after(state, static_cast<uint8_t>(byte));
  }
  // 1 for each id of the tokenizer that can come next.
  std::shared_ptr<const std::vector<uint8_t>> allowed(const State& state) const;
  // Bytes of what it keeps, but for masks.
  size_t kept_bytes() const;

 private:
  // A state, and those behind each byte of it that were asked for.
  struct Node {
    static constexpr uint32_t kUnknown = 0, kDead = 1;
    const State* state;
    uint32_t mask_number = 0;          // of the mask that looked at it last
    std::array<uint32_t, 256> next{};  // others by number, from 2 on
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
  mutable std::mutex mutex_;  // of what was looked at before:
  mutable std::deque<Node> nodes_;
  mutable std::map<State, uint32_t> numbers_;
  mutable size_t masks_ = 0, bytes_ = 0;
  mutable uint32_t mask_number_ = 0;
};

}  // namespace split
