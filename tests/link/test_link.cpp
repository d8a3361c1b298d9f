// split_link: the line as times of a clock that the test moves, the relay with raw sockets at both
// ends, and the program between a cloud and an edge. No test looks at how long anything took.
#include <gtest/gtest.h>

#include <numeric>

#include "scripts/link/line.h"
#include "scripts/link/relay.h"
#include "scripts/link/units.h"
#include "support/http_peer.h"
#include "support/programs.h"

namespace split::link {
namespace {

using namespace std::chrono_literals;

// --- The line, on a clock of the test's own

const Time kStart = Time() + 1h;

// When each byte of a flow arrives, in ms from the start: the clock goes from event to event.
struct Driver {
  Line line;
  Time now = kStart;

  explicit Driver(const Line::Options& options) : line(options) {}
  static double ms(Time at) {
    return std::chrono::duration<double, std::milli>(at - kStart).count();
  }
  // One turn of each flow, whose sender has `left` bytes.
  void turn(Flow& flow, std::string_view& left) {
    const size_t n = std::min(flow.room(now), left.size());
    if (n == 0) return;
    flow.push(left.substr(0, n));
    left.remove_prefix(n);
    if (left.empty()) flow.pause();
  }
};

TEST(Line, ABytesTimeIsTheRatesAndTheDelay) {
  Driver driver({8'000'000, 15ms});  // 1,000 bytes a ms
  Flow flow(driver.line, kStart);
  flow.offer(kStart);
  ASSERT_GE(flow.room(kStart), 1000u);
  flow.push(std::string(1000, 'a'));
  EXPECT_EQ(flow.room(kStart), 0u);  // the line sends
  EXPECT_EQ(Driver::ms(flow.wake(kStart)), 1);
  EXPECT_GT(flow.room(kStart + 1ms), 0u);
  flow.pause();
  EXPECT_EQ(Driver::ms(flow.wake(kStart)), 16);
  EXPECT_EQ(flow.arrived(kStart + 16ms - 1ns), "");
  EXPECT_EQ(flow.arrived(kStart + 16ms).size(), 1000u);
  flow.take(kStart + 16ms, 400);
  EXPECT_EQ(flow.arrived(kStart + 16ms).size(), 600u);
  flow.take(kStart + 16ms, 600);
  EXPECT_EQ(flow.arrived(kStart + 1h), "");
  EXPECT_EQ(flow.wake(kStart + 16ms), kNever);
}

TEST(Line, NothingEntersBeforeTheConnectionIsThere) {
  Driver driver({0, 15ms});
  Flow flow(driver.line, kStart + 30ms);
  flow.offer(kStart);
  EXPECT_EQ(flow.room(kStart), 0u);
  EXPECT_EQ(Driver::ms(flow.wake(kStart)), 30);
  ASSERT_GT(flow.room(kStart + 30ms), 0u);
  flow.push("hello");
  flow.pause();
  EXPECT_EQ(Driver::ms(flow.wake(kStart + 30ms)), 45);
}

TEST(Line, ALateTurnCostsTheLineNothing) {
  Driver driver({8'000'000, 0ms});
  Flow flow(driver.line, kStart);
  flow.offer(kStart);
  flow.push(std::string(1000, 'a'));
  flow.push(std::string(1000, 'b'));  // 5 ms later, but it could be sent when the first was
  flow.pause();
  flow.take(kStart + 5ms, 1000);
  EXPECT_EQ(flow.arrived(kStart + 2ms), std::string(1000, 'b'));
  flow.take(kStart + 5ms, 1000);
  // Bytes that are offered later are sent later.
  flow.offer(kStart + 9ms);
  flow.push(std::string(1000, 'c'));
  EXPECT_EQ(flow.arrived(kStart + 9ms), "");
  EXPECT_EQ(flow.arrived(kStart + 10ms), std::string(1000, 'c'));
}

TEST(Line, FlowsThatTakeTurnsShareTheRate) {
  Driver driver({16'000'000, 10ms});
  Flow first(driver.line, kStart), second(driver.line, kStart);
  const std::string bytes(100'000, 'x');
  std::string_view left[2] = {bytes, bytes};
  first.offer(kStart);
  second.offer(kStart);
  uint64_t got[2] = {};
  std::vector<int> order;
  while (got[0] + got[1] < 200'000) {
    Flow* const flows[] = {&first, &second};
    // The one that was served last comes last.
    const int turns[] = {order.empty() ? 0 : 1 - order.back(), order.empty() ? 1 : order.back()};
    for (const int i : turns) {
      const size_t before = left[i].size();
      driver.turn(*flows[i], left[i]);
      if (left[i].size() < before) order.push_back(i);
      while (!flows[i]->arrived(driver.now).empty()) {
        const size_t n = flows[i]->arrived(driver.now).size();
        got[i] += n;
        flows[i]->take(driver.now, n);
      }
      EXPECT_LT(got[0], got[1] + 3 * driver.line.piece());
      EXPECT_LT(got[1], got[0] + 3 * driver.line.piece());
    }
    const Time next = std::min(first.wake(driver.now), second.wake(driver.now));
    if (next == kNever) break;
    driver.now = std::max(driver.now, next);
  }
  EXPECT_EQ(got[0], 100'000u);
  EXPECT_EQ(got[1], 100'000u);
  EXPECT_NEAR(Driver::ms(driver.now), 200'000 / 2000.0 + 10, 0.01);
}

TEST(Line, AFlowHoldsWhatItsReceiverDoesNotTake) {
  Driver driver({0, 0ms});
  Line& line = driver.line;
  std::list<Flow> flows;
  uint64_t held = 0;
  for (int i = 0; i < 40; ++i) {
    Flow& flow = flows.emplace_back(line, kStart);
    flow.offer(kStart);
    for (size_t n = 0; held < (1ull << 30) && (n = flow.room(kStart)) > 0; held += n)
      flow.push(std::string(n, 'x'));
  }
  EXPECT_GE(held, 64u << 20);
  EXPECT_LE(held, (64u << 20) + 41 * (128u << 10));
  for (Flow& flow : flows) EXPECT_EQ(flow.wake(kStart), kNever);
  // There is room again when it has.
  Flow& first = flows.front();
  while (!first.arrived(kStart).empty()) first.take(kStart + 7ms, first.arrived(kStart).size());
  EXPECT_EQ(first.room(kStart), 0u);
  EXPECT_GT(first.room(kStart + 7ms), 0u);
  // And what a flow held is free when it ends.
  flows.clear();
  EXPECT_TRUE(line.has_room(1 << 20));
}

TEST(Line, TheEndComesAfterTheBytes) {
  Driver driver({8'000'000, 5ms});
  Flow flow(driver.line, kStart);
  flow.offer(kStart);
  flow.push(std::string(1000, 'a'));
  flow.end(kStart);
  EXPECT_EQ(flow.room(kStart + 1h), 0u);
  EXPECT_FALSE(flow.over(kStart + 6ms));
  flow.take(kStart + 6ms, 1000);
  EXPECT_TRUE(flow.over(kStart + 6ms));
  Flow silent(driver.line, kStart);
  silent.offer(kStart + 20ms);
  silent.end(kStart + 20ms);
  EXPECT_EQ(Driver::ms(silent.wake(kStart + 20ms)), 25);
  EXPECT_FALSE(silent.over(kStart + 25ms - 1ns));
  EXPECT_TRUE(silent.over(kStart + 25ms));
}

// --- Events

constexpr std::string_view kStreamHead =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

std::string chunk(std::string_view text) {
  char size[16];
  std::snprintf(size, sizeof size, "%zx\r\n", text.size());
  return cat(size, text, "\r\n");
}

TEST(EventEnds, AreFoundInAnyPiecesAndInStreamsAlone) {
  const std::string head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n";
  const std::string json = "data: no event\n\n";
  const std::string all = cat(head, json, kStreamHead, chunk(": hello\n\n"), chunk("data: a\n\n"),
                              chunk("data: b\ndata: c\n\ndata: d\n\n"), "0\r\n\r\n", head, json);
  for (const size_t piece : {size_t{1}, size_t{2}, size_t{7}, size_t{100}, all.size()}) {
    EventEnds ends;
    std::vector<std::string> events(1);
    for (size_t at = 0; at < all.size(); at += piece) {
      std::string_view bytes = std::string_view(all).substr(at, piece);
      for (size_t n = 0; (n = ends.find(bytes)) != bytes.npos; bytes.remove_prefix(n)) {
        events.back() += bytes.substr(0, n);
        events.emplace_back();
      }
      events.back() += bytes;
    }
    ASSERT_EQ(events.size(), 4u) << piece;
    EXPECT_TRUE(events[0].ends_with("data: a\n\n"));
    EXPECT_TRUE(events[1].ends_with("data: b\ndata: c\n\n"));
    EXPECT_EQ(events[2], "data: d\n\n");
    EXPECT_EQ(std::accumulate(events.begin(), events.end(), std::string()), all);
  }
}

TEST(Flow, EventsComeNoFasterThanAsked) {
  Driver driver({0, 5ms});
  Flow flow(driver.line, kStart, 10);
  flow.offer(kStart);
  flow.push(cat(kStreamHead, chunk("data: a\n\n"), chunk("data: b\n\n"), chunk("data: c\n\n")));
  flow.pause();
  std::vector<std::pair<double, std::string>> got;
  for (Time now = kStart; (now = flow.wake(now)) != kNever;) {
    std::string text;
    while (!flow.arrived(now).empty()) {
      text += flow.arrived(now);
      flow.take(now, flow.arrived(now).size());
    }
    got.emplace_back(Driver::ms(now), text);
  }
  ASSERT_EQ(got.size(), 3u);
  EXPECT_EQ(got[0].first, 5);
  EXPECT_EQ(got[0].second, cat(kStreamHead, "9\r\ndata: a\n\n"));
  EXPECT_EQ(got[1].first, 105);
  EXPECT_EQ(got[1].second, "\r\n9\r\ndata: b\n\n");
  EXPECT_EQ(got[2].first, 205);
  // A slow sender's are not held back any longer.
  flow.offer(kStart + 600ms);
  flow.push(chunk("data: d\n\n"));
  flow.pause();
  EXPECT_EQ(Driver::ms(flow.wake(kStart + 600ms)), 605);
}

// --- Units

TEST(Units, AreReadAndWritten) {
  EXPECT_EQ(parse_rate("20Mbit"), 20'000'000u);
  EXPECT_EQ(parse_rate("1.5 Gbit"), 1'500'000'000u);
  EXPECT_EQ(parse_rate("56kbit"), 56'000u);
  EXPECT_EQ(parse_time("30ms"), 30ms);
  EXPECT_EQ(parse_time("0.2s"), 200ms);
  EXPECT_EQ(parse_time("500us"), 500us);
  EXPECT_EQ(parse_time("0ms"), 0us);
  for (const char* wrong : {"", "20", "Mbit", "-1Mbit", "0bit", "20MB", "20Mbits", "1e99Gbit",
                            "nanMbit", " 1Mbit", "20Mbit "})
    EXPECT_FALSE(parse_rate(wrong)) << wrong;
  for (const char* wrong : {"", "30", "ms", "-1ms", "61s", "infs", "30 m"})
    EXPECT_FALSE(parse_time(wrong)) << wrong;
  EXPECT_EQ(rate_text(20'000'000), "20 Mbit/s");
  EXPECT_EQ(rate_text(1'500'000'000), "1.5 Gbit/s");
  EXPECT_EQ(rate_text(56'000), "56 kbit/s");
  EXPECT_EQ(rate_text(0), "no limit");
  EXPECT_EQ(time_text(30ms), "30 ms");
  EXPECT_EQ(time_text(500us), "0.5 ms");
}

// --- The relay

// A server that the test speaks for.
class Listener {
 public:
  Listener() {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    CHECK(::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&at), size) == 0);
    CHECK(::listen(fd_.get(), 16) == 0);
    CHECK(::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&at), &size) == 0);
    port = ntohs(at.sin_port);
  }
  http::Peer accept() const {
    return http::Peer(Fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
  }
  void close() { fd_.reset(); }
  int port = 0;

 private:
  Fd fd_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
};

class RunningRelay {
 public:
  explicit RunningRelay(const Relay::Options& options)
      : relay_(options), thread_([this] { relay_.run(); }) {}
  ~RunningRelay() { counts(); }
  int port() const { return relay_.port(); }
  Relay::Counts counts() {
    relay_.stop();
    if (thread_.joinable()) thread_.join();
    return relay_.counts();
  }

 private:
  Relay relay_;
  std::thread thread_;
};

std::string numbers(size_t size) {
  std::string text;
  for (int i = 0; text.size() < size; ++i) text += cat(i, ",");
  text.resize(size);
  return text;
}

TEST(Relay, PassesBytesInTheirOrderBothWays) {
  const Listener server;
  const std::string text = numbers(3 << 20);
  for (const uint64_t rate : {uint64_t{0}, uint64_t{1'000'000'000}}) {
    RunningRelay relay(
        {.to_port = server.port, .up = {rate, 1ms}, .down = {rate, 1ms}, .rtt = 2ms});
    http::Peer client(relay.port());
    http::Peer behind = server.accept();
    std::thread saying([&] {
      EXPECT_TRUE(client.say(text));
      client.close_writing();
    });
    std::thread answering([&] { EXPECT_TRUE(behind.say(text)); });
    EXPECT_TRUE(behind.to_end() == text);  // with its end
    answering.join();
    saying.join();
    behind.close_writing();
    EXPECT_TRUE(client.to_end() == text);
    const Relay::Counts counts = relay.counts();
    EXPECT_EQ(counts.connections, 1u);
    EXPECT_EQ(counts.up, text.size());
    EXPECT_EQ(counts.down, text.size());
    EXPECT_EQ(counts.cut, 0u);
  }
}

TEST(Relay, TakesNoMoreThanItMayHoldFromAServerWhoseClientDoesNotRead) {
  const Listener server;
  RunningRelay relay({.to_port = server.port});
  http::Peer client(relay.port());
  http::Peer behind = server.accept();
  const timeval soon{0, 200'000};
  ::setsockopt(behind.fd(), SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof soon);
  const std::string piece(1 << 20, 'x');
  uint64_t sent = 0;
  constexpr uint64_t kHeld = 64 << 20;
  const auto latest = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (ssize_t n = 0; sent < (1ull << 30); sent += static_cast<uint64_t>(std::max<ssize_t>(n, 0))) {
    n = ::send(behind.fd(), piece.data(), piece.size(), MSG_NOSIGNAL);
    // A relay that gets no processor takes nothing for a while.
    if (n < 0 && (sent >= kHeld || std::chrono::steady_clock::now() > latest)) break;
  }
  EXPECT_LT(sent, 2 * kHeld);
  EXPECT_GE(sent, kHeld);
  // Another connection goes on.
  http::Peer other(relay.port());
  http::Peer other_behind = server.accept();
  EXPECT_TRUE(other.say("hello"));
  EXPECT_EQ(other_behind.exactly(5), "hello");
  EXPECT_TRUE(other_behind.say("you"));
  EXPECT_EQ(other.exactly(3), "you");
}

TEST(Relay, CutsAConnectionAtTheByte) {
  const Listener server;
  RunningRelay relay({.to_port = server.port, .cut_after = 10});
  http::Peer client(relay.port());
  http::Peer behind = server.accept();
  EXPECT_TRUE(client.say("12345678"));
  EXPECT_EQ(behind.exactly(8), "12345678");
  EXPECT_TRUE(behind.say("abcd"));
  EXPECT_EQ(client.to_end(), "ab");
  EXPECT_EQ(behind.to_end(), "");
  const Relay::Counts counts = relay.counts();
  EXPECT_EQ(counts.up, 8u);
  EXPECT_EQ(counts.down, 2u);
  EXPECT_EQ(counts.cut, 1u);
}

TEST(Relay, ASeedDrawsTheSameCuts) {
  std::vector<std::vector<size_t>> passed;
  for (const uint64_t seed : {1, 1, 2}) {
    const Listener server;
    RunningRelay relay({.to_port = server.port, .cut_after = 1000, .seed = seed});
    auto& counts = passed.emplace_back();
    for (int i = 0; i < 4; ++i) {
      http::Peer client(relay.port());
      http::Peer behind = server.accept();
      client.say(std::string(2000, 'x'));
      counts.push_back(behind.to_end().size());
      EXPECT_GE(counts.back(), 1u);
      EXPECT_LE(counts.back(), 1000u);
    }
    EXPECT_NE(counts[0], counts[1]);
  }
  EXPECT_EQ(passed[0], passed[1]);
  EXPECT_NE(passed[0], passed[2]);
}

TEST(Relay, AServerThatIsNotThereIsALostConnection) {
  Listener server;
  server.close();
  RunningRelay relay({.to_port = server.port});
  EXPECT_EQ(http::last_words(relay.port(), "hello"), "");
  EXPECT_EQ(relay.counts().up, 0u);
}

// The events that a dead server has made already are not what a slow one would have sent.
TEST(Relay, WhatASlowServerHasNotSentEndsWithIt) {
  Listener server;
  RunningRelay relay({.to_port = server.port, .events_per_s = 0.001});
  http::Peer client(relay.port());
  http::Peer behind = server.accept();
  http::Peer watch = server.accept();
  EXPECT_TRUE(behind.say(cat(kStreamHead, "data: a\n\n", "data: b\n\n", "data: [DONE]\n\n")));
  EXPECT_EQ(client.until("data: a\n\n"), cat(kStreamHead, "data: a\n\n"));
  server.close();
  watch.close();
  char byte = 0;
  const ssize_t n = ::recv(client.fd(), &byte, 1, 0);
  EXPECT_TRUE(n == 0 || (n < 0 && errno == ECONNRESET)) << n << " " << errno_text(errno);
}

}  // namespace
}  // namespace split::link

namespace split::test {
namespace {

// The program before a server, once it has said where it listens.
class LinkProcess {
 public:
  explicit LinkProcess(const Arguments& arguments) : process_(argv(arguments)) {
    const std::string mark = "listening on http://127.0.0.1:";
    CHECK(process_.until([&] { return process_.err().find('\n') != std::string::npos; }));
    CHECK(process_.err().starts_with(mark));
    port_ = std::atoi(process_.err().c_str() + mark.size());
  }
  std::string url() const { return cat("http://127.0.0.1:", port_); }
  int port() const { return port_; }
  // Its exit code; the last line is in err().
  int end(int signal) {
    process_.signal(signal);
    return process_.wait();
  }
  const std::string& err() const { return process_.err(); }

 private:
  static Arguments argv(const Arguments& arguments) {
    Arguments all = {program_path("split_link")};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return all;
  }
  Process process_;
  int port_ = 0;
};

TEST(SplitLink, SaysItsUrlAndEndsOnASignal) {
  LinkProcess link(
      {"--to", "127.0.0.1:9", "--rate", "20Mbit", "--rate-up", "5Mbit", "--rtt", "30ms"});
  EXPECT_EQ(link.err(), cat("listening on ", link.url(),
                            " for 127.0.0.1:9: up 5 Mbit/s, down 20 Mbit/s, round trip 30 ms\n"));
  const std::string ready = link.err();
  EXPECT_EQ(link.end(SIGTERM), 0);
  EXPECT_EQ(link.err(), ready + "0 connections, 0 cut; 0 B up, 0 B down\n");
  EXPECT_EQ(LinkProcess({"--to", "127.0.0.1:9"}).end(SIGINT), 130);
}

TEST(SplitLink, HelpsWithin80Columns) {
  Process process({program_path("split_link"), "--help"});
  EXPECT_EQ(process.wait(), 0);
  EXPECT_NE(process.out().find("usage: split_link --to HOST:PORT"), std::string::npos);
  for (size_t at = 0, end = 0; (end = process.out().find('\n', at)) != std::string::npos;
       at = end + 1)
    EXPECT_LE(end - at, 80u) << process.out().substr(at, end - at);
}

TEST(SplitLink, AWrongUseIsOneLine) {
  const auto refusal = [](Arguments arguments, int code) {
    arguments.insert(arguments.begin(), program_path("split_link"));
    Process process(arguments);
    EXPECT_EQ(process.wait(), code);
    return process.err();
  };
  EXPECT_EQ(refusal({}, 2), "error: --to: expected HOST:PORT, got ''\n");
  EXPECT_EQ(refusal({"--to", "localhost"}, 2),
            "error: --to: expected HOST:PORT, got 'localhost'\n");
  EXPECT_EQ(refusal({"--to", "localhost:1", "--rate", "20"}, 2),
            "error: --rate: expected a rate such as 56kbit, 20Mbit or 1Gbit, got '20'\n");
  EXPECT_EQ(refusal({"--to", "localhost:1", "--rate-up", "x"}, 2),
            "error: --rate-up: expected a rate such as 56kbit, 20Mbit or 1Gbit, got 'x'\n");
  EXPECT_EQ(refusal({"--to", "localhost:1", "--rtt", "30"}, 2),
            "error: --rtt: expected a time such as 30ms or 0.2s, got '30'\n");
  EXPECT_EQ(refusal({"--to", "localhost:1", "--seed", "1"}, 2),
            "error: --seed: expected --cut-after too\n");
  LinkProcess link({"--to", "localhost:1"});
  EXPECT_EQ(refusal({"--to", "localhost:1", "--port", cat(link.port())}, 98),
            cat("error: cannot listen on 127.0.0.1:", link.port(), ": Address already in use\n"));
}

TEST(SplitLink, ATextIsTheSameBehindALineThatIsCut) {
  CloudProcess cloud({"--device", "cpu", "--threads", "1"});
  const Folder home;
  const Arguments arguments = {"--device", "cpu", "--threads",    "1",   "--prompt",     "The king",
                               "--seed",   "5",   "--max-tokens", "300", "--ignore-eos", "--json",
                               "--cut",    "4"};
  const EdgeResult direct = run_edge(cloud.url(), home, arguments);
  ASSERT_EQ(direct.code, 0) << direct.err;
  LinkProcess link({"--to", cat("127.0.0.1:", cloud.port()), "--rate", "200Mbit", "--rtt", "1ms",
                    "--cut-after", "400000", "--seed", "3"});
  const EdgeResult cut = run_edge(link.url(), home, arguments);
  ASSERT_EQ(cut.code, 0) << cut.err;
  EXPECT_EQ(cut.tokens(), direct.tokens());
  EXPECT_EQ(link.end(SIGTERM), 0);
  EXPECT_EQ(link.err().find(" 0 cut;"), std::string::npos) << link.err();
}

}  // namespace
}  // namespace split::test
