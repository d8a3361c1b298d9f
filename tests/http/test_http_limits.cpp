// http/: the server's caps and deadlines, stopping, streams, and the worker threads.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <future>
#include <latch>

#include "base/json.h"
#include "http/server/workers.h"
#include "support/http_peer.h"

#ifndef __SANITIZE_THREAD__  // which reads from its own write() what threads do in order
#define SPLIT_FAILS_WAKES
static std::atomic<bool> next_wake_fails{false};
extern "C" ssize_t write(int fd, const void* from, size_t size) {
  if (size == sizeof(uint64_t) && next_wake_fails.exchange(false)) {
    errno = EINTR;
    return -1;
  }
  return ::syscall(SYS_write, fd, from, size);
}
#endif

namespace split::http {
namespace {

using std::chrono::milliseconds;

void add_echo(Server& server) {
  server.route("GET", "/hi", [](const Request&) { return Response::text(200, "hi "); });
  server.route("POST", "/echo", [](const Request& r) { return Response::text(200, r.body); });
}

// Handlers that wait until the test lets them go.
struct Gate {
  std::promise<void> open;
  std::shared_future<void> opened = open.get_future().share();
  std::atomic<int> entered{0};
  void wait_for_entered(int n) const {
    while (entered < n) std::this_thread::yield();
  }
  Response pass() {
    ++entered;
    opened.wait();
    return Response::text(200, "passed");
  }
};

TEST(HttpServerLimits, EndsSlowHeadsAndBodies) {
  const Running running({.head_timeout = milliseconds(150), .body_timeout = milliseconds(150)},
                        add_echo);
  EXPECT_TRUE(says(last_words(running.port, "GET /hi HTTP/1.1\r\nHost"), 408));
  EXPECT_TRUE(says(last_words(running.port, post("Content-Length: 5\r\n", "hel")), 408));
  const Running idle({.idle_timeout = milliseconds(200)}, add_echo);
  EXPECT_EQ(last_words(idle.port, ""), "");  // closed without a word
  // One deadline for the whole head: bytes do not extend it.
  Peer drip(running.port);
  const auto start = std::chrono::steady_clock::now();
  std::thread feeder([&] {
    while (drip.say("X")) std::this_thread::yield();
  });
  const std::string answer = drip.until("\r\n\r\n");
  EXPECT_TRUE(says(answer, 408) || says(answer, 414)) << answer;
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
  feeder.join();
}

TEST(HttpServerLimits, CapsConnections) {
  Gate gate;
  const Running running({.max_connections = 3}, [&](Server& server) {
    add_echo(server);
    server.route("GET", "/gate", [&](const Request&) { return gate.pass(); });
  });
  std::vector<Peer> peers;
  for (int i = 0; i < 3; ++i) {
    peers.emplace_back(running.port);
    peers.back().say(get("/gate"));
    gate.wait_for_entered(i + 1);
  }
  const std::string answer = last_words(running.port, get("/hi"));
  EXPECT_TRUE(says(answer, 503) && has(answer, "Retry-After: 1\r\n")) << answer;
  const Running each({.max_per_address = 1, .least_idle = milliseconds(0)}, [&](Server& server) {
    add_echo(server);
    server.route("GET", "/gate", [&](const Request&) { return gate.pass(); });
  });
  Peer idle(each.port), busy(each.port);
  EXPECT_EQ(idle.to_end(), "");  // made room
  busy.say(get("/gate"));
  gate.wait_for_entered(4);
  EXPECT_TRUE(says(last_words(each.port, get("/hi")), 503));
  gate.open.set_value();
}

// Whoever came and asks nothing makes room for who comes: the one that waits longest.
TEST(HttpServerLimits, EndsTheLongestIdleConnectionForANewOne) {
  const Running running({.max_connections = 20, .least_idle = milliseconds(0)}, add_echo);
  std::vector<Peer> silent;
  for (int i = 0; i < 18; ++i) silent.emplace_back(running.port);
  while (running.server.stats().connections < 18) std::this_thread::yield();
  silent[0].say(get("/hi"));  // so that the second is the one that waits longest
  EXPECT_EQ(body_of(silent[0].answer()), "hi ");
  for (int i = 1; i < 10; ++i) {
    Peer next(running.port);
    next.say(get("/hi"));
    EXPECT_EQ(body_of(next.answer()), "hi ") << i;
    EXPECT_EQ(silent[static_cast<size_t>(i)].to_end(), "") << i;
    next.close();
    while (running.server.stats().connections > 17) std::this_thread::yield();
    silent.emplace_back(running.port);
    while (running.server.stats().connections < 18) std::this_thread::yield();
  }
  silent[0].say(get("/hi"));
  EXPECT_EQ(body_of(silent[0].answer()), "hi ");
}

Peer peer_from(const char* address, int port) {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in from{};
  from.sin_family = AF_INET;
  CHECK(::inet_pton(AF_INET, address, &from.sin_addr) == 1);
  CHECK(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&from), sizeof from) == 0);
  sockaddr_in to = from;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
  return Peer(std::move(fd));
}

