// Resolves a host's name on a thread of its own: the system's resolver can neither be cancelled nor
// be told a deadline, and one whose servers are silent takes half a minute. Knows no HTTP. Private
// to common/http.
#pragma once

#include <netdb.h>

#include <future>
#include <memory>
#include <string>

#include "base/file.h"

namespace split::http {

// One lookup, from the moment it is made. One thread at a time.
class NameLookup {
 public:
  using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;
  struct Found {
    int error;  // of getaddrinfo()
    Addresses list;
  };

  NameLookup(const std::string& host, int port);
  int fd() const { return state_->done.get(); }              // readable once take() does not wait
  Found take() { return state_->found.get_future().get(); }  // once

 private:
  struct State {
    Fd done;
    std::promise<Found> found;
  };
  std::shared_ptr<State> state_;  // also the thread's, which may outlive this
};

}  // namespace split::http
