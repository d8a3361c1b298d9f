#include "base/log.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <utility>

#include "base/json.h"
#include "base/plain_words.h"

namespace split {
namespace {

std::atomic<LogFormat> format_now{LogFormat::kPlain};
std::atomic<uint64_t> dropped{0};
thread_local LogNames current;

// ,"name":"value"
void add(std::string& line, std::string_view name, std::string_view value) {
  line.append(",\"").append(name).append("\":").append(Json(value).dump());
}

std::string in_words(const tm& time, const char* words) {
  std::array<char, 64> text{};
  return {text.data(), std::strftime(text.data(), text.size(), words, &time)};
}

// {"time":"2026-01-31T12:00:00.123Z","level":"error"
std::string begun(std::string_view level) {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  tm utc{};
  ::gmtime_r(&now.tv_sec, &utc);
  std::string line = in_words(utc, "{\"time\":\"%FT%T.");
  const std::string ms = std::to_string(1000 + now.tv_nsec / 1000000);
  return line.append(ms, 1).append("Z\",\"level\":\"").append(level).append("\"");
}

// "2026-01-31 12:00:00 "
std::string date() {
  const time_t now = std::time(nullptr);
  tm local{};
  ::localtime_r(&now, &local);
  return in_words(local, "%F %T ");
}

void add_number(std::string& line, std::string_view name, double number) {
  constexpr double kThousandths = 1e3;
  const double rounded =
      std::isfinite(number) ? std::round(number * kThousandths) / kThousandths : 0.0;
  std::array<char, 400> digits{};
  const auto end =
      std::to_chars(digits.data(), digits.data() + digits.size(), rounded, std::chars_format::fixed)
          .ptr;
  line.append(",\"").append(name).append("\":").append(digits.data(), end);
}

}  // namespace

void set_log_format(LogFormat format) { format_now = format; }
LogFormat log_format() { return format_now; }

bool log_has_room() {
  // A writable pipe takes PIPE_BUF bytes, more than a line has.
  pollfd poll{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&poll, 1, 0) > 0) return true;
  dropped.fetch_add(1, std::memory_order_relaxed);
  return false;
}

uint64_t take_dropped_lines() { return dropped.exchange(0, std::memory_order_relaxed); }

void write_log(std::string_view line) {
  std::string before;
  if (log_format() == LogFormat::kNone) return;
  if (log_format() != LogFormat::kPlain) {
    if (!log_has_room()) return;
    const uint64_t lost = take_dropped_lines();
    if (lost > 0) before = log_line("info", std::to_string(lost) + " lines of log were dropped");
  }
  if (!before.empty()) {
    before.append(line);
    line = before;
  }
  // A closed or full stderr is no reason to stop.
  [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, line.data(), line.size());
}

std::string log_line(std::string_view level, std::string_view message) {
  if (log_format() == LogFormat::kJson) {
    std::string line = begun(level);
    add(line, "message", one_layer(message));
    if (!current.request.empty()) add(line, "request", current.request);
    return line.append("}\n");
  }
  const bool dated = log_format() == LogFormat::kText;
  std::string line = dated ? date() : "";
  if (level != "info") line.append(level).append(": ");
  line.append(dated ? one_layer(message) : plain_words(message));
  if (level != "info" && !current.request.empty()) {
    line.append(" (request ").append(current.request).append(")");
  }
  return line.append("\n");
}

std::string event_line(std::string_view event, std::initializer_list<LogField> fields) {
  std::string line = begun("info");
  add(line, "event", event);
  for (const LogField& field : fields) {
    if (const auto* text = std::get_if<std::string_view>(&field.value)) {
      add(line, field.name, *text);
    } else {
      add_number(line, field.name, std::get<double>(field.value));
    }
  }
  return line.append("}\n");
}

void log_info(std::string_view message) { write_log(log_line("info", message)); }
void log_warning(std::string_view message) { write_log(log_line("warning", message)); }
void log_error(std::string_view message) { write_log(log_line("error", message)); }

LogNames exchange_log_names(const LogNames& names) { return std::exchange(current, names); }

LogScope::LogScope(std::string_view request, std::string_view trace)
    : outer_(exchange_log_names({request, trace})) {}
LogScope::~LogScope() { exchange_log_names(outer_); }
std::string_view log_trace() { return current.trace; }

int debug_level() {
  static const int level = [] {
    const char* text = std::getenv("SPLIT_DEBUG");
    return text == nullptr ? 0 : std::atoi(text);
  }();
  return level;
}

}  // namespace split
