// Asks the built cloud_server for each thing that httplib 0.11.4 gets wrong, with and without
// TLS; the reference is "A.3" of the notes on the library. The same bytes as units are in
// test_http*.cpp. Then what only TLS can get wrong. After each row the server answers on, and its
// memory is what it was.
#include <openssl/ssl.h>

#include <atomic>
#include <fstream>

#include "support/http_peer.h"
#include "support/programs.h"
#include "support/tls_testing.h"

namespace split::test {
namespace {

using http::body_of;
using http::get;
using http::has;
using http::last_words;
using http::Peer;
using http::post;
using http::says;
using http::TlsContext;

const std::string kModel = SPLIT_SOURCE_DIR "/tests/golden/rand-a";
constexpr uint64_t kMostGrowth = 16 << 10;  // KiB; the library's holes took 200 MiB and more
constexpr char kForward[] = "/v1/models/rand-a/forward";
constexpr char kFile[] = "/v1/models/rand-a/files/config.json";

class HostileServer : public ::testing::Test {
 protected:
  explicit HostileServer(bool secure) : secure_(secure) {}
  void SetUp() override {
    ask();
    before_ = anonymous_kb();
  }
  void TearDown() override {
    ask();
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    EXPECT_LE(anonymous_kb(), before_ + most_growth_);
#endif
    cloud_.process().signal(SIGTERM);
    EXPECT_EQ(cloud_.process().wait(), 0) << cloud_.process().err();
  }
  void ask() {
    Peer peer = connect();
    peer.say(post("Content-Length: 14\r\n", R"({"tokens":[1]})", kForward));
    EXPECT_TRUE(says(peer.answer(), 200));
  }
  int port() const { return cloud_.port(); }
  const TlsContext* tls() const { return secure_ ? &context_ : nullptr; }
  Peer connect() const { return Peer(port(), tls()); }
  void expect(const std::string& bytes, int status) {
    const std::string answer = last_words(port(), bytes + get("/livez"), tls());
    EXPECT_TRUE(says(answer, status)) << bytes.substr(0, 200) << "\n-> " << answer.substr(0, 300);
    EXPECT_FALSE(has(answer, "\r\n\r\nok\n")) << "what was hidden behind it was served";
    EXPECT_FALSE(has(answer, "EXCEPTION_WHAT")) << answer;
  }
  // `piece` again and again, 64 MiB of it or until the server has enough.
  void expect_endless(const std::string& begin, const std::string& piece, int status) {
    Peer peer = connect();
    peer.say(begin);
    std::string block;
    while (block.size() < (64 << 10)) block += piece;
    for (int i = 0; i < 1024 && peer.say(block); ++i) continue;
    peer.close_writing();
    const std::string answer = peer.to_end();
    EXPECT_TRUE(answer.empty() || says(answer, status)) << answer.substr(0, 300);
  }
  uint64_t anonymous_kb() {
    std::ifstream status(cat("/proc/", cloud_.process().pid(), "/status"));
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("RssAnon:")) return std::stoull(line.substr(8));
    }
    return 0;
  }
  Arguments arguments() const {
    Arguments all = {"--model",         kModel,           "--device", "cpu", "--threads", "1",
                     "--legacy-routes", "--allowed-host", "x"};
    if (secure_)
      all.insert(all.end(), {"--tls-cert", files_.cert_file, "--tls-key", files_.key_file});
    return all;
  }
  const bool secure_;
  const Folder folder_;
  const TlsFiles files_{folder_.path};
  const TlsContext context_ = http::tls_client_context(files_.ca_file);
  CloudProcess cloud_{arguments()};
  uint64_t before_ = 0, most_growth_ = kMostGrowth;
};

class HttpHostile : public HostileServer, public ::testing::WithParamInterface<bool> {
 protected:
  HttpHostile() : HostileServer(GetParam()) {}
};
INSTANTIATE_TEST_SUITE_P(, HttpHostile, ::testing::Bool(),
                         [](const auto& row) { return row.param ? "Tls" : "Plain"; });

TEST_P(HttpHostile, BodiesOfNoKnownLength) {  // CVE-2025-46728, -53629, CVE-2026-45352
  expect(post("Transfer-Encoding: chunked\r\n", "1\r\nx\r\n0\r\n\r\n", kForward), 411);
  expect(post("Transfer-Encoding: chunked\r\n", "fffffffffffffffe\r\n", kForward), 411);
  expect(post("", "{}", kForward), 411);
  expect_endless(post("Transfer-Encoding: chunked\r\n", "", kForward), "1000\r\n", 411);
}

