#include "base/log.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <ctime>

#include "base/json.h"

namespace split {
namespace {

std::atomic<LogFormat> log_format{LogFormat::kText};
thread_local std::string_view current_request;

void write_line(std::string line) {
  line += '\n';
  // stderr that is gone or full is no reason to stop.
  [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, line.data(), line.size());
}

// ,"name":"value"
void add(std::string& line, std::string_view name, std::string_view value) {
  line.append(",\"").append(name).append("\":").append(Json(value).dump());
}

// {"time":"2026-01-31T12:00:00.123Z","level":"error"
std::string begun(std::string_view level) {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  tm utc{};
  ::gmtime_r(&now.tv_sec, &utc);
  std::array<char, 64> text{};
  const size_t size = std::strftime(text.data(), text.size(), "{\"time\":\"%FT%T.", &utc);
  std::string line(text.data(), size);
  const std::string ms = std::to_string(1000 + now.tv_nsec / 1000000);
  return line.append(ms, 1).append("Z\",\"level\":\"").append(level).append("\"");
}

void write_message(std::string_view level, std::string_view message) {
  std::string line;
  if (log_format == LogFormat::kJson) {
    line = begun(level);
    add(line, "message", message);
    if (!current_request.empty()) add(line, "request", current_request);
    line += '}';
  } else {
    if (level != "info") line.append(level).append(": ");
    line.append(message);
    if (level != "info" && !current_request.empty()) {
      line.append(" (request ").append(current_request).append(")");
    }
  }
  write_line(std::move(line));
}

}  // namespace

void set_log_format(LogFormat format) { log_format = format; }

void log_info(std::string_view message) { write_message("info", message); }
void log_warning(std::string_view message) { write_message("warning", message); }
void log_error(std::string_view message) { write_message("error", message); }

void log_event(std::string_view event, std::initializer_list<LogField> fields) {
  if (log_format != LogFormat::kJson) return;
  std::string line = begun("info");
  add(line, "event", event);
  for (const LogField& field : fields) {
    if (const auto* text = std::get_if<std::string_view>(&field.value)) {
      add(line, field.name, *text);
      continue;
    }
    const double number = std::get<double>(field.value);
    std::array<char, 32> digits{};
    const auto end =
        std::to_chars(digits.begin(), digits.end(), std::isfinite(number) ? number : 0.0).ptr;
    line.append(",\"").append(field.name).append("\":").append(digits.begin(), end);
  }
  write_line(line + "}");
}

LogScope::LogScope(std::string_view request) : outer_(current_request) {
  current_request = request;
}
LogScope::~LogScope() { current_request = outer_; }

int debug_level() {
  static const int level = [] {
    const char* text = std::getenv("SPLIT_DEBUG");
    return text == nullptr ? 0 : std::atoi(text);
  }();
  return level;
}

}  // namespace split
