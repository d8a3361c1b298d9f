#include "edge_client/cli/trainer_program.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "base/error.h"
#include "base/file.h"

extern char** environ;

namespace split::edge {
namespace {

namespace fs = std::filesystem;

// The arguments as the system takes them; they point into `program` and `arguments`.
std::vector<char*> pointers(const std::string& program, std::span<const std::string> arguments) {
  std::vector<char*> all = {const_cast<char*>(program.c_str())};
  for (const std::string& one : arguments) all.push_back(const_cast<char*>(one.c_str()));
  all.push_back(nullptr);
  return all;
}

}  // namespace

fs::path trainer_program() {
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const fs::path& path :
       {folder / "edge_train", folder.parent_path() / "libexec/splitcompute/edge_train"}) {
    if (::access(path.c_str(), X_OK) == 0) return path;
  }
  return {};
}

int become_trainer(std::span<const std::string> arguments) {
  const std::string program = trainer_program().string();
  if (!program.empty()) ::execv(program.c_str(), pointers(program, arguments).data());
  throw Error(ErrorKind::kIo,
              program.empty() ? "train: edge_train is not beside this program; scripts/build.sh "
                                "edge_train builds it"
                              : cat(program, ": ", errno_text(errno)));
}

std::string ask_trainer(const fs::path& program, std::span<const std::string> arguments) {
  const std::string name = program.string();
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw Error(ErrorKind::kIo, errno_text(errno));
  const Fd output(ends[0]);
  Fd input(ends[1]);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
    ::posix_spawn_file_actions_adddup2(&actions, ends[1], stream);
  }
  pid_t child = 0;
  const int failed = ::posix_spawn(&child, name.c_str(), &actions, nullptr,
                                   pointers(name, arguments).data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) throw Error(ErrorKind::kIo, cat(name, ": ", errno_text(failed)));
  input.reset();
  std::string said;
  char some[512];
  for (ssize_t n = 0; (n = ::read(output.get(), some, sizeof some)) != 0;) {
    if (n < 0 && errno != EINTR) break;
    if (n > 0) said.append(some, static_cast<size_t>(n));
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  while (said.ends_with('\n')) said.pop_back();
  said.erase(0, said.rfind('\n') + 1);
  if (status != 0) throw Error(ErrorKind::kDevice, said.empty() ? name + " failed" : said);
  return said;
}

}  // namespace split::edge