TEST_P(HttpHostile, HeadsWithoutEnd) {  // CVE-2025-53628, -52887
  expect_endless("GET /", "a", 414);
  expect_endless("GET / HTTP/1.1\r\nHost: x\r\nX: ", "a", 431);
  expect_endless("GET / HTTP/1.1\r\nHost: x\r\n", "H: v\r\n", 431);
}

TEST_P(HttpHostile, CompressedBodies) {  // CVE-2026-22776, -28435
  for (const char* coding : {"gzip", "deflate", "br", "GZIP"}) {
    expect(post(cat("Content-Length: 4\r\nContent-Encoding: ", coding, "\r\n"), "\x1f\x8b\x08",
                kForward),
           415);
  }
}

TEST_P(HttpHostile, EscapesInHeaders) {  // CVE-2026-45372, CVE-2023-26130
  expect(get("/livez", "X-Request-Id: a%0d%0aSet-Cookie: b\r\n"), 400);
  const std::string answer =
      last_words(port(), get("/%0d%0aSet-Cookie:%20b", "Connection: close\r\n"), tls());
  EXPECT_FALSE(has(answer, "\r\nSet-Cookie")) << answer;
}

TEST_P(HttpHostile, NamesThatAreTheServers) {  // CVE-2025-66570
  Peer peer = connect();
  peer.say(get("/livez", "REMOTE_ADDR: 6.6.6.6\r\nREMOTE_PORT: 1\r\nLOCAL_ADDR: 6.6.6.6\r\n"));
  EXPECT_TRUE(says(peer.answer(), 200));
}

TEST_P(HttpHostile, RequestsInRequests) {  // CVE-2026-34441
  const std::string hidden = get("/livez");
  const std::string size = cat("Content-Length: ", hidden.size(), "\r\n");
  expect(get("/livez", size) + hidden, 400);
  expect(post(size + size, hidden, kForward), 400);
  expect(post(size + "Content-Length: 1\r\n", hidden, kForward), 400);
  expect(post(size + "Transfer-Encoding: chunked\r\n", "0\r\n\r\n" + hidden, kForward), 400);
  expect("GET /livez HTTP/1.1\nHost: x\n\n", 400);
  expect("GET /livez HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n", 400);
}

TEST_P(HttpHostile, ExceptionsStayInside) {  // CVE-2026-28434
  for (const std::string& body : {std::string("{"), std::string(30000, '['), std::string("\xff")}) {
    Peer peer = connect();
    peer.say(post(cat("Content-Length: ", body.size(), "\r\n"), body, kForward));
    const std::string answer = peer.answer();
    EXPECT_TRUE(says(answer, 400)) << answer;
    EXPECT_FALSE(has(answer, "EXCEPTION_WHAT")) << answer;
  }
}

TEST_P(HttpHostile, RangesPastTheEndAndManyOfThem) {
  Peer peer = connect();
  peer.say(get(kFile));
  const std::string file = body_of(peer.answer());
  const size_t size = file.size();
  peer.say(get(kFile, cat("Range: bytes=", size - 5, "-5000000\r\n")));
  EXPECT_EQ(body_of(peer.answer()), file.substr(size - 5));
  for (const std::string& range : {cat(size, "-"), cat(size + 4000, "-"), std::string("-0")}) {
    peer.say(get(kFile, cat("Range: bytes=", range, "\r\n")));
    const std::string answer = peer.answer();
    EXPECT_TRUE(says(answer, 416) && has(answer, cat("Content-Range: bytes */", size))) << answer;
  }
  std::string many = "Range: bytes=0-";
  for (int i = 0; i < 1500; ++i) many += ",0-";
  peer.say(get(kFile, cat(many, "\r\n")));
  EXPECT_EQ(body_of(peer.answer()), file);
  peer.say(get(kFile, cat("Range: bytes=", std::string(15000, '1'), "-\r\n")));
  EXPECT_TRUE(says(peer.answer(), 416));
}

TEST_P(HttpHostile, PathsAndFormsForBadExpressions) {  // 8824017, CVE-2026-29076
  expect(get(cat("/", std::string(8000, 'a'))), 414);
  expect(get(cat("/v1/sessions/", std::string(1100, '/'))), 414);
  const std::string form =
      cat("--b\r\nContent-Disposition: form-data; name=\"input_text\"; filename=\"",
          std::string(200000, 'a'), "\r\n\r\nx\r\n--b--\r\n");
  Peer peer = connect();
  peer.say(post(
      cat("Content-Type: multipart/form-data; boundary=b\r\nContent-Length: ", form.size(), "\r\n"),
      form, "/"));
  EXPECT_TRUE(says(peer.answer(), 400));
}

