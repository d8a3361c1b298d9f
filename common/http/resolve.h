// Resolves a host's name on a thread of its own: the system's resolver can neither be cancelled nor
// given a deadline, and takes half a minute if its servers are silent. Knows no HTTP. Private to
// common/http.
#pragma once

#include <netdb.h>

#include <future>
#include <memory>
#include <string>

#include "base/file.h"

namespace split::http {

// One lookup, begun by the constructor. One thread at a time.
class NameLookup {
 public:
  using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;
  struct Found {
    int error;  // getaddrinfo()'s
    Addresses list;
  };

  NameLookup(const std::string& host, int port);
  int fd() const { return state_->done.get(); }              // readable once take() does not block
  Found take() { return state_->found.get_future().get(); }  // call once

 private:
  struct State {
    Fd done;
    std::promise<Found> found;
  };
  std::shared_ptr<State> state_;  // shared with the thread, which may outlive this
};

}  // namespace split::http
