// One line per event on stderr. No line ever holds a prompt, a token, a key or a hidden state.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

namespace split {

// kText: what happens, for people; requests are not events. kJson: every event is one JSON object,
// requests too: {"time","level","message" or "event","request",...}.
enum class LogFormat { kText, kJson };
void set_log_format(LogFormat format);

// Each writes one line in one write(2), so that lines of several threads do not mix.
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
// An event for machines: a line in kJson, nothing in kText.
void log_event(std::string_view event, std::initializer_list<LogField> fields);

// While it lives, warnings and errors of this thread name the request that they are about.
class LogScope {
 public:
  explicit LogScope(std::string_view request);
  ~LogScope();
  LogScope(const LogScope&) = delete;
  LogScope& operator=(const LogScope&) = delete;

 private:
  std::string_view outer_;
};

// SPLIT_DEBUG from the environment: 0 silent (default), 1 programs, 2 time per step, 3 graph, 4
// GLSL.
int debug_level();

}  // namespace split