// The library listens with room for five.
TEST_P(HttpHostile, ManyConnectAtOnce) {
  constexpr int kConnections = 300;
  // OpenSSL 3.5 takes some 58 KiB for a session (3.0 stays within the usual bound).
  if (secure_) most_growth_ = kConnections * uint64_t{64};
  cloud_.process().signal(SIGSTOP);
  std::vector<Peer> peers;
  for (int i = 0; i < kConnections; ++i) {
    peers.push_back(connect());  // the kernel takes them
    if (!secure_) peers.back().say(get("/livez"));
  }
  cloud_.process().signal(SIGCONT);
  for (Peer& peer : peers) {
    if (secure_) peer.say(get("/livez"));
    EXPECT_TRUE(says(peer.answer(), 200));
  }
}

TEST_P(HttpHostile, SlowHeadsKeepNobodyWaiting) {
  std::vector<Peer> slow;
  for (int i = 0; i < 500; ++i) {
    slow.push_back(connect());
    slow.back().say("GET /livez HT");
  }
  for (int i = 0; i < 20; ++i) ask();
}

TEST_P(HttpHostile, RequestsInOnePacket) {
  Peer peer = connect();
  peer.say(get("/livez") + get("/livez") + get("/livez"));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(body_of(peer.answer()), "ok\n");
  const std::string body = R"({"tokens":[1]})";
  peer.say(post("Content-Length: 14\r\n", body, kForward) + get("/livez"));
  EXPECT_TRUE(says(peer.answer(), 200));
  EXPECT_EQ(body_of(peer.answer()), "ok\n");
}

TEST_P(HttpHostile, LargeBodiesAreRefusedByTheirHead) {
  expect(post("Content-Length: 99999999999\r\n", "", kForward), 413);
  expect(post("Content-Length: 99999999999\r\nExpect: 100-continue\r\n", "", kForward), 413);
}

class HttpHostileTls : public HostileServer {
 protected:
  HttpHostileTls() : HostileServer(true) {}
  // Returns the server's answer to bytes that begin no handshake.
  std::string plainly(std::string_view bytes) const { return last_words(port(), bytes); }
};

TEST_F(HttpHostileTls, HalfHandshakesKeepNobodyWaiting) {
  most_growth_ += 500 * 30;  // what they cost while they are there, and malloc keeps
  std::vector<Peer> half;
  for (int i = 0; i < 500; ++i) {
    half.push_back(i % 2 == 0 ? connect() : Peer(port()));  // a hello and no more, or nothing
    if (i % 4 == 1) half.back().say(std::string_view("\x16\x03\x01\x02\x00\x01", 6));
  }
  for (int i = 0; i < 20; ++i) ask();
}

TEST_F(HttpHostileTls, PlainRequestsAreToldAndNotServed) {
  for (const std::string& request :
       {get("/livez"), post("Content-Length: 14\r\n", R"({"tokens":[1]})", kForward)}) {
    const std::string answer = plainly(request + get("/livez"));
    EXPECT_TRUE(says(answer, 400) && has(answer, "https://")) << answer;
    EXPECT_FALSE(has(answer, "\r\n\r\nok\n"));
  }
  Peer endless(port());
  const std::string block(64 << 10, 'a');
  for (int i = 0; i < 1024 && endless.say(block); ++i) continue;
  EXPECT_FALSE(has(endless.to_end(), "HTTP"));
}

TEST_F(HttpHostileTls, BytesThatAreNoHandshakeEnd) {
  using namespace std::string_view_literals;
  const std::string_view rows[] = {
      "\x80\x2e\x01\x03\x01\x00\x15\x00\x00\x00\x10"sv,  // as SSL 2 began
      "\x16\x03\x01\xff\xff\x01\x00\x00\x00"sv,          // a record over the limit
      "\x16\x03\x01\x00\x00"sv,                          // one of nothing
      "\x16\x03\x01\x00\x04\x01\xff\xff\xff"sv,          // a hello of 16 MiB
      "\x16\x03\x03\x00\x04\x14\x00\x00\x00"sv,          // the end at the beginning
      "\x14\x03\x03\x00\x01\x01"sv,
      "\x15\x03\x01\x00\x02\x02\x28"sv,
      "\x17\x03\x03\x00\x04GET "sv,
      "\x18\x03\x02\x00\x03\x01\x40\x00"sv,  // a heartbeat that asks for 16 KiB
  };
  for (const std::string_view row : rows) {
    Peer peer(port());
    peer.say(row);
    peer.close_writing();
    EXPECT_LE(peer.to_end().size(), 16u) << "at most an alert to row " << &row - rows;
  }
  Peer peer(port());
  while (peer.say(std::string(64 << 10, '\0'))) continue;
}

