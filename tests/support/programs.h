// The built binaries as a user runs them: a process with pipes at its ends, a cloud_server on a
// free port, an edge_client and what it prints, and a relay between the two that listens. Every
// wait is for a condition and has a deadline; every process is ended by its pid.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/file.h"
#include "http/client.h"

extern char** environ;

namespace split::test {

using Json = nlohmann::json;
using Arguments = std::vector<std::string>;

constexpr std::chrono::seconds kDeadline{120};  // a test that waits this long has failed

inline std::string program_path(const std::string& name) {
  return std::string(SPLIT_BINARIES) + "/" + name;
}

struct Folder {
  std::filesystem::path path;
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "split-pair-XXXXXX").string();
    CHECK(::mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
};

// A process of ours, without the caller's SPLIT_ variables. One thread at a time.
class Process {
 public:
  // argv[0] is a path, or a name that is looked up. `input` becomes stdin, else that is empty.
  explicit Process(Arguments argv, Arguments environment = {},
                   const std::string& input = "/dev/null")
      : name_(argv[0]) {
    int out[2], err[2];
    CHECK(::pipe2(out, O_CLOEXEC) == 0 && ::pipe2(err, O_CLOEXEC) == 0);
    out_.fd = Fd(out[0]);
    err_.fd = Fd(err[0]);
    const Fd out_end(out[1]), err_end(err[1]);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, input.c_str(), O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions, out_end.get(), STDOUT_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, err_end.get(), STDERR_FILENO);
    // Never the user's own cache.
    if (std::ranges::none_of(environment, [](const std::string& variable) {
          return variable.starts_with("XDG_CACHE_HOME=");
        })) {
      environment.push_back("XDG_CACHE_HOME=" + program_path("../test-cache"));
    }
    for (char** variable = environ; *variable != nullptr; ++variable) {
      const std::string_view text = *variable;
      if (!text.starts_with("SPLIT_") && !text.starts_with("XDG_CACHE_HOME=")) {
        environment.emplace_back(text);
      }
    }
    std::vector<char*> arguments, variables;
    for (std::string& text : argv) arguments.push_back(text.data());
    for (std::string& text : environment) variables.push_back(text.data());
    arguments.push_back(nullptr);
    variables.push_back(nullptr);
    const int error = ::posix_spawnp(&pid_, argv[0].c_str(), &actions, nullptr, arguments.data(),
                                     variables.data());
    ::posix_spawn_file_actions_destroy(&actions);
    if (error != 0) throw Error(ErrorKind::kIo, cat(argv[0], ": ", errno_text(error)));
  }
  ~Process() { kill(); }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  const std::string& out() const { return out_.text; }  // so far; whole after wait()
  const std::string& err() const { return err_.text; }
  void signal(int number) const {
    ASSERT_GT(pid_, 0) << name_ << " has ended";  // kill(-1) would be everybody's end
    ::kill(pid_, number);
  }
  void close_out() { out_.fd.reset(); }

  // Reads until `condition` holds; false when all was read, or time is over, and it does not.
  bool until(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + kDeadline;
    while (!condition()) {
      if (!out_.fd && !err_.fd) return false;
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          end - std::chrono::steady_clock::now());
      pollfd fds[2] = {{out_.fd.get(), POLLIN, 0}, {err_.fd.get(), POLLIN, 0}};
      if (left.count() <= 0 || ::poll(fds, 2, static_cast<int>(left.count())) == 0) {
        ADD_FAILURE() << name_ << " was still waited for after " << kDeadline.count() << " s";
        kill();
        return false;
      }
      for (int i = 0; i < 2; ++i) {
        if (fds[i].revents != 0) (i == 0 ? out_ : err_).more();
      }
    }
    return true;
  }
  // Its exit code, or minus the signal that ended it.
  int wait() {
    until([] { return false; });
    return reap();
  }
  int kill() {
    if (pid_ > 0) ::kill(pid_, SIGKILL);
    return reap();
  }

 private:
  struct End {
    void more() {
      char buffer[65536];
      const ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
      if (n > 0) text.append(buffer, static_cast<size_t>(n));
      if (n == 0 || (n < 0 && errno != EINTR)) fd.reset();
    }
    Fd fd;
    std::string text;
  };
  int reap() {
    if (pid_ > 0) {
      int status = 0;
      while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) continue;
      pid_ = -1;
      code_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }
    return code_;
  }
  const std::string name_;
  pid_t pid_ = -1;
  int code_ = 0;
  End out_, err_;
};

