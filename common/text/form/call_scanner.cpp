#include "text/form/call_scanner.h"

#include <algorithm>
#include <utility>

#include "text/form/marks.h"

namespace split {

CallTexts::CallTexts(const AnswerForm& form, std::vector<JsonArguments> json_arguments)
    : first(without_spaces(form.format.list.opens + form.format.opens)),
      next(without_spaces(form.format.separator + form.format.opens)),
      middle(without_spaces(form.format.middle)),
      closes(without_spaces(form.format.closes)),
      list_closes(without_spaces(form.format.list.closes)),
      id_opens(without_spaces(form.format.id.opens)),
      id_closes(without_spaces(form.format.id.closes)),
      quote(form.format.quote),
      behind_name(!quote.empty()               ? '{'
                  : form.format.middle.empty() ? '"'
                                               : form.format.middle.front()),
      json(std::move(json_arguments)) {
  if (form.format.calls == AnswerFormat::Calls::kTagged) tags.emplace(form.format);
  for (const AnswerForm::Tool& tool : form.tools) {
    const std::string quoted = json_quote(tool.name);
    names.push_back(form.format.opens.ends_with('"') ? quoted.substr(1, quoted.size() - 2)
                                                     : tool.name);
    shown.push_back(tool.name);
  }
}

CallScanner::Found CallScanner::behind(const CallTexts& texts) {
  later_ = true;
  enter(texts.closes.empty() ? Step::kBetween : Step::kClose);
  return texts.closes.empty() ? Found::kClosed : Found::kNothing;
}

// Reads arguments: an object, which ends with its last bracket.
void CallScanner::argument(const CallTexts& texts, char c, std::string& told) {
  if (at_ == 0 && is_form_space(c)) return;
  told += c;
  if (in_string_) {
    in_string_ = escaped_ || c != '"';
    escaped_ = !escaped_ && c == '\\';
  } else if (c == '"') {
    in_string_ = true;
  } else if (c == '{' || c == '[') {
    ++at_;
  } else if ((c == '}' || c == ']') && --at_ == 0) {
    behind(texts);
  }
}

CallScanner::Found CallScanner::next(const CallTexts& texts, char c, std::string& told) {
  const bool space = is_form_space(c);
  if (step_ == Step::kArguments && !texts.quote.empty()) {
    if (quoted_.next(texts.quote, c, told)) behind(texts);
    return Found::kNothing;
  }
  if (step_ == Step::kArguments && !texts.tags) {
    argument(texts, c, told);
    return Found::kNothing;
  }
  if (step_ == Step::kArguments) {
    if (tagged_.next(*texts.tags, texts.json.at(tool_), c, told)) return Found::kNothing;
    behind(texts);
    at_ = std::exchange(tagged_, {}).begun();
  }
  if (step_ == Step::kName) {
    const auto known = std::ranges::find(texts.names, name_);
    const bool ends = c == texts.behind_name || (space && is_form_space(texts.behind_name));
    if (!ends || known == texts.names.end()) {
      if (!name_.empty() || !space) name_ += c;
      return Found::kNothing;
    }
    tool_ = static_cast<size_t>(known - texts.names.begin());
    name_.clear();
    enter(Step::kMiddle);
    at_ = space ? 0 : 1;
    if (at_ >= texts.middle.size()) enter(Step::kArguments);
    return Found::kName;
  }
  if (step_ == Step::kIdText) {
    if (c != texts.id_closes.front()) return Found::kNothing;
    enter(Step::kIdEnd);
  }
  if (space) return Found::kNothing;
  if (step_ == Step::kBetween) {
    enter(texts.list_closes.starts_with(c) ? Step::kListEnd : Step::kHead);
  } else if (step_ == Step::kClose && at_ == 0 && texts.id_opens.starts_with(c)) {
    step_ = Step::kId;
  }
  ++at_;
  switch (step_) {
    case Step::kHead:
      if (at_ >= (later_ ? texts.next : texts.first).size()) enter(Step::kName);
      break;
    case Step::kMiddle:
      if (at_ >= texts.middle.size()) enter(Step::kArguments);
      break;
    case Step::kId:
      if (at_ >= texts.id_opens.size()) enter(Step::kIdText);
      break;
    case Step::kIdEnd:
      if (at_ >= texts.id_closes.size()) return behind(texts);
      break;
    case Step::kClose:
      if (at_ < texts.closes.size()) break;
      enter(Step::kBetween);
      return Found::kClosed;
    default:
      return at_ >= texts.list_closes.size() ? Found::kListClosed : Found::kNothing;
  }
  return Found::kNothing;
}

}  // namespace split
