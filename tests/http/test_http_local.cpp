// http/: by which names a server may be called, from which pages, and for whom a proxy asks.
#include <gtest/gtest.h>

#include "http/network.h"
#include "http/server/local_guard.h"
#include "support/http_peer.h"

namespace split::http {
namespace {

bool lets_in(const Guard& guard, const Headers& headers) {
  try {
    guard(headers);
    return true;
  } catch (const HttpError& error) {
    EXPECT_EQ(error.status, 403);
    EXPECT_EQ(error.code, "not_local");
    return false;
  }
}

TEST(HttpLocalGuard, KnowsTheNamesOfThisMachine) {
  const Guard guard = local_guard({"Cloud.example", "10.0.0.7"});
  for (const char* host : {"localhost", "LocalHost:8080", "127.0.0.1", "127.1.2.3:80", "[::1]",
                           "[::1]:8080", "cloud.example", "CLOUD.EXAMPLE:443", "10.0.0.7:1"}) {
    EXPECT_TRUE(lets_in(guard, {{"Host", host}})) << host;
  }
  for (const char* host :
       {"", "evil.example", "localhost.evil.example", "localhost:18090@evil", "localhost:80:80",
        "localhost:", "localhost:http", "[::1", "[::2]", "::1", "127.0.0.1.evil.example", "0.0.0.0",
        "xcloud.example", "cloud.example.", "localhost/", "a b", "[localhost]"}) {
    EXPECT_EQ(lets_in(guard, {{"Host", host}}), std::string_view(host) == "localhost:") << host;
  }
  EXPECT_FALSE(lets_in(guard, {}));
}

TEST(HttpLocalGuard, LetsPagesOfThisMachineAskAndThoseNamed) {
  const Guard guard = local_guard({"cloud.example"}, {"https://page.example"});
  const auto from = [&](const char* origin) {
    return lets_in(guard, {{"Host", "localhost"}, {"Origin", origin}});
  };
  for (const char* origin : {"http://localhost:3000", "https://127.0.0.1", "http://[::1]:80",
                             "https://cloud.example", "https://page.example"}) {
    EXPECT_TRUE(from(origin)) << origin;
  }
  for (const char* origin :
       {"http://evil.example", "null", "", "x://localhost", "ftp://localhost", "localhost",
        "http://localhost:18090@evil", "http://localhost/", "http://page.example",
        "https://page.example:443", "http://localhost.evil.example"}) {
    EXPECT_FALSE(from(origin)) << origin;
  }
  const Guard open = local_guard({}, {"*"});
  EXPECT_TRUE(lets_in(open, {{"Host", "localhost"}, {"Origin", "http://any.example"}}));
  EXPECT_FALSE(lets_in(open, {{"Host", "any.example"}, {"Origin", "http://any.example"}}));
}

TEST(HttpNetwork, ContainsAddresses) {
  const auto in = [](const char* network, const char* address) {
    return Network::parse(network).contains(address);
  };
  EXPECT_TRUE(in("10.0.0.0/8", "10.255.1.2"));
  EXPECT_FALSE(in("10.0.0.0/8", "11.0.0.0"));
  EXPECT_TRUE(in("10.1.128.0/17", "10.1.129.1"));
  EXPECT_FALSE(in("10.1.128.0/17", "10.1.127.1"));
  EXPECT_TRUE(in("127.0.0.1", "127.0.0.1"));
  EXPECT_TRUE(in("127.0.0.1", "::ffff:127.0.0.1"));
  EXPECT_FALSE(in("127.0.0.1", "127.0.0.2"));
  EXPECT_TRUE(in("0.0.0.0/0", "8.8.8.8"));
  EXPECT_FALSE(in("0.0.0.0/0", "::1"));
  EXPECT_TRUE(in("fd00::/8", "fd12::1"));
  EXPECT_TRUE(in("::/0", "fe80::1"));
  EXPECT_FALSE(in("fd00::/8", "fe00::1"));
  EXPECT_FALSE(in("::/0", "nonsense"));
  for (const char* wrong : {"", "10.0.0", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/-1",
                            "host.example", "10.0.0.0/8/8", "10.0.0.1 "}) {
    EXPECT_THROW(Network::parse(wrong), Error) << wrong;
  }
}

TEST(HttpNetwork, FindsTheClientBehindProxies) {
  const Network proxies[] = {Network::parse("127.0.0.1"), Network::parse("10.0.0.0/8")};
  const auto client = [&](const char* peer, std::vector<std::string> lists) {
    Headers headers;
    for (std::string& list : lists) headers.add("x-forwarded-for", std::move(list));
    return client_address(peer, headers, proxies);
  };
  EXPECT_EQ(client("127.0.0.1", {}), "127.0.0.1");
  EXPECT_EQ(client("127.0.0.1", {"192.0.2.7"}), "192.0.2.7");
  EXPECT_EQ(client("192.0.2.1", {"192.0.2.7"}), "192.0.2.1");  // whom nobody trusts
  EXPECT_EQ(client("127.0.0.1", {"6.6.6.6, 192.0.2.7 ,10.1.1.1"}), "192.0.2.7");
  EXPECT_EQ(client("127.0.0.1", {"6.6.6.6", "192.0.2.7", "10.1.1.1"}), "192.0.2.7");
  EXPECT_EQ(client("127.0.0.1", {"192.0.2.7, unknown, 10.1.1.1"}), "10.1.1.1");
  EXPECT_EQ(client("127.0.0.1", {"::FFFF:192.0.2.7"}), "192.0.2.7");
  EXPECT_EQ(client("127.0.0.1", {"2001:DB8::1"}), "2001:db8::1");
  for (const char* wrong : {"", ",", "a\tb", "192.0.2.7:80", "<script>"}) {
    EXPECT_EQ(client("127.0.0.1", {wrong}), "127.0.0.1") << wrong;
  }
}

void add_peer(Server& server) {
  server.route("GET", "/peer", [](const Request& r) { return Response::text(200, r.peer); });
  server.route("GET", "/host", [](const Request& r) {
    return Response::text(
        200, cat(*r.headers.get("Host"), " ", r.path, " ", r.query("a").value_or("-")));
  });
}

TEST(HttpServerProxies, HaveNoLimitOfTheirOwnAndNameTheClient) {
  const Running running({.max_per_address = 1, .trusted_proxies = {"127.0.0.0/8"}}, add_peer);
  std::vector<Peer> peers;
  for (int i = 0; i < 5; ++i) {
    peers.emplace_back(running.port);
    peers.back().say(get("/peer", "X-Forwarded-For: 192.0.2.7\r\n"));
    EXPECT_EQ(body_of(peers.back().answer()), "192.0.2.7");
  }
  const Running wary({}, add_peer);  // trusts nobody, not even this machine
  Peer peer(wary.port);
  peer.say(get("/peer", "X-Forwarded-For: 192.0.2.7\r\n"));
  EXPECT_EQ(body_of(peer.answer()), "127.0.0.1");
  EXPECT_THROW(Server({.trusted_proxies = {"localhost"}}), Error);
}

TEST(HttpServerTargets, MayNameTheServer) {
  const Running running({}, add_peer);
  const auto ask = [&](const std::string& target, const std::string& host = "x") {
    return last_words(running.port, cat("GET ", target, " HTTP/1.1\r\nHost: ", host,
                                        "\r\nConnection: close\r\n\r\n"));
  };
  EXPECT_EQ(body_of(ask("/host?a=1")), "x /host 1");
  EXPECT_EQ(body_of(ask("http://there.example/host?a=1")), "there.example /host 1");
  EXPECT_EQ(body_of(ask("HTTPS://there.example:8080/host", "other")), "there.example:8080 /host -");
  EXPECT_EQ(body_of(ask("http://[::1]:8/host")), "[::1]:8 /host -");
  for (const char* nothing :
       {"http://there.example", "http://there.example/?a=1", "http://there.example?a=/host"}) {
    EXPECT_TRUE(says(ask(nothing), 404)) << nothing;
  }
  for (const char* wrong :
       {"http:///host", "http://", "ftp://x/host", "http://a@x/host", "http://x:y/host", "x/host",
        "http://x y/host", "http:/x/host", "//x:80:80/host#"}) {
    const std::string answer = ask(wrong);
    EXPECT_TRUE(says(answer, 400)) << wrong << "\n" << answer;
  }
  EXPECT_TRUE(says(
      last_words(running.port, "OPTIONS http://x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
      204));
}

TEST(HttpServerTargets, HostIsANameAndPerhapsAPort) {
  const Running running({}, add_peer);
  const auto status = [&](const std::string& host) {
    return last_words(running.port,
                      cat("GET /peer HTTP/1.1\r\nHost: ", host, "\r\nConnection: close\r\n\r\n"))
        .substr(9, 3);
  };
  for (const char* good : {"a", "a:1", "[::1]", "[::1]:65535", "a_b.c-d", "", "a:", "%41"}) {
    EXPECT_EQ(status(good), "200") << good;
  }
  for (const char* wrong :
       {"a b", "a b/c@d", "a/b", "a@b", "a:b", "a:1:1", "[::1", "[g]", ":80", "a,b c", "a\\b"}) {
    EXPECT_EQ(status(wrong), "400") << wrong;
  }
}

}  // namespace
}  // namespace split::http
