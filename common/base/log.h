// One line per event on stderr. No line ever holds a prompt, a token, a key or a hidden state.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

namespace split {

// kNone: nothing, in another program's process. kPlain: a command's messages to its user. kText: a
// server's, for people: each line begins with "2026-01-31 12:00:00 ", local time. kJson: every
// event is one JSON object: {"time","level","message" or "event","request",...}, the time in UTC.
enum class LogFormat { kNone, kPlain, kText, kJson };
void set_log_format(LogFormat format);
LogFormat log_format();

// Write one line in one write(2), so that lines of several threads do not mix.
void log_info(std::string_view message);
void log_warning(std::string_view message);
void log_error(std::string_view message);

struct LogField {
  std::string_view name;
  std::variant<std::string_view, double> value;

  LogField(std::string_view name, std::string_view value) : name(name), value(value) {}
  template <typename Number>
  requires std::is_arithmetic_v<Number> LogField(std::string_view name, Number value)
      : name(name), value(static_cast<double>(value)) {}
};
// Return lines for a caller that writes them elsewhere, each with its line feed: a message at
// "info", "warning" or "error", and an event with its fields, JSON whatever the format. Numbers
// have at most three decimals.
std::string log_line(std::string_view level, std::string_view message);
std::string event_line(std::string_view event, std::initializer_list<LogField> fields);
void write_log(std::string_view line);

// Returns false while stderr is a pipe or a terminal that takes nothing, since no request may wait
// for the log's reader: a server's line is then dropped, and counted here.
bool log_has_room();
// Returns the number of dropped lines since the last call.
uint64_t take_dropped_lines();

// The subject of this thread's log lines; a fibre switches its own (base/web/fibres.cpp).
struct LogNames {
  std::string_view request, trace;
};
LogNames exchange_log_names(const LogNames& names);

// Names the request of this thread's warnings and errors while it lives; log_trace() is its `trace`
// (http/trace.h), which outlives this.
class LogScope {
 public:
  explicit LogScope(std::string_view request, std::string_view trace = {});
  ~LogScope();
  LogScope(const LogScope&) = delete;
  LogScope& operator=(const LogScope&) = delete;

 private:
  LogNames outer_;
};
std::string_view log_trace();  // empty: none

// SPLIT_DEBUG from the environment: 0 silent (default), 1 programs, 2 time per step, 3 graph, 4
// GLSL.
int debug_level();

}  // namespace split
