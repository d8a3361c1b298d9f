#include "text/form/text_form.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "text/form/marks.h"

namespace split {
TextForm::TextForm(AnswerForm form, const Tokenizer& tokenizer, bool keeps_special,
                   MemoryShare* memory)
    : form_(std::move(form)),
      tokenizer_(tokenizer),
      keeps_special_(keeps_special),
      grammar_(form_grammar(form_, tokenizer, memory)),
      texts_(form_, grammar_.json),
      mark_(form_.calls() ? form_.format.mark() : ""),
      special_(special_tokens(form_.format, tokenizer)) {}

TextForm::State TextForm::start() const {
  State state;
  if (form_.inside) {
    open_thought(state);
  } else if (grammar_.begin) {
    state.place_ = grammar_.tokens->start(*grammar_.begin);
  }
  return state;
}

bool TextForm::can_end(const State& state) const {
  return state.place_.empty() ? state.where_ != State::kThought || !grammar_.behind
                              : Grammar::can_end(state.place_);
}

std::shared_ptr<const std::vector<uint8_t>> TextForm::allowed(const State& state) const {
  return state.place_.empty() ? nullptr : grammar_.tokens->allowed(state.place_);
}

bool TextForm::looks_for_calls(const State& state) const {
  return form_.choice == AnswerForm::Choice::kAuto && grammar_.call && !state.over();
}

// Separates words on both sides of a call by one line break.
void TextForm::tell(State& state, TextPiece::Part part, std::string_view text, Pieces& out) const {
  if (state.skips_ && part <= TextPiece::kThought) {
    text.remove_prefix(first_word(text));
    state.skips_ = text.empty();
  }
  if (text.empty()) return;
  state.fresh_ = false;
  std::string bytes(text);
  if (part == TextPiece::kWords) {
    if (std::exchange(state.parted_, false)) bytes.insert(0, "\n");
    state.said_ = true;
  }
  const uint32_t call = part > TextPiece::kThought ? state.calls_ - 1 : 0;
  if (!out.empty() && out.back().part == part && out.back().call == call) {
    out.back().bytes += bytes;
  } else {
    out.push_back({part, call, std::move(bytes)});
  }
}

void TextForm::open_thought(State& state) const {
  state.where_ = State::kThought;
  state.held_.clear();
  state.place_.clear();
  state.skips_ = true;
  state.fresh_ = false;
}

void TextForm::close_thought(State& state) const {
  state.held_.clear();
  state.skips_ = true;
  state.opened_ = true;
  state.where_ = State::kBegin;
  if (grammar_.behind) state.place_ = grammar_.tokens->start(*grammar_.behind);
}

// Opens the call that the held text begins. Returns false if no call begins so.
bool TextForm::open_call(State& state, bool at_grammar) const {
  const std::string begun = std::exchange(state.held_, {});
  if (!at_grammar)
    state.place_ = grammar_.tokens->start(grammar_.call.value_or(grammar_.behind.value_or(0)));
  state.where_ = State::kCall;
  state.scanner_ = {};
  state.opened_ = true;
  std::string told;  // empty: no name is known yet
  for (const char c : begun) {
    if (!at_grammar) state.place_ = grammar_.tokens->after_byte(state.place_, c);
    if (state.place_.empty()) return false;
    state.held_ += c;
    state.scanner_.next(texts_, c, told);
  }
  return true;
}

void TextForm::words(State& state, char c, Step& step) const {
  state.held_ += c;
  const std::string_view held = state.held_;
  const bool calls = looks_for_calls(state) && !mark_.empty();
  if (calls && step.marks && held.ends_with(mark_)) {
    const std::string_view before = held.substr(0, held.size() - mark_.size());
    tell(state, TextPiece::kWords, before.substr(0, behind_words(before)), step.out);
    state.held_ = mark_;
    if (!open_call(state, false)) state.opened_ = true;
    return;
  }
  size_t kept = 0;
  if (calls && step.marks) kept = half_mark(held, mark_);
  if (looks_for_calls(state) || state.skips_) {
    const std::string_view before = held.substr(0, held.size() - kept);
    kept += before.size() - behind_words(before);
  }
  tell(state, TextPiece::kWords, held.substr(0, held.size() - kept), step.out);
  state.held_.erase(0, state.held_.size() - kept);
}

void TextForm::thought(State& state, char c, Step& step) const {
  state.held_ += c;
  const std::string_view held = state.held_, mark = form_.format.thought.closes;
  if (step.marks && held.ends_with(mark)) {
    const std::string_view before = held.substr(0, held.size() - mark.size());
    tell(state, TextPiece::kThought, before.substr(0, behind_words(before)), step.out);
    return close_thought(state);
  }
  const size_t marked = step.marks ? half_mark(held, mark) : 0;
  const size_t told = behind_words(held.substr(0, held.size() - marked));
  tell(state, TextPiece::kThought, held.substr(0, told), step.out);
  state.held_.erase(0, told);
}

// Reads the begin of an answer, or of the text behind a thought.
bool TextForm::begin(State& state, char c, Step& step) const {
  const bool grammar = !state.place_.empty();
  if (grammar) {
    state.place_ = grammar_.tokens->after_byte(state.place_, c);
    if (state.place_.empty()) return false;
  }
  state.held_ += c;
  const std::string_view held = std::string_view(state.held_).substr(first_word(state.held_));
  const std::string_view opens = form_.format.thought.opens;
  if (held.empty()) return true;
  if (state.fresh_ && !opens.empty()) {
    if (held == opens) {
      open_thought(state);
      return true;
    }
    if (opens.starts_with(held)) return true;
  }
  if (grammar && form_.choice == AnswerForm::Choice::kRequired) return open_call(state, true);
  if (grammar) {
    if (form_.calls() && !mark_.empty()) {
      if (held == mark_) return open_call(state, true);
      if (std::string_view(mark_).starts_with(held)) return true;
    }
  } else if (looks_for_calls(state) && mark_.empty() && step.marks) {
    // Calls begin like any JSON: a call is recognised once its name is known.
    Grammar::State place = grammar_.tokens->start(*grammar_.call);
    CallScanner scanner;
    std::string told;
    for (const char one : state.held_) {
      place = grammar_.tokens->after_byte(place, one);
      if (place.empty()) break;
      scanner.next(texts_, one, told);
    }
    if (!place.empty() && !scanner.in_call()) return true;
    if (!place.empty()) {
      const std::string begun = std::exchange(state.held_, {});
      state.place_ = grammar_.tokens->start(*grammar_.call);
      state.where_ = State::kCall;
      state.scanner_ = {};
      state.opened_ = true;
      for (const char one : begun) {
        if (!call(state, one, step)) return false;
      }
      return true;
    }
  }
  state.where_ = State::kWords;
  const std::string all = std::exchange(state.held_, {});
  if (grammar) {
    tell(state, TextPiece::kWords, all, step.out);
    if (Grammar::must_end(state.place_)) state.where_ = State::kOver;
    return true;
  }
  for (const char one : all) words(state, one, step);
  return true;
}

bool TextForm::call(State& state, char c, Step& step) const {
  state.place_ = grammar_.tokens->after_byte(state.place_, c);
  if (state.place_.empty()) return false;
  std::string told;
  const CallScanner::Found found = state.scanner_.next(texts_, c, told);
  if (!told.empty()) tell(state, TextPiece::kArguments, told, step.out);
  switch (found) {
    case CallScanner::Found::kName:
      state.held_.clear();
      ++state.calls_;
      state.skips_ = false;
      tell(state, TextPiece::kName, texts_.shown[state.scanner_.tool()], step.out);
      break;
    case CallScanner::Found::kClosed:
      state.held_.clear();
      break;
    default:
      if (!state.scanner_.in_call()) state.held_ += c;
      break;
  }
  const bool closed = state.calls_ == kMostCalls && !state.scanner_.in_call();
  if (!closed && !Grammar::must_end(state.place_)) return true;
  state.held_.clear();
  state.skips_ = true;
  state.parted_ = state.said_;
  state.place_.clear();
  const bool goes_on =
      form_.choice == AnswerForm::Choice::kAuto && !form_.schema && form_.parallel && !closed;
  state.where_ = goes_on ? State::kWords : State::kOver;
  return true;
}

bool TextForm::take(State& state, char c, Step& step) const {
  switch (state.where_) {
    case State::kBegin:
      return begin(state, c, step);
    case State::kThought:
      thought(state, c, step);
      return true;
    case State::kCall:
      return call(state, c, step);
    case State::kOver:
      return state.calls_ > 0;  // text behind the last call is ignored
    case State::kWords:
      break;
  }
  if (state.place_.empty()) {
    words(state, c, step);
    return true;
  }
  state.place_ = grammar_.tokens->after_byte(state.place_, c);
  if (state.place_.empty()) return false;
  tell(state, TextPiece::kWords, {&c, 1}, step.out);
  if (Grammar::must_end(state.place_)) state.where_ = State::kOver;
  return true;
}

bool TextForm::take(State& state, std::string_view bytes, bool whole, Step step) const {
  state.opened_ = false;
  // In a thought a call opens if its mark is one token; in letters it is a thought about calls.
  if (whole && step.marks && state.thinks() && !mark_.empty() && bytes == mark_) {
    tell(state, TextPiece::kThought,
         std::string_view(state.held_).substr(0, behind_words(state.held_)), step.out);
    state.held_ = bytes;
    return open_call(state, false);
  }
  return std::ranges::all_of(bytes, [&](char c) { return take(state, c, step); });
}

void TextForm::follow(State& state, std::string_view bytes, bool whole, Pieces& out) const {
  const State before = state;
  Pieces made;
  bool fits = take(state, bytes, whole, {true, made});
  if (!fits && state.opened_) {  // a token that runs over a mark's end into impossible text
    state = before;
    made.clear();
    fits = take(state, bytes, whole, {false, made});
  }
  if (!fits) {
    throw Error(ErrorKind::kInput, "[generate] a token that is not of the response_format",
                "response_format");
  }
  out.insert(out.end(), std::make_move_iterator(made.begin()), std::make_move_iterator(made.end()));
}

void TextForm::follow(State& state, int32_t id, Pieces& out) const {
  const bool special = tokenizer_.is_special(id);
  if (special && !keeps_special_ && std::ranges::find(special_, id) == special_.end()) return;
  const std::string_view bytes = tokenizer_.token_bytes(id);
  follow(state, bytes, tokenizer_.added_id(bytes) == id, out);
}

void TextForm::finish(State& state, Pieces& out) const {
  const std::string held = std::exchange(state.held_, {});
  // The held text of a call that is cut before its name is known is dropped.
  const bool call = state.where_ == State::kCall || form_.choice == AnswerForm::Choice::kRequired;
  if (call && !state.thinks()) return;
  tell(state, state.thinks() ? TextPiece::kThought : TextPiece::kWords, held, out);
}

}  // namespace split
