// http/: each allocation of a server's loop and workers fails once, in turn: one request or
// connection ends, the process and the next request do not.
#include <gtest/gtest.h>
#include <malloc.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <sys/socket.h>

#include <system_error>

#include "base/release.h"
#include "http/server/connection.h"
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

// Bytes that the allocator has given out.
size_t in_use() {
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

TEST_F(HttpMemory, ABodyIsNotCopiedAsItGrows) {
  Running running({}, [](Server& server) {
    server.route("POST", "/count",
                 [](const Request& r) { return Response::text(200, cat(r.body.size())); });
  });
  Peer peer(running.port);
  test::large_allocations = 0;
  peer.say(cat("POST /count HTTP/1.1\r\nHost: x\r\nContent-Length: ", 32 << 20, "\r\n\r\n"));
  peer.say(std::string(32 << 20, 'x'));
  EXPECT_EQ(body_of(peer.answer()), cat(32 << 20));
  EXPECT_LE(test::large_allocations, 2);  // the last that doubled, and its own
}

TEST_F(HttpMemory, ARefusedBodyIsFreedBeforeItsShareIsGivenBack) {
  MemoryBudget memory(24 << 20);
  Running running({.memory = &memory}, add_routes);
  const size_t before = in_use();
  std::vector<Peer> peers;
  for (int i = 0; i < 3; ++i) {  // and they stay
    peers.emplace_back(running.port);
    peers.back().say(
        cat("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: ", 64 << 20, "\r\n\r\n"));
    const std::string piece(64 << 10, 'x');
    for (int sent = 0; sent < 32 << 20; sent += 64 << 10) {
      pollfd ready{peers.back().fd(), POLLIN, 0};
      if (::poll(&ready, 1, 0) > 0) break;
      peers.back().say(piece);
    }
    EXPECT_TRUE(says(peers.back().answer(), 503));
    while (memory.used() != 0) std::this_thread::yield();
    EXPECT_LT(in_use(), before + (4 << 20)) << i;
  }
}

TEST_F(HttpMemory, AHandledBodyIsFreedBeforeItsAnswerIsSent) {
  std::atomic<size_t> capacity{SIZE_MAX};
  Running running({}, [&](Server& server) {
    add_routes(server);
    server.router().add_observer(
        [&](const Request& request, const Answered&) { capacity = request.body.capacity(); });
  });
  last_words(running.port,
             post("Content-Length: 100000\r\nConnection: close\r\n", std::string(100000, 'x')));
  running.stop();
  EXPECT_EQ(capacity, std::string().capacity());
}

TEST_F(HttpMemory, AStreamThatIsTakenKeepsNoBuffer) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  Connection connection;
  connection.fd = Fd(ends[0]);
  const Peer reader{Fd(ends[1])};
  Outgoing out({std::chrono::seconds(10), 1});
  const size_t before = in_use();
  out.add(std::string(1 << 20, 'x'));
  EXPECT_GT(in_use(), before + (1 << 19));
  std::string taken(1 << 20, 0);
  while (!out.empty()) {
    EXPECT_NE(out.send_some(connection, 1 << 20), Io::kGone);
    ::recv(reader.fd(), taken.data(), taken.size(), MSG_DONTWAIT);
  }
  release(taken);
  EXPECT_LT(in_use(), before + (1 << 16));
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
