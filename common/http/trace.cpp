#include "http/trace.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/error.h"

namespace split::http {
namespace {

// Offsets of the parts in "00-TRACE-PARENT-FLAGS".
constexpr size_t kTraceAt = 3, kTraceDigits = 32, kSpanAt = 36, kSpanDigits = 16, kFlagsAt = 53;

bool is_id(std::string_view text) {
  return is_lower_hex(text, text.size()) && text.find_first_not_of('0') != text.npos;
}

}  // namespace

void Trace::draw(size_t from, size_t digits) {
  std::array<std::byte, kTraceDigits / 2> random{};
  const std::span some = std::span(random).first(digits / 2);
  do {
    random_bytes(some);
  } while (std::ranges::all_of(some, [](std::byte byte) { return byte == std::byte{0}; }));
  constexpr char kDigits[] = "0123456789abcdef";
  for (size_t i = 0; i < digits; ++i) {
    const auto byte = std::to_integer<unsigned>(some[i / 2]);
    text_[from + i] = kDigits[i % 2 == 0 ? byte >> 4 : byte & 15];
  }
}

Trace Trace::within(std::string_view traceparent) {
  Trace trace;
  // Later versions may be longer.
  const bool longer =
      traceparent.size() > kSize && traceparent[kSize] == '-' && !traceparent.starts_with("00");
  if (traceparent.size() != kSize && !longer) return trace;
  if (traceparent.starts_with("ff") || !is_lower_hex(traceparent.substr(0, 2), 2)) return trace;
  for (const size_t at : {kTraceAt, kSpanAt, kFlagsAt}) {
    if (traceparent[at - 1] != '-') return trace;
  }
  if (!is_id(traceparent.substr(kTraceAt, kTraceDigits)) ||
      !is_id(traceparent.substr(kSpanAt, kSpanDigits)) ||
      !is_lower_hex(traceparent.substr(kFlagsAt, 2), 2)) {
    return trace;
  }
  std::ranges::copy(traceparent.substr(0, kSize), trace.text_.begin());
  trace.text_[0] = trace.text_[1] = '0';
  trace.draw(kSpanAt, kSpanDigits);
  return trace;
}

Trace Trace::begun() {
  Trace trace;
  constexpr std::string_view kNothing = "00-00000000000000000000000000000000-0000000000000000-00";
  static_assert(kNothing.size() == kSize);
  std::ranges::copy(kNothing, trace.text_.begin());
  trace.draw(kTraceAt, kTraceDigits);
  trace.draw(kSpanAt, kSpanDigits);
  return trace;
}

std::string_view Trace::traceparent() const {
  return *this ? std::string_view(text_.data(), kSize) : std::string_view();
}

std::string_view Trace::id() const {
  return traceparent().substr(*this ? kTraceAt : 0, kTraceDigits);
}

}  // namespace split::http