// A cloud_server; after again() another one on the same port, which nobody else gets meanwhile.
class CloudProcess {
 public:
  explicit CloudProcess(Arguments arguments)
      : arguments_(std::move(arguments)),
        scheme_(std::ranges::count(arguments_, "--tls-cert") > 0 ? "https" : "http") {
    const int yes = 1;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    CHECK(::setsockopt(kept_.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
          ::bind(kept_.get(), any, size) == 0 && ::getsockname(kept_.get(), any, &size) == 0);
    port_ = ntohs(address.sin_port);
    again();
  }

  int port() const { return port_; }
  std::string url() const { return cat(scheme_, "://127.0.0.1:", port_); }
  Process& process() { return *process_; }
  // Begins another one where it has ended, and lets it run where it was stopped.
  void go_on() {
    if (process_->pid() > 0) return process_->signal(SIGCONT);
    again();
  }
  void again() {
    // One place for all tests: what is converted there once serves every server after it.
    Arguments argv = {program_path("cloud_server"), "--port", cat(port_), "--blob-cache",
                      program_path("../test-blobs")};
    argv.insert(argv.end(), arguments_.begin(), arguments_.end());
    process_ = std::make_unique<Process>(std::move(argv));
    const std::string mark = cat("listening on ", scheme_, "://127.0.0.1:");
    size_t at = 0;
    const bool up = process_->until([&] {
      at = process_->err().find(mark);
      return at != std::string::npos && process_->err().find('\n', at) != std::string::npos;
    });
    if (!up) throw Error(ErrorKind::kIo, cat("cloud_server does not listen: ", process_->err()));
    CHECK(port_ == std::atoi(process_->err().c_str() + at + mark.size()));
  }

 private:
  // Bound, and never listening.
  const Fd kept_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  const Arguments arguments_;
  const std::string scheme_;
  std::unique_ptr<Process> process_;
  int port_ = 0;
};

// The result of one run of edge_client.
struct EdgeResult {
  int code = 0;
  std::string out, err;
  Json json;  // of --json, when the run was good

  std::vector<int32_t> tokens() const { return json.at("tokens").get<std::vector<int32_t>>(); }
  std::string text() const { return json.at("text").get<std::string>(); }
  const Json& receipt(const char* key) const { return json.at("receipt").at(key); }
};

inline Arguments edge_command(const std::string& url, const Arguments& arguments) {
  Arguments argv = {program_path("edge_client"), "--server", url};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return argv;
}

// `home` holds the cache.
inline EdgeResult run_edge(const std::string& url, const Folder& home, const Arguments& arguments,
                           const std::string& input = "/dev/null") {
  Process process(edge_command(url, arguments), {cat("XDG_CACHE_HOME=", home.path.string())},
                  input);
  EdgeResult result;
  result.code = process.wait();
  result.out = process.out();
  result.err = process.err();
  if (result.code == 0 && result.out.starts_with("{")) result.json = Json::parse(result.out);
  return result;
}

// 0 when `command` is a program that can be run and ends well.
inline int exit_code(const Arguments& command) {
  try {
    return Process(command).wait();
  } catch (const Error&) {
    return 127;
  }
}

inline std::string list_of(std::span<const int32_t> ids) {
  std::string text;
  for (const int32_t id : ids) text += cat(text.empty() ? "" : ",", id);
  return text;
}

}  // namespace split::test
