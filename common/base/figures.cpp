#include "base/figures.h"

#include <cstdio>
#include <ctime>

#include "base/error.h"

namespace split {

std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string human_bytes(uint64_t bytes) {
  if (bytes < 1000) return cat(bytes, " B");
  double value = static_cast<double>(bytes);
  const char* unit = "";
  for (const char* next : {"kB", "MB", "GB", "TB"}) {
    if (value < 1000) break;
    value /= 1000;
    unit = next;
  }
  return cat(fixed(value, value < 100 ? 1 : 0), " ", unit);
}

std::string utc_text(int64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm parts{};
  ::gmtime_r(&time, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%SZ", &parts);
  return text;
}

}  // namespace split