// Clients that were refused and stay are not counted as connections, and few of them are kept.
TEST(HttpServerLimits, RefusedConnectionsTakeNobodysPlace) {
  Gate gate;
  const Running running({.max_connections = 16}, [&](Server& server) {
    add_echo(server);
    server.route("GET", "/gate", [&](const Request&) { return gate.pass(); });
  });
  std::vector<Peer> busy, refused;
  for (int i = 0; i < 16; ++i) {
    busy.emplace_back(running.port);
    busy.back().say(get("/gate"));
    gate.wait_for_entered(i + 1);
  }
  for (int i = 0; i < 50; ++i) {
    refused.emplace_back(running.port);
    EXPECT_TRUE(says(refused.back().answer(), 503)) << i;
  }
  EXPECT_LE(running.server.stats().connections, 16u + 2 + 1);  // an eighth, and who is refused now
  gate.open.set_value();
  for (Peer& peer : busy) EXPECT_EQ(body_of(peer.answer()), "passed");
  busy[0].close();
  while (running.server.stats().connections > 15u + 2) std::this_thread::yield();
  EXPECT_EQ(body_of(last_words(running.port, get("/hi", "Connection: close\r\n"))), "hi ");
}

// Whoever asks for more than an address may have ends nobody else's connections, and its refused
// ones take the place of its own.
TEST(HttpServerLimits, AnAddressAtItsLimitCostsOthersNothing) {
  Gate gate;
  const Running running(
      {.max_connections = 40, .max_per_address = 2, .least_idle = milliseconds(0)},
      [&](Server& server) {
        add_echo(server);
        server.route("GET", "/gate", [&](const Request&) { return gate.pass(); });
      });
  std::vector<Peer> others, busy, refused;
  for (int i = 0; i < 34; ++i) {  // with the two that are busy: nine tenths
    others.push_back(peer_from(cat("127.0.1.", i + 1).c_str(), running.port));
    while (running.server.stats().connections != others.size()) std::this_thread::yield();
  }
  for (int i = 0; i < 2; ++i) {
    busy.push_back(peer_from("127.0.2.1", running.port));
    busy.back().say(get("/gate"));
    gate.wait_for_entered(i + 1);
  }
  for (int i = 0; i < 30; ++i) {
    refused.push_back(peer_from("127.0.2.1", running.port));
    EXPECT_TRUE(says(refused.back().answer(), 503)) << i;
  }
  EXPECT_LE(running.server.stats().connections, others.size() + 2 + 1 + 1);
  for (Peer& other : others) {
    other.say(get("/hi"));
    EXPECT_EQ(body_of(other.answer()), "hi ");
  }
  gate.open.set_value();
}

