// http/: what the loop answers itself, however busy its workers are.
#include <gtest/gtest.h>

#include <sys/ioctl.h>

#include <latch>
#include <memory>
#include <vector>

#include "support/http_peer.h"

namespace split::http {
namespace {

// A server of one worker, which is busy, and of no room to wait.
class HttpLoop : public ::testing::Test {
 protected:
  void add(Server& server) {
    for (const auto& [path, access] :
         {std::pair("/livez", Access::kOpen), {"/metrics", Access::kGuarded}}) {
      server.route({.method = "GET",
                    .path = path,
                    .access = access,
                    .on_loop = true,
                    .handler = [path = path](const Request& r) {
                      return Response::text(200, cat(path, r.query("q").value_or("")));
                    }});
    }
    server.route({.method = "GET",
                  .path = "/large",
                  .access = Access::kOpen,
                  .on_loop = true,
                  .handler = [this](const Request&) { return Response::text(200, large_); }});
    // The loop waits, and says what has been sent to these meanwhile.
    server.route({.method = "GET",
                  .path = "/pause",
                  .access = Access::kOpen,
                  .on_loop = true,
                  .handler = [this](const Request&) {
                    paused_.count_down();
                    on_.wait();
                    return Response::text(200, "on");
                  }});
    server.route({.method = "GET",
                  .path = "/unread",
                  .access = Access::kOpen,
                  .on_loop = true,
                  .handler = [this](const Request&) {
                    int64_t sum = 0;
                    for (const auto& reader : readers_) sum += unread(*reader);
                    return Response::text(200, cat(sum));
                  }});
    server.route(
        {.method = "GET",
         .path = "/charged",
         .access = Access::kOpen,
         .on_loop = true,
         .handler = [this](const Request&) { return Response::text(200, cat(memory_.used())); }});
    server.route(
        "GET", "/hold",
        [this](const Request&) {
          held_.count_down();
          go_.wait();
          return Response::text(200, "held");
        },
        Access::kOpen);
    server.router().set_guard([](const Headers& headers) -> std::string {
      if (headers.get("Authorization")) return "ann";
      throw HttpError(401, "api_key_missing", "no");
    });
    server.router().add_observer([this](const Request&, const Answered& answered) {
      if (answered.route == "/livez") ++seen_;
    });
  }
  void SetUp() override {
    busy_.say(get("/hold"));
    held_.wait();
    EXPECT_TRUE(says(last_words(running_.port, get("/hold")), 503));
  }
  void TearDown() override {
    go_.count_down();
    EXPECT_EQ(body_of(busy_.answer()), "held");
  }
  static int unread(const Peer& peer) {
    int bytes = 0;
    EXPECT_EQ(::ioctl(peer.fd(), FIONREAD, &bytes), 0);
    return bytes;
  }
  const std::string large_ = std::string(5 << 20, 'z');
  std::latch held_{1}, go_{1}, paused_{1}, on_{1};
  std::vector<std::unique_ptr<Peer>> readers_;
  std::atomic<int> seen_{0};
  MemoryBudget memory_;
  Running running_{{.memory = &memory_, .max_inflight = 1, .idle_workers = 1, .queue = 0},
                   [this](Server& server) { add(server); }};
  Peer busy_{running_.port};
};

// However many clients can take more of their answers, who asks waits for a bounded part of that.
TEST_F(HttpLoop, AnswersBeforeItWritesToAllWhoTakeMuch) {
  for (int i = 0; i < 48; ++i) {
    readers_.push_back(std::make_unique<Peer>(running_.port));
    readers_.back()->say(get("/large"));
  }
  Peer pausing(running_.port), asking(running_.port);
  pausing.say(get("/pause"));
  paused_.wait();
  std::string taken(1 << 20, 0);
  uint64_t sum = 0;
  for (const auto& reader : readers_) {  // which makes room for as much again
    while (true) {
      const ssize_t n = ::recv(reader->fd(), taken.data(), taken.size(), MSG_DONTWAIT);
      if (n <= 0) break;
      sum += static_cast<uint64_t>(n);
    }
  }
  ASSERT_GT(sum, 8u << 20);
  asking.say(get("/unread"));
  on_.count_down();
  EXPECT_LT(std::stoull(body_of(asking.answer())), 2u << 20);
  readers_.clear();  // else the server would wait for them
}

// However many clients send much at once, who asks waits for a bounded part of that.
TEST_F(HttpLoop, AnswersBeforeItReadsAllThatIsSent) {
  constexpr size_t kSent = 400'000;
  std::vector<Peer> senders;
  for (uint64_t i = 1; i <= 100; ++i) {
    senders.emplace_back(running_.port);
    senders.back().say("POST /livez HTTP/1.1\r\nHost: x\r\nAuthorization: x\r\n" +
                       cat("Content-Length: ", kSent + 2, "\r\n\r\nz"));
    while (memory_.used() < i) std::this_thread::yield();  // now its body is waited for
  }
  Peer pausing(running_.port), asking(running_.port);
  pausing.say(get("/pause"));
  paused_.wait();
  uint64_t sum = 0;
  const std::string piece(kSent, 'z');
  for (const Peer& sender : senders) {
    const ssize_t n = ::send(sender.fd(), piece.data(), piece.size(), MSG_DONTWAIT);
    sum += n > 0 ? static_cast<uint64_t>(n) : 0;
  }
  ASSERT_GT(sum, 8u << 20);
  asking.say(get("/charged"));
  on_.count_down();
  EXPECT_LT(std::stoull(body_of(asking.answer())), 2u << 20);
  while (memory_.used() < sum) std::this_thread::yield();  // and all of it has its turn
}

TEST_F(HttpLoop, AnswersWhileEveryWorkerIsBusy) {
  Peer peer(running_.port);
  for (int i = 0; i < 3; ++i) {
    peer.say(get(cat("/livez?q=", i)));
    EXPECT_EQ(body_of(peer.answer()), cat("/livez", i));
  }
  peer.say("HEAD /livez HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(says(peer.until("\r\n\r\n"), 200));
  peer.say(get("/metrics"));
  EXPECT_TRUE(says(peer.answer(), 401));
  peer.say(get("/metrics", "Authorization: Bearer ann\r\n"));
  EXPECT_EQ(body_of(peer.answer()), "/metrics");
  peer.say(get("/livez", "Connection: close\r\n"));
  EXPECT_TRUE(has(peer.to_end(), "Connection: close\r\n"));
  EXPECT_EQ(seen_, 5);
  EXPECT_EQ(running_.server.stats().inflight, 1u);
}

// Counts what a handler of the loop takes as a part of its turn, which stays the longest.
TEST_F(HttpLoop, TellsItsLongestTurn) {
  const auto longest = [&] { return running_.server.stats().longest_turn; };
  Peer pausing(running_.port), asking(running_.port);
  const auto begun = std::chrono::steady_clock::now();
  pausing.say(get("/pause"));
  paused_.wait();
  const auto paused = std::chrono::steady_clock::now();
  const auto least = 2 * longest() + std::chrono::milliseconds(1);
  while (std::chrono::steady_clock::now() - paused < least) std::this_thread::yield();
  on_.count_down();
  pausing.answer();
  asking.say(get("/livez"));
  asking.answer();
  EXPECT_GE(longest(), least);
  EXPECT_LE(longest(), std::chrono::steady_clock::now() - begun);
  // The handler waited: that is no work.
  EXPECT_GT(running_.server.stats().longest_turn_work.count(), 0);
  EXPECT_LE(running_.server.stats().longest_turn_work, longest());
}

TEST_F(HttpLoop, AnswersManyInOnePacketInTheirOrder) {
  std::string all;
  for (int i = 0; i < 5000; ++i) all += get(cat("/livez?q=", i));
  Peer peer(running_.port);
  std::thread talker([&] { peer.say(all); });
  for (int i = 0; i < 5000; ++i) ASSERT_EQ(body_of(peer.answer()), cat("/livez", i));
  talker.join();
}

TEST_F(HttpLoop, WaitsForNoReader) {
  std::vector<Peer> readers;
  for (int i = 0; i < 4; ++i) {
    readers.emplace_back(running_.port);
    readers.back().say(get("/large") + get("/livez"));
    readers.back().until("\r\n\r\n");
    Peer peer(running_.port);
    peer.say(get("/livez"));
    EXPECT_EQ(body_of(peer.answer()), "/livez");
  }
  for (Peer& reader : readers) {
    EXPECT_TRUE(reader.exactly(large_.size()) == large_);
    EXPECT_EQ(body_of(reader.answer()), "/livez");
  }
}

}  // namespace
}  // namespace split::http
