#include "text/json/quoted.h"

#include <algorithm>

#include "base/error.h"
#include "text/form/marks.h"

namespace split {
namespace {

bool is_control(char c) { return static_cast<uint8_t>(c) < 0x20 || c == 0x7f; }

}  // namespace

bool is_quote(std::string_view mark) {
  constexpr size_t kLeast = 3, kMost = 64;
  return mark.size() >= kLeast && mark.size() <= kMost && mark.front() == '<' &&
         std::ranges::all_of(mark, [](char c) { return c > 0x20 && c < 0x7f; });
}

std::string quoted_name(std::string_view name) {
  const bool fits = !name.empty() && std::ranges::none_of(name, [](char c) {
    return is_control(c) || kNoNameBytes.find(c) != kNoNameBytes.npos;
  });
  if (!fits) throw Error(ErrorKind::kInput, "a name that cannot stand bare");
  return std::string(name);
}

std::string quoted_json(const Json& value, std::string_view quote) {
  if (value.is_string()) {
    const std::string all = cat(value.text(), quote);
    if (all.find(quote) < value.text().size())
      throw Error(ErrorKind::kInput, "a text with its mark inside");
    return cat(quote, all);
  }
  if (!value.is_array() && !value.is_object()) return value.dump();
  std::string out;
  const auto add = [&](const std::string& one) { out += (out.empty() ? "" : ",") + one; };
  for (const auto& [name, one] : value.members())
    add(cat(quoted_name(name), ":", quoted_json(one, quote)));
  if (value.is_object()) return cat("{", out, "}");
  for (const Json& one : value) add(quoted_json(one, quote));
  return cat("[", out, "]");
}

void add_escaped(std::string_view text, std::string& out) {
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
    } else if (c == '"' || c == '\\' || static_cast<uint8_t>(c) < 0x20) {
      const std::string quoted = json_quote({&c, 1});
      out += std::string_view(quoted).substr(1, quoted.size() - 2);
    } else {
      out += c;
    }
  }
}

bool QuotedScanner::next(std::string_view quote, char c, std::string& told) {
  if (open_.empty()) {
    told += '{';
    open_ = "{";
    in_name_ = true;
  }
  if (in_text_) {
    held_ += c;
    const bool over = held_.ends_with(quote);
    const size_t passed = held_.size() - (over ? quote.size() : half_mark(held_, quote));
    add_escaped(std::string_view(held_).substr(0, passed), told);
    held_.erase(0, over ? held_.size() : passed);
    if (over) told += '"';
    in_text_ = !over;
    return false;
  }
  if (in_name_ && c != '}') {
    if (c == ':') {
      told += json_quote(held_) + ": ";
      held_.clear();
      in_name_ = false;
    } else if (!is_form_space(c)) {
      held_ += c;
    }
    return false;
  }
  if (c == quote.front() || !held_.empty()) {
    held_ += c;
    in_text_ = held_ == quote;
    if (in_text_) {
      told += '"';
      held_.clear();
    }
    return false;
  }
  if (!is_form_space(c)) told += c;
  if (c == ',') told += ' ';
  if (c == '{' || c == '[') open_ += c;
  if (c == '}' || c == ']') open_.pop_back();
  in_name_ = c == '{' || (c == ',' && open_.back() == '{');
  return open_.empty();
}

}  // namespace split
