// http/: the guard before the routes and the observer behind them.
#include <gtest/gtest.h>

#include <mutex>

#include "http/body_checksum.h"
#include "http/client.h"
#include "support/http_peer.h"

namespace split::http {
namespace {

std::string name_of(const Headers& headers) {
  const auto key = headers.get("Authorization");
  if (key == "Bearer ann") return "ann";
  throw HttpError(401, "invalid_api_key", "no", {}, {{"WWW-Authenticate", "Bearer"}});
}

class HttpGuard : public ::testing::Test {
 protected:
  struct Seen {
    std::string route, principal;
    int status;
    uint64_t in, out;
  };
  static Server::Options options() {
    Server::Options options;
    options.cors_origins = {"*"};
    return options;
  }
  void add(Server& server) {
    server.route(
        "GET", "/open", [](const Request&) { return Response::text(200, "open"); }, Access::kOpen);
    server.route("GET", "/who", [](const Request& r) { return Response::text(200, r.principal); });
    server.route("POST", "/echo/{n}", [](const Request& r) { return Response::text(200, r.body); });
    server.router().set_guard(name_of);
    server.router().add_observer([this](const Request& r, const Answered& a) {
      const std::lock_guard lock(mutex_);
      seen_.push_back({std::string(a.route), r.principal, a.status, a.bytes_in, a.bytes_out});
    });
  }
  std::mutex mutex_;
  std::vector<Seen> seen_;
  Running running{options(), [this](Server& server) { add(server); }};
  int port = running.port;
};

TEST_F(HttpGuard, LetsInWhomItNames) {
  Peer peer(port);
  peer.say(get("/open"));
  EXPECT_EQ(body_of(peer.answer()), "open");
  peer.say(get("/who"));
  const std::string refused = peer.answer();
  EXPECT_TRUE(says(refused, 401) && has(refused, "WWW-Authenticate: Bearer\r\n")) << refused;
  EXPECT_FALSE(has(refused, "Connection: close")) << refused;
  for (const char* wrong : {"Bearer bob", "Bearer ann ", "bearer", ""}) {
    peer.say(get("/who", cat("Authorization: ", wrong, "x\r\n")));
    EXPECT_TRUE(says(peer.answer(), 401)) << wrong;
  }
  peer.say("HEAD /who HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(says(peer.until("\r\n\r\n"), 401));
  peer.say(get("/who", "Authorization: Bearer ann\r\n"));
  EXPECT_EQ(body_of(peer.answer()), "ann");
  peer.say(get("/nowhere"));  // there is nothing to guard
  EXPECT_TRUE(says(peer.answer(), 404));
}

// A page asks without its key what it may send; and may read why it was refused.
TEST_F(HttpGuard, LeavesPreflightsAlone) {
  Peer peer(port);
  peer.say(
      "OPTIONS /who HTTP/1.1\r\nHost: x\r\nOrigin: http://page\r\n"
      "Access-Control-Request-Method: GET\r\n\r\n");
  EXPECT_TRUE(says(peer.until("\r\n\r\n"), 204));
  peer.say(get("/who", "Origin: http://page\r\n"));
  const std::string refused = peer.answer();
  EXPECT_TRUE(says(refused, 401) && has(refused, "Access-Control-Allow-Origin: http://page\r\n"));
}

TEST_F(HttpGuard, RefusesLargeBodiesByTheirHead) {
  const std::string head = post("Content-Length: 1000000\r\n", "", "/echo/1");
  EXPECT_TRUE(says(last_words(port, head), 401));  // none of the body was ever sent
  Peer peer(port);
  const std::string body(1000000, 'x');
  peer.say(post("Content-Length: 1000000\r\nAuthorization: Bearer ann\r\n", body, "/echo/1"));
  EXPECT_EQ(body_of(peer.answer()), body);
}

TEST_F(HttpGuard, ObserversSeeEachAnswer) {
  std::string first;
  {
    Peer peer(port);
    peer.say(post("Content-Length: 5\r\nAuthorization: Bearer ann\r\n", "hello", "/echo/7"));
    first = peer.answer();
    peer.say(get("/who"));
    peer.answer();
    peer.say(get("/nowhere"));
    peer.answer();
    peer.say(get("/open"));  // its answer comes after the others have been seen
    peer.answer();
  }
  running.stop();
  ASSERT_EQ(seen_.size(), 4u);
  EXPECT_EQ(seen_[0].route, "/echo/{n}");
  EXPECT_EQ(seen_[0].principal, "ann");
  EXPECT_EQ(seen_[0].status, 200);
  EXPECT_EQ(seen_[0].in, 5u);
  EXPECT_EQ(seen_[0].out, first.size());
  EXPECT_EQ(seen_[1].route, "/who");
  EXPECT_EQ(seen_[1].principal, "");
  EXPECT_EQ(seen_[1].status, 401);
  EXPECT_EQ(seen_[2].route, "");
  EXPECT_EQ(seen_[2].status, 404);
  EXPECT_EQ(seen_[3].route, "/open");
}

// Bytes that changed on their way are no other request and no other answer.
TEST(HttpCheck, TellsDamageFromARequest) {
  const Running running({}, [](Server& server) {
    server.route("POST", "/echo", [](const Request& r) { return Response::text(200, r.body); });
    server.route("GET", "/echo", [](const Request&) { return Response::text(200, "got"); });
  });
  const auto ask = [&](const std::string& method, const std::string& target,
                       const std::string& body, const std::string& check) {
    Peer peer(running.port);
    peer.say(cat(method, " ", target, " HTTP/1.1\r\nHost: x\r\n", kCheckHeader, ": ", check,
                 "\r\nConnection: close\r\n",
                 body.empty() ? "" : cat("Content-Length: ", body.size(), "\r\n"), "\r\n", body));
    return peer.to_end();
  };
  const std::string good = check_of("POST /echo?a=1", "hello");
  const std::string answer = ask("POST", "/echo?a=1", "hello", good);
  EXPECT_TRUE(says(answer, 200));
  EXPECT_TRUE(has(answer, cat(kCheckHeader, ": ", check_of("200", "hello"), "\r\n"))) << answer;
  for (const std::string& damaged :
       {ask("POST", "/echo?a=1", "hellp", good), ask("POST", "/echo?a=0", "hello", good),
        ask("POST", "/echo?a=1", "hell", good), ask("POST", "/fcho?a=1", "hello", good),
        ask("GET", "/echo", "", check_of("POST /echo", "")),
        ask("POST", "/echo?a=1", "hello", "crc32c=00000000"),
        ask("POST", "/echo?a=1", "hello", "crc32c=")}) {
    EXPECT_TRUE(says(damaged, 400) && has(damaged, "\"damaged\"")) << damaged;
    EXPECT_FALSE(has(damaged, kCheckHeader));
  }
  const std::string other = ask("POST", "/echo", "hello", "xxh3=0123");
  EXPECT_TRUE(says(other, 200) && !has(other, kCheckHeader)) << other;
  EXPECT_TRUE(says(ask("HEAD", "/echo", "", check_of("HEAD /echo", "")), 200));
  const std::string missing = ask("GET", "/none", "", check_of("GET /none", ""));
  EXPECT_TRUE(says(missing, 404) && has(missing, kCheckHeader)) << missing;
}

}  // namespace
}  // namespace split::http
