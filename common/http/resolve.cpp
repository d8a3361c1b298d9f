#include "http/resolve.h"

#include <sys/eventfd.h>

#include <thread>

#include "base/resources/threads.h"

namespace split::http {
namespace {

NameLookup::Found resolved(const std::string& host, int port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | flags;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  return {error, NameLookup::Addresses(list, [](addrinfo* all) {
            if (all != nullptr) ::freeaddrinfo(all);
          })};
}

}  // namespace

NameLookup::NameLookup(const std::string& host, int port) : state_(std::make_shared<State>()) {
  state_->done = expect_fd(::eventfd(0, EFD_CLOEXEC), "an event");
  const auto look = [state = state_, host, port](int flags) {
    Found found = resolved(host, port, flags);
    if (found.error != 0 && (flags & AI_NUMERICHOST) != 0) return false;
    state->found.set_value(std::move(found));
    wake_reader(state->done);
    return true;
  };
  std::thread thread;
  if (look(AI_NUMERICHOST)) return;  // without a thread
  if (try_start(thread, [look] { look(0); })) {
    thread.detach();
  } else {
    look(0);
  }
}

}  // namespace split::http