// The worst moment to come: as many silent connections as there may be, and more, have just come.
TEST(HttpServerLimits, ANewClientIsAnsweredSoonBesideSilentOnes) {
  constexpr milliseconds kIdle{100};
  const Running running({.max_connections = 64, .least_idle = kIdle, .body_timeout = kIdle},
                        add_echo);
  Peer clock(running.port);
  clock.say("P");  // asks something: makes no room
  std::vector<Peer> silent;
  const auto come = [&] {
    silent.push_back(peer_from(cat("127.0.1.", silent.size() % 40 + 1).c_str(), running.port));
  };
  while (silent.size() < 100) come();
  while (running.server.stats().connections < 58) std::this_thread::yield();
  // Its body's deadline is when the oldest may have to make room, and not a moment later. Those
  // that were refused are still there: a refused connection is kept for a second.
  clock.say(post("Content-Length: 1\r\n", "").substr(1));
  EXPECT_TRUE(says(clock.answer(), 408));
  come();  // in the clock's place
  EXPECT_TRUE(has(last_words(running.port, get("/hi", "Connection: close\r\n")), "hi "));
}

TEST(HttpServerLimits, CapsBodiesOfAllRequestsTogether) {
  MemoryBudget memory(3000);
  const Running running({.memory = &memory}, add_echo);
  Peer one(running.port);
  one.say(post("Content-Length: 2500\r\nExpect: 100-continue\r\n", std::string(2000, 'a')));
  EXPECT_TRUE(says(one.until("\r\n\r\n"), 100));  // so these bytes are counted
  EXPECT_TRUE(says(
      last_words(running.port, post("Content-Length: 2900\r\n", std::string(2900, 'b'))), 503));
  one.say(std::string(500, 'a'));
  EXPECT_TRUE(says(one.answer(), 200));
  while (running.server.stats().inflight != 0) std::this_thread::yield();
  Peer again(running.port);
  again.say(post("Content-Length: 2900\r\n", std::string(2900, 'b')));  // the budget came back
  EXPECT_TRUE(says(again.answer(), 200));
}

// A client that comes straight back is waited for by the thread that answered: what it then says
// is read as ever.
TEST(HttpServerLimits, ReadACallerThatComesStraightBack) {
  const Running running({.max_head_bytes = 4096, .max_body_bytes = 1 << 20}, add_echo);
  const std::string large(1 << 20, 'z');
  const auto back = [&] {
    Peer peer(running.port);
    for (int i = 0; i < 4; ++i) {
      peer.say(get("/hi"));
      EXPECT_EQ(body_of(peer.answer()), "hi ");
    }
    return peer;
  };
  for (const size_t cut : {1, 20, 51, 54}) {  // in the head and in the body
    Peer peer = back();
    const std::string request = post("Content-Length: 5\r\n", "hello");
    peer.say(request.substr(0, cut));
    while (running.server.stats().inflight != 0) std::this_thread::yield();
    peer.say(request.substr(cut));
    EXPECT_EQ(body_of(peer.answer()), "hello");
  }
  Peer whole = back();
  whole.say("\r\n" + post(cat("Content-Length: ", large.size(), "\r\n"), large));
  EXPECT_TRUE(body_of(whole.answer()) == large);
  whole.say(get("/hi") + post("Content-Length: 5\r\n", "hello") + get("/none"));
  EXPECT_EQ(body_of(whole.answer()), "hi ");
  EXPECT_EQ(body_of(whole.answer()), "hello");
  EXPECT_TRUE(says(whole.answer(), 404));
  const std::pair<std::string, int> bad[] = {
      {get("/hi", "Content-Length: 1\r\n") + "x", 400},
      {post("Content-Length: 1\r\nContent-Length: 2\r\n", "xx"), 400},
      {get("/hi", "X: " + std::string(5000, 'x') + "\r\n"), 431},
      {post("Content-Length: 9999999\r\n", "x"), 413}};
  for (const auto& [bytes, status] : bad) {
    Peer peer = back();
    peer.say(bytes + get("/hi"));
    const std::string answer = peer.to_end();
    EXPECT_TRUE(says(answer, status) && !has(answer, "hi ")) << answer;
  }
  back().close();
  while (running.server.stats().connections != 1) std::this_thread::yield();  // `whole`
}

