// cloud_server as its users run it: the program beside this one, on a free port, and what the
// system says of its process.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/file.h"

namespace split::bench {

// One thread at a time.
class CloudProcess {
 public:
  // Starts it with these flags, --port among them, and waits until it is ready. Throws Error(kIo).
  explicit CloudProcess(std::vector<std::string> flags);
  ~CloudProcess();
  CloudProcess(const CloudProcess&) = delete;
  CloudProcess& operator=(const CloudProcess&) = delete;

  const std::string& url() const { return url_; }
  int port() const { return port_; }
  void kill();  // -9, and waits for its end

  double cpu_seconds() const;
  size_t threads() const;
  uint64_t resident_bytes() const;

 private:
  pid_t pid_ = -1;
  Fd err_;
  int port_ = 0;
  std::string url_;
};

}  // namespace split::bench
