// A text in its form: thoughts, words, calls with their names and arguments, and which tokens may
// come next. Its state is a function of the generated ids and of how the prompt ends, so that a
// replayed, moved or drafted text has equal constraints. Words and thoughts are free unless they
// have a schema; from a call's mark on its grammar holds. Other text is words, byte for byte, but
// for white space next to a mark, which is the form's. Knows no model.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/form/call_grammar.h"
#include "text/form/call_scanner.h"

namespace split {

// A piece of an answer. Plain text without a part is words.
struct TextPiece {
  enum Part : uint8_t { kWords, kThought, kName, kArguments };

  explicit TextPiece(std::string_view words) : bytes(words) {}
  TextPiece(Part of, uint32_t call_index, std::string_view text)
      : part(of), call(call_index), bytes(text) {}
  operator std::string_view() const { return bytes; }

  Part part = kWords;
  uint32_t call = 0;  // the call's index, for a name or arguments
  std::string_view bytes;
};

// Immutable: any thread. The tokenizer outlives it.
class TextForm {
 public:
  static constexpr size_t kMostCalls = 128;

  struct Piece {
    TextPiece::Part part;
    uint32_t call;
    std::string bytes;
  };
  using Pieces = std::vector<Piece>;

  // A text's state. Plain data.
  class State {
   public:
    bool over() const { return where_ == kOver; }
    bool thinks() const { return where_ == kThought; }
    size_t calls() const { return calls_; }

   private:
    friend class TextForm;
    // kBegin: the held text may still become a thought, a call or words.
    enum Where : uint8_t { kBegin, kThought, kWords, kCall, kOver };
    Where where_ = kBegin;
    Grammar::State place_;  // place in the grammar; empty: anything may come
    CallScanner scanner_;
    std::string held_;     // text read and not yet passed on
    bool fresh_ = true;    // a thought may come: nothing was passed on
    bool skips_ = false;   // skips white space behind a mark
    bool said_ = false;    // words were passed on
    bool parted_ = false;  // a call stands behind words
    uint32_t calls_ = 0;   // calls with a known name
    bool opened_ = false;  // a mark was complete in this token
  };

  // `memory` pays for its grammar. Throws the errors of form_grammar().
  TextForm(AnswerForm form, const Tokenizer& tokenizer, bool keeps_special = false,
           MemoryShare* memory = nullptr);

  State start() const;
  // Takes the next token. Throws Error(kInput) for one that may not come.
  void follow(State& state, int32_t id, Pieces& out) const;
  // Takes text; `whole`: it is one added token.
  void follow(State& state, std::string_view bytes, bool whole, Pieces& out) const;
  // Passes the held text on at the end.
  void finish(State& state, Pieces& out) const;

  // 1 for each id that may come; null: any.
  std::shared_ptr<const std::vector<uint8_t>> allowed(const State& state) const;
  bool holds(const State& state) const { return !state.place_.empty(); }
  // Whether the text may end here.
  bool can_end(const State& state) const;

  const AnswerForm& form() const { return form_; }
  const std::vector<std::string>& loosened() const { return grammar_.loosened; }

 private:
  struct Step {  // one token
    bool marks;  // these may open a thought or call
    Pieces& out;
  };
  bool take(State& state, std::string_view bytes, bool whole, Step step) const;
  bool take(State& state, char c, Step& step) const;
  bool begin(State& state, char c, Step& step) const;
  bool call(State& state, char c, Step& step) const;
  void words(State& state, char c, Step& step) const;
  void thought(State& state, char c, Step& step) const;
  bool open_call(State& state, bool at_grammar) const;
  void open_thought(State& state) const;
  void close_thought(State& state) const;
  void tell(State& state, TextPiece::Part part, std::string_view text, Pieces& out) const;
  bool looks_for_calls(const State& state) const;

  const AnswerForm form_;
  const Tokenizer& tokenizer_;
  const bool keeps_special_;
  const FormGrammar grammar_;
  const CallTexts texts_;
  const std::string mark_;  // the text that opens calls; empty: only at the answer's begin
  const std::vector<int32_t> special_;
};

}  // namespace split
