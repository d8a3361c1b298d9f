// Server-sent events: a writer for servers, and a reader for clients that takes them in any pieces.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace split::http {

// Returns "data: TEXT\n\n"; a line feed in the text begins another data line, as the format
// requires.
std::string sse_event(std::string_view text);
// The event that ends an OpenAI stream.
std::string sse_done();
// A line that readers skip: keeps proxies from closing a quiet stream.
std::string sse_comment(std::string_view text = {});

// Calls on_event with the data of each complete event. One thread at a time.
class SseParser {
 public:
  // on_event returns false to stop; later input is ignored. Throws Error(kRemote) beyond
  // `max_event_bytes`.
  explicit SseParser(std::function<bool(std::string_view)> on_event,
                     size_t max_event_bytes = 1 << 20)
      : on_event_(std::move(on_event)), max_event_bytes_(max_event_bytes) {}

  // Sets a function to call with each later comment's text.
  void on_comment(std::function<void(std::string_view)> told) { on_comment_ = std::move(told); }
  // Returns false once on_event has returned false.
  bool feed(std::string_view bytes);

 private:
  void end_line();

  std::function<bool(std::string_view)> on_event_;
  std::function<void(std::string_view)> on_comment_;
  size_t max_event_bytes_;
  std::string line_;
  std::string data_;
  bool has_data_ = false;
  bool after_return_ = false;  // a line feed after a carriage return ends no second line
  bool first_line_ = true;     // it may start with a byte order mark
  bool stopped_ = false;
};

}  // namespace split::http
