#include "models/formats.h"

#include <algorithm>
#include <set>

#include "base/json.h"

namespace split {
namespace {

using Member = std::optional<DType> StageFormats::*;
struct Kind {
  std::string_view name;
  Member member;
  bool quantises;
};
constexpr Kind kKinds[] = {{"embed", &StageFormats::embed, false},
                           {"block", &StageFormats::block, true},
                           {"norm", &StageFormats::norm, false},
                           {"head", &StageFormats::head, true}};

[[noreturn]] void refuse(const std::string& expected, std::string_view got) {
  throw Error(ErrorKind::kInput, cat("expected ", expected, ", got ", shown(got)));
}

std::optional<DType> format_of(std::string_view word) {
  if (word == "auto") return std::nullopt;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kQ8_0, DType::kQ4_0}) {
    if (word == format_name(dtype)) return dtype;
  }
  refuse("auto, f32, f16, q8_0 or q4_0", word);
}

const Kind& kind_of(std::string_view name) {
  for (const Kind& kind : kKinds) {
    if (kind.name == name) return kind;
  }
  refuse("a format of embed, block, norm or head", name);
}

}  // namespace

StageFormats StageFormats::parse(std::string_view text) {
  StageFormats formats;
  std::set<std::string_view> seen;
  for (bool first = true, more = true; more; first = false) {
    const size_t comma = text.find(',');
    more = comma != text.npos;
    const std::string_view item = text.substr(0, comma);
    text.remove_prefix(more ? comma + 1 : text.size());
    const size_t equals = item.find('=');
    if (equals != item.npos) {
      const Kind& kind = kind_of(item.substr(0, equals));
      const auto format = format_of(item.substr(equals + 1));
      if (format && is_quantised(*format) && !kind.quantises) {
        refuse(cat("auto, f32 or f16 for ", kind.name, ", which is never quantised"), item);
      }
      if (!seen.insert(kind.name).second) refuse(cat(kind.name, " once"), item);
      formats.*kind.member = format;
      continue;
    }
    if (!first) refuse("KIND=FORMAT", item);
    const auto format = format_of(item);
    const bool blocks = format && is_quantised(*format);
    for (const Kind& kind : kKinds) {
      if (kind.quantises || !blocks) formats.*kind.member = format;
    }
    if (format == DType::kQ4_0) formats.head = DType::kQ8_0;
  }
  return formats;
}

std::optional<DType> StageFormats::of(std::string_view stage) const {
  return this->*kind_of(stage.substr(0, stage.find('.'))).member;
}

bool StageFormats::quantise() const {
  return std::ranges::any_of(kKinds, [&](const Kind& kind) {
    const std::optional<DType> format = this->*kind.member;
    return format && is_quantised(*format);
  });
}

std::string StageFormats::text() const {
  std::string text;
  for (const Kind& kind : kKinds) {
    const std::optional<DType> format = this->*kind.member;
    if (format) text += cat(text.empty() ? "" : ",", kind.name, "=", format_name(*format));
  }
  return text.empty() ? "auto" : text;
}

}  // namespace split
