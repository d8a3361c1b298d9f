#include "http/sse.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "http/message.h"

namespace split::http {

std::string sse_event(std::string_view text) {
  std::string out = "data: ";
  for (const char c : text) {
    if (c == '\r') continue;  // it would end the line; JSON text never has one unescaped
    out += c;
    if (c == '\n') out += "data: ";
  }
  return out + "\n\n";
}

std::string sse_done() { return "data: [DONE]\n\n"; }

std::string sse_comment(std::string_view text) {
  std::string out = ": ";
  std::copy_if(text.begin(), text.end(), std::back_inserter(out),
               [](char c) { return c != '\n' && c != '\r'; });
  return out + "\n\n";
}

bool Sink::tell(const Events& events, std::string_view comment) {
  std::string text = comment.empty() ? "" : sse_comment(comment);
  for (const Event& event : events) {
    if (!event.name.empty()) text += cat("event: ", event.name, "\n");
    text += event.line ? event.json + "\n" : sse_event(event.json);
  }
  return write(text);
}

bool Sink::done() { return write(sse_done()); }

bool SseParser::feed(std::string_view bytes) {
  for (const char c : bytes) {
    if (stopped_) break;
    const bool second_half = after_return_ && c == '\n';
    after_return_ = c == '\r';
    if (second_half) continue;
    if (c == '\n' || c == '\r') {
      end_line();
      line_.clear();
    } else {
      if (line_.size() + data_.size() >= max_event_bytes_) {
        throw Error(ErrorKind::kRemote, cat("[sse] an event is over ", max_event_bytes_, " bytes"));
      }
      line_ += c;
    }
  }
  return !stopped_;
}

void SseParser::end_line() {
  std::string_view line = line_;
  if (std::exchange(first_line_, false) && line.starts_with("\xef\xbb\xbf")) line.remove_prefix(3);
  if (line.empty()) {
    if (has_data_) stopped_ = !on_event_(data_);
    data_.clear();
    has_data_ = false;
    return;
  }
  if (line.front() == ':') {
    line.remove_prefix(1);
    if (line.starts_with(' ')) line.remove_prefix(1);
    if (on_comment_) on_comment_(line);
    return;
  }
  if (!line.starts_with("data")) return;  // event, id, retry
  line.remove_prefix(4);
  if (!line.empty()) {
    if (line.front() != ':') return;  // another field with the same beginning
    line.remove_prefix(1);
    if (line.starts_with(' ')) line.remove_prefix(1);
  }
  if (has_data_) data_ += '\n';
  data_ += line;
  has_data_ = true;
}

}  // namespace split::http
