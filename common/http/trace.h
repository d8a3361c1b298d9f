// The W3C's trace context (www.w3.org/TR/trace-context): the trace of a request, taken from its
// `traceparent` and passed on in the requests that it makes. Does not allocate, since each step of
// a text has one.
#pragma once

#include <array>
#include <optional>
#include <string_view>

namespace split::http {

class Trace {
 public:
  // Makes an empty trace.
  Trace() = default;
  // Parses "00-TRACE-PARENT-FLAGS": the trace, with a new span for this request. Empty for an
  // invalid traceparent.
  static Trace within(std::string_view traceparent);
  // Begins a new trace, not marked for recording.
  static Trace begun();

  explicit operator bool() const { return text_[0] != 0; }
  // The header for requests that this one makes; empty: no trace.
  std::string_view traceparent() const;
  std::string_view id() const;  // 32 hexadecimal digits

 private:
  static constexpr size_t kSize = 55;
  void draw(size_t from, size_t digits);
  std::array<char, kSize> text_{};
};

inline constexpr char kTraceHeader[] = "traceparent";

}  // namespace split::http
