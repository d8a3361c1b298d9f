// Meters a run of a template: steps, by the cost of each construct, the memory of its values and
// texts, and time. Ends a run that passes a limit, or whose client has gone. For the files of this
// folder alone.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/jinja.h"

namespace split::jinja {

// One thread.
class Meter {
 public:
  explicit Meter(const JinjaCaller& caller);
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  // Call each before the work; throws the errors of JinjaTemplate::render.
  void steps(size_t count);
  void bytes(size_t count);  // read or written once
  void items(size_t count) { bytes(4 * count); }
  void hold(size_t bytes);
  void let_go(size_t bytes) noexcept { held_ -= bytes; }

  // Makes room for one more in a list whose memory `held` counts.
  template <typename T>
  void grow(std::vector<T>& list, size_t& held) {
    if (list.size() < list.capacity()) return;
    const size_t old = list.capacity() * sizeof(T), wanted = std::max<size_t>(4, 2 * list.size());
    hold(wanted * sizeof(T));  // beside the old one
    list.reserve(wanted);
    let_go(old);
    held += wanted * sizeof(T) - old;
  }

 private:
  void look();

  const JinjaCaller& caller_;
  const double start_;  // s of this thread's work
  int64_t steps_ = 0, next_look_ = 0;
  size_t owed_ = 0;             // bytes below a step
  size_t held_ = 0, paid_ = 0;  // bytes: now, and taken from the share
};

// Memory that is held until this is destroyed.
class Held {
 public:
  Held(Meter& meter, size_t bytes) : meter_(meter), bytes_(bytes) { meter.hold(bytes); }
  ~Held() { meter_.let_go(bytes_); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  Meter& meter_;
  const size_t bytes_;
};

// A text while it is made: pays for its bytes as it grows.
class TextMade {
 public:
  explicit TextMade(Meter& meter) : meter_(meter) {}
  ~TextMade() { meter_.let_go(held_); }
  TextMade(const TextMade&) = delete;
  TextMade& operator=(const TextMade&) = delete;

  Meter& meter() { return meter_; }
  void add(std::string_view more);
  void add(char c) { add(std::string_view(&c, 1)); }
  std::string_view view() const { return text_; }
  // Returns the text, and the bytes held for it, which the caller releases.
  std::pair<std::string, size_t> take() { return {std::move(text_), std::exchange(held_, 0)}; }

 private:
  Meter& meter_;
  std::string text_;
  size_t held_ = 0;
};

}  // namespace split::jinja