TEST(HttpServerLimits, GrowsWorkersThenRefuses) {
  Gate gate;
  const Running running({.max_inflight = 12, .idle_workers = 2, .queue = 1}, [&](Server& server) {
    server.route("GET", "/gate", [&](const Request&) { return gate.pass(); });
  });
  std::vector<Peer> peers;
  for (int i = 0; i < 12; ++i) {
    peers.emplace_back(running.port);
    peers.back().say(get("/gate"));
    gate.wait_for_entered(i + 1);  // each has a thread of its own
  }
  peers.emplace_back(running.port);
  peers.back().say(get("/gate"));  // this one queues
  while (running.server.stats().inflight < 13) std::this_thread::yield();
  const std::string refused = last_words(running.port, get("/gate"));
  EXPECT_TRUE(says(refused, 503) && has(refused, "Retry-After")) << refused;
  gate.open.set_value();
  for (Peer& peer : peers) EXPECT_EQ(body_of(peer.answer()), "passed");
}

TEST(HttpServerStop, FinishesWhatIsInFlight) {
  Gate gate;
  const std::string large(8 << 20, 'z');
  Running running({}, [&](Server& server) {
    server.route("GET", "/gate", [&](const Request&) {
      gate.pass();
      return Response::bytes({as_bytes_of(large)}, nullptr, "a/b", "");
    });
  });
  Peer busy(running.port);
  busy.say(get("/gate"));
  gate.wait_for_entered(1);
  Peer idle(running.port);
  auto stopping = std::async(std::launch::async, [&] { running.stop(); });
  EXPECT_EQ(idle.to_end(), "");  // closed by the stop, so it has begun
  gate.open.set_value();
  const std::string answer = busy.to_end();
  EXPECT_TRUE(says(answer, 200) && has(answer, "Connection: close"));
  EXPECT_EQ(body_of(answer), large);
  stopping.get();
}

// Whoever watches the server sees that it is stopping, and new work goes elsewhere.
TEST(HttpServerStop, TellsNewcomersWhileItFinishes) {
  Gate gate;
  Running running({}, [&](Server& server) {
    add_echo(server);
    server.route("GET", "/gate", [&](const Request&) { return gate.pass(); });
    server.route(
        "GET", "/readyz", [](const Request&) { return Response::text(503, "not ready"); },
        Access::kOpen);
  });
  Peer busy(running.port), half(running.port), idle(running.port);
  half.say(post("Content-Length: 5\r\nExpect: 100-continue\r\n", ""));
  EXPECT_TRUE(says(half.until("\r\n\r\n"), 100));
  busy.say(get("/gate"));
  gate.wait_for_entered(1);
  auto stopping = std::async(std::launch::async, [&] { running.stop(); });
  EXPECT_EQ(idle.to_end(), "");  // so it has begun
  const std::string refused = last_words(running.port, get("/hi"));
  EXPECT_TRUE(says(refused, 503) && has(refused, "Retry-After: 1\r\n")) << refused;
  EXPECT_TRUE(has(refused, "\"stopping\"")) << refused;
  EXPECT_EQ(body_of(last_words(running.port, get("/readyz"))), "not ready");
  const Peer silent(running.port);  // is not waited for
  half.say("hello");                // was on its way before
  EXPECT_EQ(body_of(half.to_end()), "hello");
  gate.open.set_value();
  EXPECT_EQ(body_of(busy.to_end()), "passed");
  stopping.get();
}

TEST(HttpServerStop, CutsOffWhatTakesTooLong) {
  std::atomic<bool> entered{false};
  Running running({.shutdown_timeout = milliseconds(100)}, [&](Server& server) {
    server.route("GET", "/forever", [&](const Request& r) {
      entered = true;
      while (!r.client_gone()) std::this_thread::yield();
      return Response::text(200, "late");
    });
  });
  Peer peer(running.port);
  peer.say(get("/forever"));
  while (!entered) std::this_thread::yield();
  running.stop();
  EXPECT_EQ(peer.to_end(), "");
}

