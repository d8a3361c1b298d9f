// http/: a handler that finds no descriptor, and one that never returns when the program is to end.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <future>

#include "program/interrupt.h"
#include "support/http_peer.h"

namespace split::http {
namespace {

TEST(HttpScarcity, NoDescriptorForAHandlerIsSaidSo) {
  const Running running({}, [](Server& server) {
    server.route("GET", "/file", [](const Request&) {
      rlimit limit{};
      ::getrlimit(RLIMIT_NOFILE, &limit);
      const std::shared_ptr<void> again(nullptr,
                                        [=](void*) { ::setrlimit(RLIMIT_NOFILE, &limit); });
      const rlimit none{0, limit.rlim_max};
      ::setrlimit(RLIMIT_NOFILE, &none);
      MappedFile::in_memory({});
      return Response::text(200, "");
    });
  });
  const std::string answer = last_words(running.port, get("/file", "Connection: close\r\n"));
  EXPECT_TRUE(says(answer, 503) && has(answer, "Retry-After: 1\r\n")) << answer;
  EXPECT_TRUE(has(answer, "too many open files")) << answer;
}

[[noreturn]] void serve_what_never_ends() {
  ::alarm(60);  // for a program that does not end
  Interrupt interrupt;
  const SignalWatch watch(interrupt, std::chrono::seconds(0));
  std::promise<void> entered;
  Running running({.shutdown_timeout = std::chrono::milliseconds(0)}, [&](Server& server) {
    server.route("GET", "/never", [&](const Request&) {
      entered.set_value();
      std::promise<void>().get_future().wait();
      return Response::text(200, "");
    });
  });
  const Interrupt::Hook stop(interrupt, [&] { running.server.stop(); });
  Peer peer(running.port);
  peer.say(get("/never"));
  entered.get_future().wait();
  ::kill(::getpid(), SIGTERM);
  running.stop();
  ::_exit(1);
}

TEST(HttpScarcityDeathTest, TheFirstSignalEndsAProgramWhoseHandlerNeverReturns) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(serve_what_never_ends(), ::testing::ExitedWithCode(0), "is abandoned");
}

}  // namespace
}  // namespace split::http
