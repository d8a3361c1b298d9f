// http/: each allocation of a server's loop and workers fails once, in turn: one request or
// connection ends, the process and the next request do not.
#include <gtest/gtest.h>
#include <openssl/crypto.h>

#include <system_error>

#include "support/failing_memory.h"
#include "support/http_peer.h"
#include "support/temporary_folder.h"
#include "support/tls_testing.h"

namespace split::http {
namespace {

using test::allocation_fails;
using test::of_the_test;
auto& left = test::allocations_left;

void* tls_malloc(size_t size, const char*, int) {
  return allocation_fails() ? nullptr : std::malloc(size);
}
void* tls_realloc(void* memory, size_t size, const char*, int) {
  return allocation_fails() ? nullptr : std::realloc(memory, size);
}
void tls_free(void* memory, const char*, int) { std::free(memory); }

void add_routes(Server& server) {
  server.route({.method = "GET", .path = "/livez", .on_loop = true, .handler = [](const Request&) {
                  return Response::text(200, "a text that is too long for a string's own room\n");
                }});
  server.route("POST", "/echo", [](const Request& r) { return Response::text(200, r.body); });
  server.route("GET", "/large",
               [](const Request&) { return Response::text(200, std::string(6 << 20, 'z')); });
  server.route("GET", "/stream", [](const Request&) {
    return Response::events([made = 0](Sink& sink) mutable {
      for (; made < 600 && !sink.full(); ++made) sink.write(std::string(10'000, 's'));
      return made < 600 ? Streamed::kMore : Streamed::kDone;
    });
  });
}

class HttpMemory : public ::testing::Test {
 protected:
  HttpMemory() { of_the_test = true; }
  // Asks again and again, and lets one allocation more succeed each time, until none fails. How the
  // one before ended the next one does not know.
  void expect_survives(Running& running, const std::string& bytes, const TlsContext* tls = nullptr,
                       bool reads_late = false) {
    for (long nth = 0; nth < 5000; ++nth) {
      left = nth;
      {
        Peer peer(running.port, tls);
        peer.say(bytes);
        if (reads_late) {
          peer.until("\r\n\r\n");
          while (running.server.stats().inflight != 0) std::this_thread::yield();
        }
        peer.to_end();
      }
      while (running.server.stats().connections != 0) std::this_thread::yield();
      const bool failed = left.exchange(-1) < 0;
      while (running.server.stats().inflight != 0) std::this_thread::yield();
      const std::string good = last_words(
          running.port, post("Content-Length: 5\r\nConnection: close\r\n", "hello"), tls);
      ASSERT_TRUE(good.ends_with("\r\n\r\nhello")) << "after the " << nth << "th: " << good;
      if (!failed) {
        EXPECT_GT(nth, 5);
        return;
      }
    }
    FAIL() << "allocations without end";
  }
};

TEST_F(HttpMemory, AFailureEndsOneRequest) {
  Running running({}, add_routes);
  const char* const close = "Connection: close\r\n";
  expect_survives(running,
                  post(cat("Content-Length: 100000\r\n", close), std::string(100000, 'x')));
  expect_survives(running, get("/livez", close));
  expect_survives(running, get("/none", close));
  expect_survives(running, "GET nonsense HTTP/1.1\r\nHost: x\r\n\r\n");
  expect_survives(running, get("/livez") + get("/livez") + get("/livez", close));
}

TEST_F(HttpMemory, AFailureEndsOneAnswerThatIsReadLate) {
  Running running({}, add_routes);
  const char* const close = "Connection: close\r\n";
  expect_survives(running, get("/large", close), nullptr, true);
  expect_survives(running, get("/stream", close), nullptr, true);
}

// No worker's report tells when to try again: there is none.
TEST_F(HttpMemory, AFailureInAStreamIsMadeGoodLater) {
  Running running({}, add_routes);
  for (long nth = 0; nth < 12; ++nth) {
    Peer peer(running.port);
    peer.say(get("/stream", "Connection: close\r\n"));
    peer.until("\r\n\r\n");
    while (running.server.stats().inflight != 0) std::this_thread::yield();
    left = nth;  // of the loop, and then of the worker that goes on
    peer.to_end();
    left = -1;
    while (running.server.stats().connections != 0) std::this_thread::yield();
  }
}

TEST_F(HttpMemory, AFailureInTlsEndsOneConnection) {
  const test::TemporaryFolder folder;
  const test::TlsFiles files(folder.path);
  Server::Options options;
  options.tls_cert_file = files.cert_file;
  options.tls_key_file = files.key_file;
  Running running(options, add_routes);
  const TlsContext context = tls_client_context(files.ca_file);
  expect_survives(running, post("Content-Length: 5\r\nConnection: close\r\n", "hello"), &context);
}

TEST_F(HttpMemory, NoThreadToBeHadIsSaidSo) {
  const Running running({}, [](Server& server) {
    server.route("GET", "/thread", [](const Request&) -> Response {
      throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
    });
  });
  const std::string answer = last_words(running.port, get("/thread", "Connection: close\r\n"));
  EXPECT_TRUE(says(answer, 503) && has(answer, "Retry-After: 1\r\n")) << answer;
}

}  // namespace
}  // namespace split::http

// OpenSSL takes its functions before it first allocates.
int main(int argc, char** argv) {
  using namespace split::http;
  if (::CRYPTO_set_mem_functions(tls_malloc, tls_realloc, tls_free) != 1) return 1;
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
