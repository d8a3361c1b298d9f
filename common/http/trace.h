// The W3C's trace context (www.w3.org/TR/trace-context): the trace that a request belongs to, taken
// from its `traceparent` and passed on in that of the requests that it makes. No allocation, since
// each step of a text has one.
#pragma once

#include <array>
#include <optional>
#include <string_view>

namespace split::http {

class Trace {
 public:
  // None.
  Trace() = default;
  // "00-TRACE-PARENT-FLAGS": the same trace, under a span of this request's own. None for what is
  // no traceparent.
  static Trace within(std::string_view traceparent);
  // A new one, which nobody has asked to be recorded.
  static Trace begun();

  explicit operator bool() const { return text_[0] != 0; }
  // For requests that this one makes; empty: none.
  std::string_view traceparent() const;
  std::string_view id() const;  // 32 hexadecimal digits

 private:
  static constexpr size_t kSize = 55;
  void draw(size_t from, size_t digits);
  std::array<char, kSize> text_{};
};

inline constexpr char kTraceHeader[] = "traceparent";

}  // namespace split::http
