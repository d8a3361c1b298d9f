// http/: names whose resolver is silent. getaddrinfo() is this program's own, which keeps one name
// waiting until the test lets it go.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netdb.h>

#include <condition_variable>
#include <future>
#include <mutex>

#include "http/client.h"
#include "support/http_peer.h"

namespace {

constexpr std::string_view kSilent = "silent.invalid";

struct Resolver {
  std::mutex mutex;
  std::condition_variable changed;
  bool answers = false;
  int asked = 0;

  void ask() {
    std::unique_lock lock(mutex);
    ++asked;
    changed.notify_all();
    // Bounded, so that a client that waits for it fails and does not hang.
    changed.wait_for(lock, std::chrono::seconds(60), [&] { return answers; });
    answers = true;
  }
  int wait_until_asked() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return asked > 0; });
    return asked;
  }
  bool is_silent() {
    const std::lock_guard lock(mutex);
    return !answers;
  }
  void answer() {
    const std::lock_guard lock(mutex);
    answers = true;
    changed.notify_all();
  }
};
// One for each test, and for the threads that wait for it longer.
std::shared_ptr<Resolver> resolver;

}  // namespace

extern "C" int getaddrinfo(const char* name, const char* service, const addrinfo* hints,
                           addrinfo** list) {
  static const auto real =
      reinterpret_cast<decltype(&getaddrinfo)>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  const bool numeric = hints != nullptr && (hints->ai_flags & AI_NUMERICHOST) != 0;
  if (name == nullptr || name != kSilent || numeric) return real(name, service, hints, list);
  const std::shared_ptr<Resolver> mine = resolver;
  mine->ask();
  return real("127.0.0.1", service, hints, list);
}

namespace split::http {
namespace {

class HttpResolver : public ::testing::Test {
 protected:
  HttpResolver() { resolver = std::make_shared<Resolver>(); }
  ~HttpResolver() override { resolver->answer(); }
  std::string url() const { return cat("http://", kSilent, ":", running_.port); }
  std::string failure(std::string_view what) const { return cat("[http] ", url(), ": ", what); }
  static Client::Options soon() {
    Client::Options options;
    options.connect_timeout = std::chrono::milliseconds(50);
    return options;
  }
  static std::string error_of(Client& client) {
    try {
      client.request("GET", "/hi");
    } catch (const NoReply& error) {
      return error.what();
    }
    return "";
  }

 private:
  const Running running_{{}, [](Server& server) {
                           server.route("GET", "/hi",
                                        [](const Request&) { return Response::text(200, "hi"); });
                         }};
};

TEST_F(HttpResolver, ANameHasItsDeadline) {
  Client client(url(), soon());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(error_of(client), failure("cannot connect: no answer from the resolver"));
  }
  EXPECT_EQ(resolver->wait_until_asked(), 1);  // all wait for the same answer
  resolver->answer();
  Client patient(url());
  EXPECT_EQ(patient.request("GET", "/hi").body, "hi");
}

TEST_F(HttpResolver, AnAnswerThatComesLateIsTaken) {
  Client client(url(), soon());
  EXPECT_EQ(error_of(client), failure("cannot connect: no answer from the resolver"));
  resolver->answer();
  while (!error_of(client).empty()) continue;
  EXPECT_EQ(resolver->wait_until_asked(), 1);
}

TEST_F(HttpResolver, CancelEndsTheWaitForAName) {
  Client client(url());
  auto error = std::async(std::launch::async, [&] { return error_of(client); });
  resolver->wait_until_asked();
  client.cancel();
  EXPECT_EQ(error.get(), failure("cancelled"));
  EXPECT_TRUE(resolver->is_silent());
}

TEST_F(HttpResolver, ASilentServersNameIsNotWaitedFor) {
  Client client(url());
  client.on_silence([] { return true; });
  EXPECT_EQ(error_of(client), failure("it does not answer"));
}

}  // namespace
}  // namespace split::http