// A request that was cut off is none, and one that is whole needs no goodbye.
TEST_F(HttpHostileTls, EndsWithoutGoodbye) {
  Peer cut = connect();
  cut.say(post("Content-Length: 14\r\n", R"({"token)", kForward));
  ::shutdown(cut.fd(), SHUT_WR);
  EXPECT_EQ(cut.to_end(), "");
  Peer whole = connect();
  whole.say(get("/livez"));
  ::shutdown(whole.fd(), SHUT_WR);
  EXPECT_EQ(body_of(whole.answer()), "ok\n");
  for (int i = 0; i < 50; ++i) {
    Peer reset = connect();
    reset.say(get("/openapi.json"));
    const linger now{1, 0};
    ::setsockopt(reset.fd(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
  }
}

TEST_F(HttpHostileTls, SecondHandshakesAreRefused) {
  TlsContext old = http::tls_client_context(files_.ca_file);
  ::SSL_CTX_set_max_proto_version(old.get(), TLS1_2_VERSION);
  ::SSL_CTX_clear_options(old.get(), SSL_OP_NO_RENEGOTIATION);
  Peer peer(port(), &old);
  ASSERT_TRUE(peer.shake_hands());
  ASSERT_EQ(::SSL_renegotiate(peer.tls()), 1);
  EXPECT_FALSE(peer.shake_hands());
}

// A client that changes its keys without end has the loop no longer than any other.
TEST_F(HttpHostileTls, NewKeysWithoutEndKeepNobodyWaiting) {
  std::atomic<bool> done{false};
  std::thread flood([&] {
    Peer peer = connect();
    bool going = peer.shake_hands();
    while (going && !done) {
      going = ::SSL_key_update(peer.tls(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1 && peer.shake_hands();
    }
  });
  for (int i = 0; i < 20; ++i) ask();
  done = true;
  flood.join();
}

// The library's accept loop ends for ever when there are no descriptors left (#2561).
TEST(HttpHostileLimits, GoesOnWhenDescriptorsAreFreeAgain) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "UBSan reads a vptr through a pipe: with no descriptors left it takes every one "
                  "for invalid";
#endif
  Process few({"/bin/sh", "-c", "ulimit -n 64; exec \"$0\" \"$@\"", program_path("cloud_server"),
               "--port", "0", "--model", kModel, "--device", "cpu", "--threads", "1"});
  const std::string mark = "listening on http://127.0.0.1:";
  ASSERT_TRUE(few.until([&] {
    const size_t at = few.err().find(mark);
    return at != std::string::npos && few.err().find('\n', at) != std::string::npos;
  })) << few.err();
  const int port = std::atoi(few.err().c_str() + few.err().find(mark) + mark.size());
  std::vector<Peer> peers;
  for (int i = 0; i < 100; ++i) {
    peers.emplace_back(port);
    peers.back().say(get("/livez", "Connection: close\r\n"));
  }
  std::vector<Peer> idle;
  // Those that ask nothing make room.
  for (int i = 0; i < 100; ++i) idle.emplace_back(port);
  EXPECT_TRUE(says(last_words(port, get("/livez", "Connection: close\r\n")), 200));
  for (Peer& peer : idle) peer.say("G");
  for (int i = 0; i < 100; ++i) {  // these hold all there are for connections
    idle.emplace_back(port);
    idle.back().say("G");
  }
  Peer waiting(port);
  bool waits = false;  // and is not refused
  for (int i = 0; i < 50 && !waits; ++i) {
    waiting = Peer(port);
    waiting.say(get("/livez"));
    pollfd answer{waiting.fd(), POLLIN, 0};
    waits = ::poll(&answer, 1, 200) == 0;
  }
  EXPECT_TRUE(waits);
  idle.clear();
  EXPECT_TRUE(says(waiting.answer(), 200));
  for (Peer& peer : peers) EXPECT_TRUE(says(peer.answer(), 200));
  few.signal(SIGTERM);
  EXPECT_EQ(few.wait(), 0) << few.err();
}

}  // namespace
}  // namespace split::test
