#include "base/system/process.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>

namespace split {
namespace {

// Returns the n-th field, from 0, after the name in /proc/self/stat; 0 if there is none.
double stat_field(int n) {
  std::ifstream file("/proc/self/stat");
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) return 0;
  size_t at = name_end + 2;
  for (int i = 0; i < n && at != std::string::npos; ++i) {
    at = text.find(' ', at);
    if (at != std::string::npos) ++at;
  }
  return at == std::string::npos ? 0 : std::strtod(text.c_str() + at, nullptr);
}

double ticks_to_seconds(double ticks) {
  return ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

}  // namespace

double process_cpu_seconds() { return ticks_to_seconds(stat_field(11) + stat_field(12)); }
double process_resident_bytes() {
  return stat_field(21) * static_cast<double>(::sysconf(_SC_PAGESIZE));
}
double process_virtual_bytes() { return stat_field(20); }
double process_threads() { return stat_field(17); }

// Without std::filesystem, whose iterator ends the process when out of memory.
double process_open_files() {
  const std::unique_ptr<DIR, int (*)(DIR*)> files(::opendir("/proc/self/fd"), ::closedir);
  double count = 0;
  while (const dirent* file = files == nullptr ? nullptr : ::readdir(files.get())) {
    if (file->d_name[0] != '.') ++count;
  }
  return count;
}

double process_most_files() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<double>(limit.rlim_cur);
}

double process_start() {
  std::ifstream file("/proc/stat");
  std::string word;
  double booted = 0;
  while (file >> word) {
    if (word == "btime") file >> booted;
  }
  return booted + ticks_to_seconds(stat_field(19));
}

}  // namespace split
