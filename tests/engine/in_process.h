// http::Client without HTTP: what is asked of an address here is answered by a router in this
// process, on the thread that asks. A program that links in_process.cpp has this client in place of
// common/http/client.cpp.
#pragma once

#include <atomic>

#include "http/router.h"

namespace split::test {

// Answers "http://cloud" for as long as it lives. One at a time.
class InProcess {
 public:
  explicit InProcess(http::Router& router);
  ~InProcess();
  InProcess(const InProcess&) = delete;
  InProcess& operator=(const InProcess&) = delete;

  http::Router& router;
  std::atomic<bool> lost{false};  // nobody answers
  std::atomic<int> asked{0};      // requests that were answered
};

}  // namespace split::test