#ifdef SPLIT_FAILS_WAKES
TEST(HttpServerStop, IsNotLostWhereOneCallFails) {
  Running running({}, add_echo);
  EXPECT_EQ(body_of(last_words(running.port, get("/hi", "Connection: close\r\n"))), "hi ");
  next_wake_fails = true;
  auto stopping = std::async(std::launch::async, [&] { running.stop(); });
  EXPECT_EQ(stopping.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_FALSE(next_wake_fails);
  running.server.stop();
}
#endif

TEST(HttpServerStop, MayComeBeforeRun) {
  Server server({});
  server.bind();
  server.stop();
  server.run();
}

TEST(HttpStream, ArrivesPieceByPieceAndEnds) {
  Gate gate;
  const Running running({}, [&](Server& server) {
    server.route("GET", "/stream", [&](const Request&) {
      return Response::events([&](Sink& sink) {
        sink.write("one");
        sink.write("");
        gate.pass();
        sink.write("two");
        return Streamed::kDone;
      });
    });
  });
  Peer peer(running.port);
  peer.say(get("/stream"));
  EXPECT_TRUE(has(peer.until("3\r\none\r\n"),
                  "Transfer-Encoding: chunked\r\n"));  // before the gate is open
  gate.open.set_value();
  EXPECT_EQ(peer.until("\r\n0\r\n\r\n"), "3\r\ntwo\r\n0\r\n\r\n");
  peer.say(get("/stream"));  // and the connection lives on
  EXPECT_TRUE(has(peer.until("\r\n0\r\n\r\n"), "two"));
  const std::string old = last_words(running.port, "GET /stream HTTP/1.0\r\n\r\n");
  EXPECT_EQ(body_of(old), "onetwo");
}

TEST(HttpStream, NoticesThatTheClientIsGone) {
  std::promise<bool> noticed_by_write;
  std::promise<bool> noticed_by_asking;
  const Running running({}, [&](Server& server) {
    server.route("GET", "/write", [&](const Request&) {
      return Response::events([&](Sink& sink) {
        while (sink.write("x")) continue;
        noticed_by_write.set_value(sink.client_gone());
        return Streamed::kDone;
      });
    });
    server.route("GET", "/ask", [&](const Request&) {
      return Response::events([&](Sink& sink) {
        while (!sink.client_gone()) std::this_thread::yield();
        noticed_by_asking.set_value(true);
        return Streamed::kDone;
      });
    });
  });
  for (const char* path : {"/write", "/ask"}) {
    Peer peer(running.port);
    peer.say(get(path));
    peer.until("\r\n\r\n");
    peer.close();
  }
  EXPECT_TRUE(noticed_by_write.get_future().get());
  EXPECT_TRUE(noticed_by_asking.get_future().get());
}

TEST(HttpStream, ThatThrowsEndsWithoutItsLastChunk) {
  const Running running({}, [](Server& server) {
    server.route("GET", "/broken", [](const Request&) {
      return Response::events([](Sink& sink) -> Streamed {
        sink.write("one");
        throw std::runtime_error("secret");
      });
    });
  });
  const std::string answer = last_words(running.port, get("/broken"));
  EXPECT_TRUE(answer.ends_with("3\r\none\r\n")) << answer;
}

TEST(HttpWriter, GivesUpOnReadersThatStop) {
  const std::string large(64 << 20, 'z');
  const Running running({.min_write_rate = 1ull << 40, .write_timeout = milliseconds(100)},
                        [&](Server& server) {
                          server.route("GET", "/large", [&](const Request&) {
                            return Response::bytes({as_bytes_of(large)}, nullptr, "a/b", "");
                          });
                        });
  Peer peer(running.port);
  peer.say(get("/large"));
  peer.until("\r\n\r\n");
  while (running.server.stats().connections != 0)
    std::this_thread::yield();  // it reads nothing and is let go
  EXPECT_LT(peer.to_end().size(), large.size());
}

// Clients that read nothing cost no thread: more of them than there are workers and places to wait
// in leave the server as it was. Each gets all of its answer once it reads.
TEST(HttpWriter, NeverKeepsAWorkerWaiting) {
  const std::string text(3 << 20, 't'), blob(5 << 20, 'b');
  const Running running({.max_inflight = 2, .idle_workers = 1, .queue = 1}, [&](Server& server) {
    add_echo(server);
    server.route("GET", "/text", [&](const Request&) { return Response::text(200, text); });
    server.route("GET", "/blob", [&](const Request&) {
      return Response::bytes({as_bytes_of(blob)}, nullptr, "a/b", "\"tag\"");
    });
  });
  std::vector<Peer> readers;
  for (int i = 0; i < 12; ++i) {
    readers.emplace_back(running.port);
    readers.back().say(i % 2 == 0 ? get("/text") + get("/hi")
                                  : get("/blob", "Range: bytes=7-\r\n") + get("/hi"));
    readers.back().until("\r\n\r\n");
    Peer peer(running.port);
    peer.say(get("/hi"));
    EXPECT_EQ(body_of(peer.answer()), "hi ") << i;
  }
  while (running.server.stats().inflight != 0) std::this_thread::yield();
  for (size_t i = 0; i < readers.size(); ++i) {
    const std::string body = i % 2 == 0 ? text : blob.substr(7);
    EXPECT_TRUE(readers[i].exactly(body.size()) == body) << i;
    EXPECT_EQ(body_of(readers[i].answer()), "hi ");  // in their order
  }
}

// Waits until a stream makes no more: while the system's buffers take what is sent, it may go on.
void until_it_waits(const Running& running, const std::atomic<size_t>& made) {
  for (int calm = 0; calm < 2;) {
    const size_t before = made;
    Peer peer(running.port);
    peer.say(get("/hi"));
    peer.answer();
    while (running.server.stats().inflight != 0) std::this_thread::yield();
    calm = made == before ? calm + 1 : 0;
  }
}

// A stream that nobody reads makes as much as is kept for a connection, and then waits without a
// thread until the client has taken most of it.
TEST(HttpWriter, LetsAStreamWaitWithoutAThread) {
  constexpr size_t kPiece = 10'000, kPieces = 2000;
  std::atomic<size_t> made{0};
  const Running running({.max_inflight = 1, .idle_workers = 1, .queue = 1}, [&](Server& server) {
    add_echo(server);
    server.route("GET", "/stream", [&](const Request&) {
      return Response::events([&](Sink& sink) {
        for (; made < kPieces && !sink.full(); ++made) {
          if (!sink.write(std::string(kPiece, 's'))) return Streamed::kDone;
        }
        return made < kPieces ? Streamed::kMore : Streamed::kDone;
      });
    });
  });
  Peer reader(running.port);
  reader.say(get("/stream"));
  EXPECT_TRUE(says(reader.until("\r\n\r\n"), 200));
  until_it_waits(running, made);
  const size_t kept = made;
  EXPECT_LT(kept * kPiece, 8u << 20);
  Peer peer(running.port);
  peer.say(get("/hi"));
  EXPECT_EQ(body_of(peer.answer()), "hi ");
  EXPECT_EQ(made, kept);
  const std::string answer = reader.until("\r\n0\r\n\r\n");
  EXPECT_EQ(answer.size(), kPieces * (kPiece + 8) + 5);
  EXPECT_EQ(made, kPieces);
}

// With every worker busy and every place to wait taken a stream goes on later.
TEST(HttpWriter, LetsAStreamWaitForAWorker) {
  constexpr size_t kPiece = 10'000, kPieces = 500, kReaders = 6;
  Gate gate;
  std::atomic<size_t> all{0};
  const Running running({.max_inflight = 1, .idle_workers = 1, .queue = 0}, [&](Server& server) {
    add_echo(server);
    server.route("GET", "/gate", [&](const Request&) { return gate.pass(); });
    server.route("GET", "/stream", [&](const Request&) {
      return Response::events([&, made = size_t{0}](Sink& sink) mutable {
        for (; made < kPieces && !sink.full(); ++made, ++all) sink.write(std::string(kPiece, 's'));
        return made < kPieces ? Streamed::kMore : Streamed::kDone;
      });
    });
  });
  std::vector<Peer> readers;
  for (size_t i = 0; i < kReaders; ++i) {
    readers.emplace_back(running.port);
    readers.back().say(get("/stream"));
    readers.back().until("\r\n\r\n");
    until_it_waits(running, all);
  }
  Peer busy(running.port);
  busy.say(get("/gate"));
  gate.wait_for_entered(1);
  std::vector<std::future<size_t>> sizes;
  for (Peer& reader : readers) {
    sizes.push_back(
        std::async(std::launch::async, [&] { return reader.until("\r\n0\r\n\r\n").size(); }));
  }
  while (running.server.stats().inflight < 2) std::this_thread::yield();  // one waits in line
  gate.open.set_value();
  EXPECT_EQ(body_of(busy.answer()), "passed");
  for (auto& size : sizes) EXPECT_EQ(size.get(), kPieces * (kPiece + 8) + 5);
}

// A stream's holdings are given back when its client takes nothing for too long.
TEST(HttpWriter, EndsAStreamThatNobodyTakes) {
  std::promise<void> gone;
  const Running running({.write_timeout = milliseconds(100)}, [&](Server& server) {
    server.route("GET", "/stream", [&](const Request&) {
      const auto held = std::shared_ptr<void>(nullptr, [&](void*) { gone.set_value(); });
      return Response::events([held](Sink& sink) {
        while (!sink.full() && sink.write(std::string(1000, 's'))) continue;
        return Streamed::kMore;
      });
    });
  });
  Peer reader(running.port);
  reader.say(get("/stream"));
  EXPECT_EQ(gone.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
  while (running.server.stats().connections != 0) std::this_thread::yield();
}

// Slow is not stuck: who takes something now and then gets all of it.
TEST(HttpWriter, WaitsForReadersThatMove) {
  const std::string large(6 << 20, 'z');
  const Running running(
      {.min_write_rate = 1, .write_timeout = milliseconds(1500)}, [&](Server& server) {
        server.route("GET", "/large", [&](const Request&) { return Response::text(200, large); });
      });
  Peer peer(running.port);
  const int small = 16 << 10;
  ::setsockopt(peer.fd(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  peer.say(get("/large"));
  peer.until("\r\n\r\n");
  std::string body;
  const auto start = std::chrono::steady_clock::now();
  while (body.size() < large.size()) {
    const size_t before = body.size();
    body += peer.exactly(std::min<size_t>(64 << 10, large.size() - before));
    if (body.size() == before) break;
    // At about 1 MB a second: each wait is short of the timeout, all of them are far beyond it.
    std::this_thread::sleep_until(start + milliseconds(body.size() >> 10));
  }
  EXPECT_TRUE(body == large);
}

TEST(HttpWorkers, ShrinkWhenIdle) {
  Workers workers({.keep = 1, .most = 6, .queue = 0, .linger = milliseconds(20)});
  Gate gate;
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(workers.submit([&] { gate.pass(); }));
  EXPECT_FALSE(workers.submit([] {}));
  EXPECT_EQ(workers.threads(), 6u);
  gate.open.set_value();
  while (workers.threads() > 1) std::this_thread::yield();
}

std::atomic<int> threads_gone{0};
struct SlowGoodbye {
  ~SlowGoodbye() {
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    ++threads_gone;
  }
};

// A library may keep something for each thread, which uses the library as it goes: OpenSSL does.
TEST(HttpWorkers, AreGoneWhenClosed) {
  threads_gone = 0;
  Workers workers({.keep = 2, .most = 6, .queue = 0, .linger = milliseconds(20)});
  std::latch all(6);  // a job for each thread
  const auto job = [&] {
    static thread_local const SlowGoodbye goodbye;
    all.arrive_and_wait();
  };
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(workers.submit(job));
  // Those that nobody needs go by themselves.
  while (workers.threads() > 2) std::this_thread::yield();
  workers.close();
  EXPECT_EQ(threads_gone, 6);
}

TEST(HttpJson, QuotesAnyBytes) {
  EXPECT_EQ(json_quote("a\"\\\n\x01/\x7f"), R"("a\"\\\u000a\u0001/\u007f")");
  EXPECT_EQ(json_quote("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"),
            "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"");
  for (const char* bad :
       {"\x80", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xc3", "\xe0\x80\x80"}) {
    EXPECT_TRUE(json_quote(bad).starts_with("\"\xef\xbf\xbd")) << json_quote(bad);
  }
}

}  // namespace
}  // namespace split::http
