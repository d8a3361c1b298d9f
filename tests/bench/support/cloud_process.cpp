#include "bench/support/cloud_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "http/client.h"

extern char** environ;

namespace split::bench {
namespace {

constexpr std::string_view kListening = "listening on http://";

std::string beside_this_program(const char* name) {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / name;
}

}  // namespace

CloudProcess::CloudProcess(std::vector<std::string> flags) {
  int ends[2];
  CHECK(::pipe2(ends, O_CLOEXEC) == 0);
  err_ = Fd(ends[0]);
  Fd err_end(ends[1]);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, err_end.get(), STDERR_FILENO);
  const std::string program = beside_this_program("cloud_server");
  flags.insert(flags.begin(), program);
  std::vector<char*> argv;
  for (std::string& flag : flags) argv.push_back(flag.data());
  argv.push_back(nullptr);
  const int error = ::posix_spawn(&pid_, program.c_str(), &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw Error(ErrorKind::kIo, cat("[bench] ", program, ": ", errno_text(error)));
  err_end.reset();

  std::string text;
  while (port_ == 0) {
    char buffer[4096];
    const ssize_t n = ::read(err_.get(), buffer, sizeof buffer);
    if (n <= 0) throw Error(ErrorKind::kIo, cat("[bench] cloud_server ended: ", text));
    text.append(buffer, static_cast<size_t>(n));
    const size_t at = text.find(kListening);
    if (at == std::string::npos || text.find('\n', at) == std::string::npos) continue;
    port_ = std::atoi(text.c_str() + text.find(':', at + kListening.size()) + 1);
  }
  url_ = cat("http://127.0.0.1:", port_);
  http::Client client(url_);
  while (client.request("GET", "/readyz").status != 200) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

CloudProcess::~CloudProcess() { kill(); }

void CloudProcess::kill() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
}

double CloudProcess::cpu_seconds() const {
  std::ifstream file(cat("/proc/", pid_, "/stat"));
  std::string text;
  std::getline(file, text);
  std::istringstream fields(text.substr(text.rfind(')') + 2));
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  double user = 0, system = 0;
  fields >> user >> system;
  return (user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

size_t CloudProcess::threads() const {
  const std::filesystem::directory_iterator tasks(cat("/proc/", pid_, "/task"));
  return static_cast<size_t>(std::distance(begin(tasks), end(tasks)));
}

uint64_t CloudProcess::resident_bytes() const {
  std::ifstream file(cat("/proc/", pid_, "/statm"));
  uint64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace split::bench
