#include "text/form/tagged_scanner.h"

#include <algorithm>

#include "text/form/marks.h"
#include "text/json/quoted.h"

namespace split {

TagTexts::TagTexts(const AnswerFormat& format)
    : opens(without_spaces(format.argument.opens)),
      middle(without_spaces(format.argument_middle)),
      closes(without_spaces(format.argument.closes)),
      lead(format.argument_middle.substr(behind_words(format.argument_middle))),
      trail(format.argument.closes.substr(0, first_word(format.argument.closes))),
      mark(format.argument.closes.substr(trail.size(),
                                         behind_words(format.argument.closes) - trail.size())) {}

bool TaggedScanner::next(const TagTexts& tags, const JsonArguments& json, char c,
                         std::string& told) {
  const bool space = is_form_space(c);
  switch (step_) {
    case Step::kOpens:
      if (space) return true;
      if (c != tags.opens[at_]) {
        told += later_ ? "}" : "{}";
        return false;
      }
      if (++at_ == tags.opens.size()) enter(Step::kKey);
      return true;
    case Step::kKey:
      if (c != tags.middle.front()) {
        held_ += c;
        return true;
      }
      told += later_ ? ", " : "{";
      told += json_quote(held_) + ": ";
      later_ = true;
      is_json_ = json.contains(held_);
      held_.clear();
      enter(Step::kMiddle);
      [[fallthrough]];
    case Step::kMiddle:
      if (space || ++at_ < tags.middle.size()) return true;
      enter(is_json_ ? Step::kJson : Step::kLead);
      if (!is_json_) told += '"';
      return true;
    case Step::kLead:
      if (at_ < tags.lead.size() && c == tags.lead[at_]) {
        ++at_;
        return true;
      }
      enter(Step::kText);
      [[fallthrough]];
    case Step::kText:
      text(tags, c, told);
      return true;
    case Step::kJson:
      value(tags, c, told);
      return true;
    case Step::kCloses:
      if (!space) closes(tags, at_ + 1);
      return true;
  }
  return true;
}

void TaggedScanner::closes(const TagTexts& tags, size_t matched) {
  enter(matched < tags.closes.size() ? Step::kCloses : Step::kOpens);
  if (step_ == Step::kCloses) at_ = matched;
}

void TaggedScanner::text(const TagTexts& tags, char c, std::string& told) {
  held_ += c;
  const bool over = held_.ends_with(tags.mark);
  size_t kept = over ? tags.mark.size() : half_mark(held_, tags.mark);
  const std::string_view before = std::string_view(held_).substr(0, held_.size() - kept);
  kept += over || kept > 0 ? (before.ends_with(tags.trail) ? tags.trail.size() : 0)
                           : half_mark(before, tags.trail + tags.mark);
  add_escaped(std::string_view(held_).substr(0, held_.size() - kept), told);
  held_.erase(0, held_.size() - kept);
  if (!over) return;
  told += '"';
  held_.clear();
  closes(tags, without_spaces(tags.mark).size());
}

// Leaves out white space around a value.
void TaggedScanner::value(const TagTexts& tags, char c, std::string& told) {
  if (!in_string_ && c == tags.closes.front()) {
    held_.clear();
    return closes(tags, 1);
  }
  if (!in_string_ && is_form_space(c)) {
    if (at_ > 0) held_ += c;
    return;
  }
  at_ = 1;
  told += held_ + c;
  held_.clear();
  if (in_string_) {
    in_string_ = escaped_ || c != '"';
    escaped_ = !escaped_ && c == '\\';
  } else {
    in_string_ = c == '"';
  }
}

}  // namespace split
