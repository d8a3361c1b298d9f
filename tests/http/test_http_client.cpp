// http/: the client against scripted peers and our own server, and the event reader.
#include <gtest/gtest.h>

#include <future>
#include <map>

#include "http/client.h"
#include "http/head.h"
#include "http/pace.h"
#include "http/sse.h"
#include "support/http_peer.h"
#include "support/temporary_folder.h"
#include "support/tls_testing.h"

namespace split::http {
namespace {

using std::chrono::milliseconds;

// Accepts connections one after the other; says `reply` to each request head and closes unless
// `silent`.
class Script {
 public:
  explicit Script(std::string reply, bool silent = false) {
    listener_ = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    CHECK(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&at), size) == 0 &&
          ::listen(listener_.get(), 8) == 0);
    CHECK(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&at), &size) == 0);
    port = ntohs(at.sin_port);
    thread_ = std::thread([this, reply = std::move(reply), silent] {
      for (;;) {
        Fd fd(::accept(listener_.get(), nullptr, nullptr));
        if (!fd) return;
        Peer peer(std::move(fd));
        request = peer.until("\r\n\r\n");
        asked.set_value();
        asked = {};
        peer.say(reply);
        if (silent) peer.to_end();  // until the client gives up
      }
    });
  }
  ~Script() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  std::string url() const { return cat("http://127.0.0.1:", port); }

  int port = 0;
  std::string request;
  std::promise<void> asked;

 private:
  Fd listener_;
  std::thread thread_;
};

template <typename Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return cat(error.kind() == ErrorKind::kRemote ? "" : "(not remote) ", error.what());
  }
  return "no error";
}

// `silent`: for a server that says no more.
Client::Options quick(bool silent = false) {
  Client::Options options;
  if (silent) options.read_timeout = milliseconds(200);
  options.max_reply_bytes = 1000;
  return options;
}

TEST(HttpClient, RefusesRepliesItCannotTrust) {
  const std::string ok = "HTTP/1.1 200 OK\r\n";
  const struct {
    std::string reply;
    const char* error;
    bool silent;
  } rows[] = {
      {ok + "Content-Length: 10\r\n\r\nshort", "connection lost", false},
      {ok + "\r\nuntil close", "no length", false},
      {ok + "Content-Length: 1001\r\n\r\n", "over 1000 bytes", false},
      {ok + "Content-Length: 1\r\nContent-Length: 1\r\n\r\na", "two lengths", false},
      {ok + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\na", "two lengths", false},
      {ok + "Content-Length: -1\r\n\r\n", "malformed Content-Length", false},
      {ok + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "connection lost", false},
      {ok + "Transfer-Encoding: chunked\r\n\r\n-2\r\n", "malformed chunk", false},
      {ok + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffe\r\n", "malformed chunk", false},
      {ok + "Transfer-Encoding: chunked\r\n\r\n5\r\nhelloXX0\r\n\r\n", "malformed chunk", false},
      {ok + "Transfer-Encoding: chunked\r\n\r\n" + std::string(100000, '1'), "malformed chunk",
       false},
      {ok + "Transfer-Encoding: chunked\r\n\r\n400\r\n" + std::string(1024, 'a') + "\r\n0\r\n\r\n",
       "over 1000 bytes", false},
      {ok + "Transfer-Encoding: gzip\r\n\r\n", "unknown transfer coding", false},
      {"HTTP/1.1 100 Continue\r\n\r\n", "unusable status", false},
      {"garbage\r\n\r\n", "not HTTP", false},
      {"HTTP/1.1 2x0 OK\r\n\r\n", "unusable status", false},
      {ok + "no colon\r\n\r\n", "header", false},
      {ok + "X: " + std::string(100000, 'a'), "head is too large", false},
      {"HTTP/1.1 200 " + std::string(100000, 'a'), "head is too large", false},
      {"", "connection lost", false},
      {"", "timed out", true},
      {ok + "Content-Le", "timed out", true},
      {ok + "Content-Length: 10\r\n\r\nshort", "timed out", true},
  };
  for (const auto& row : rows) {
    const Script script(row.reply, row.silent);
    Client client(script.url(), quick(row.silent));
    const std::string error = error_of([&] { client.request("GET", "/x"); });
    EXPECT_TRUE(error.starts_with(cat("[http] ", script.url(), ": ")) &&
                error.find(row.error) != std::string::npos)
        << row.reply.substr(0, 200) << "\n-> " << error;
    EXPECT_EQ(error.find('\n'), std::string::npos);
  }
}

// Says `first`, and then `again` every few milliseconds, as long as somebody takes it.
class Drip {
 public:
  Drip(std::string first, std::string again) {
    listener_ = listening();
    thread_ = std::thread([this, first = std::move(first), again = std::move(again)] {
      Fd fd(::accept(listener_.get(), nullptr, nullptr));
      if (!fd) return;
      const int raw = fd.get();
      Peer peer(std::move(fd));
      peer.until("\r\n\r\n");
      peer.say(first);
      pollfd closed{raw, POLLIN, 0};
      while (::poll(&closed, 1, 2) == 0) peer.say(again);
    });
  }
  ~Drip() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  std::string url() const { return cat("http://127.0.0.1:", port_); }

 private:
  Fd listening() {
    Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    CHECK(::bind(fd.get(), reinterpret_cast<sockaddr*>(&at), size) == 0 &&
          ::listen(fd.get(), 8) == 0);
    CHECK(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&at), &size) == 0);
    port_ = ntohs(at.sin_port);
    return fd;
  }
  int port_ = 0;
  Fd listener_;
  std::thread thread_;
};

// Never silent for long, and never done.
TEST(HttpClient, GivesUpOnAPeerThatOnlyDrips) {
  const std::string ok = "HTTP/1.1 200 OK\r\n", chunked = "Transfer-Encoding: chunked\r\n";
  Client::Options slow;
  slow.min_rate = 1 << 20;
  slow.min_rate_span = slow.event_timeout = milliseconds(60);
  Client::Options soon;
  soon.read_timeout = milliseconds(60);
  const struct {
    std::string first, again;
    Client::Options options;
    const char* error;
  } rows[] = {
      {"HTTP/1.1 200 OK\r\nX: ", "x", soon, "timed out"},
      {ok + chunked + "\r\n1;", "x", soon, "timed out"},
      {ok + "Content-Length: 1000000\r\n\r\n", "x", slow,
       "slower than 1048576 bytes/s over 0.06 s"},
      {ok + chunked + "\r\n", "1\r\nx\r\n", slow, "slower than 1048576 bytes/s over 0.06 s"},
      {ok + chunked + "Content-Type: text/event-stream\r\n\r\n", "1\r\nx\r\n", slow,
       "no event came for 0.06 s"},
  };
  for (const auto& row : rows) {
    const Drip drip(row.first, row.again);
    Client client(drip.url(), row.options);
    const std::string error = error_of([&] {
      client.get_stream(
          "/x", {}, [](Bytes) { return true; }, 1 << 20);
    });
    EXPECT_TRUE(error.ends_with(row.error)) << error;
  }
}

using Seconds = std::chrono::duration<double>;

Pace::Time at(double seconds) {
  return Pace::Time() + std::chrono::duration_cast<Pace::Time::duration>(Seconds(seconds));
}

TEST(Pace, ABodyHasItsRateFromItsFirstByteOn) {
  Pace pace({}, false, at(0));
  EXPECT_EQ(pace.due(), Pace::Time::max());  // silence is another's
  EXPECT_TRUE(pace.take(at(50), "x"));
  EXPECT_EQ(pace.due(), at(60));
  EXPECT_TRUE(pace.take(at(59), std::string(999, 'x')));
  EXPECT_EQ(pace.due(), at(60));
  EXPECT_TRUE(pace.take(at(59.5), "x"));  // 1,000 bytes in 10 s
  EXPECT_EQ(pace.due(), at(69.5));
  EXPECT_FALSE(pace.take(at(69.5), std::string(5000, 'x')));
  EXPECT_EQ(pace.missed(), "the reply is slower than 100 bytes/s over 10 s");
  Client::Options any;
  any.min_rate = 0;
  Pace patient(any, false, at(0));
  EXPECT_TRUE(patient.take(at(1), "x"));
  EXPECT_EQ(patient.due(), Pace::Time::max());
}

TEST(Pace, AStreamHasAnEventOrACommentInTime) {
  Pace pace({}, true, at(0));
  EXPECT_EQ(pace.due(), at(45));
  EXPECT_TRUE(pace.take(at(44), ": still here\n\n"));
  EXPECT_EQ(pace.due(), at(89));
  EXPECT_TRUE(pace.take(at(88), "data: x\n"));
  EXPECT_EQ(pace.due(), at(89));  // half an event
  EXPECT_TRUE(pace.take(at(88.5), "\n"));
  EXPECT_EQ(pace.due(), at(133.5));
  for (const char* nothing : {"x", "\n", "\n\n", "id: 7\n\n", "datum: x\n\n", "event: x\r\n\r\n"}) {
    EXPECT_TRUE(pace.take(at(100), nothing));
    EXPECT_EQ(pace.due(), at(133.5)) << nothing;
  }
  EXPECT_TRUE(pace.take(at(101), "data\r\n\r\n"));
  EXPECT_EQ(pace.due(), at(146));
  EXPECT_FALSE(pace.take(at(146), ":\n"));
  EXPECT_EQ(pace.missed(), "no event came for 45 s");
}

TEST(HttpClient, TakesNoMoreThanWasAskedFor) {
  const std::string chunk = "400\r\n" + std::string(1024, 'a') + "\r\n";
  Client::Options options;
  options.max_error_bytes = 2000;
  const struct {
    const char* status;
    uint64_t most;
    const char* error;
  } rows[] = {{"200 OK", 5000, "over 5000 bytes"},
              {"404 Not Found", 5000, "over 2000 bytes"},
              {"404 Not Found", 500, "over 500 bytes"}};
  for (const auto& row : rows) {
    const Drip drip(cat("HTTP/1.1 ", row.status, "\r\nTransfer-Encoding: chunked\r\n\r\n"), chunk);
    Client client(drip.url(), options);
    EXPECT_TRUE(
        error_of([&] { client.request("GET", "/", {}, {}, {}, row.most); }).ends_with(row.error));
    const Drip other(cat("HTTP/1.1 ", row.status, "\r\nTransfer-Encoding: chunked\r\n\r\n"), chunk);
    Client streams(other.url(), options);
    EXPECT_TRUE(error_of([&] {
                  streams.get_stream(
                      "/", {}, [](Bytes) { return true; }, row.most);
                }).ends_with(row.error));
  }
}

TEST(HttpClient, SaysWhyItCannotConnect) {
  int port = 0;
  {
    Server gone({});
    port = gone.bind();
  }
  Client client(cat("http://127.0.0.1:", port));
  EXPECT_EQ(error_of([&] { client.request("GET", "/"); }),
            cat("[http] http://127.0.0.1:", port, ": cannot connect: Connection refused"));
  Client nowhere("http://does-not-exist.invalid");
  EXPECT_TRUE(error_of([&] { nowhere.request("GET", "/"); }).find("cannot connect") !=
              std::string::npos);
}

// Behind a silence, and behind each further one; half a reply is none.
TEST(HttpClient, AsksWhetherASilentServerIsLost) {
  const Script script("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", true);
  Client client(script.url());
  int asked = 0;
  client.on_silence([&] { return ++asked == 2; });
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(error_of([&] { client.request("GET", "/"); }),
            cat("[http] ", script.url(), ": it does not answer"));
  EXPECT_GE(std::chrono::steady_clock::now() - start, 2 * Client::kSilence);
  EXPECT_EQ(asked, 2);
}

TEST(HttpClient, TakesGoodReplies) {
  const struct {
    const char* method;
    std::string reply;
    int status;
    const char* body;
  } rows[] = {
      {"GET", "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nX-A: b%41\r\n\r\nhello", 200, "hello"},
      {"GET", "HTTP/1.1 404\r\nContent-Length: 2\r\nX-A: b%41\r\n\r\nno", 404, "no"},
      {"GET", "HTTP/1.0 200 OK\r\nContent-Length: 0\r\nX-A: b%41\r\n\r\n", 200, ""},
      {"GET",
       "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\nX-A: "
       "b%41\r\n\r\n",
       302, ""},
      {"GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\nX-A: b%41\r\n\r\n", 304, ""},
      {"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 99999\r\nX-A: b%41\r\n\r\n", 200, ""},
      {"GET",
       "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\nX-A: b%41\r\n\r\nraw",
       200, "raw"},
      {"POST",
       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: b%41\r\n\r\n3;x=y\r\nhel\r\nA\r\nlo, "
       "world!\r\n0\r\nT: r\r\n\r\n",
       200, "hello, world!"},
  };
  for (const auto& row : rows) {
    Script script(row.reply);
    Client client(script.url(), quick());
    auto asked = script.asked.get_future();
    const Reply reply =
        client.request(row.method, "/p?q=%41", row.method == std::string("POST") ? "body" : "",
                       "a/b", {{"X-Key", "v"}});
    asked.get();
    EXPECT_EQ(reply.status, row.status) << row.reply;
    EXPECT_EQ(reply.body, row.body) << row.reply;
    EXPECT_EQ(reply.headers.get("x-a"), "b%41");
    EXPECT_TRUE(script.request.starts_with(cat(row.method, " /p?q=%41 HTTP/1.1\r\n")))
        << script.request;
    EXPECT_TRUE(script.request.find("X-Key: v\r\n") != std::string::npos);
  }
}

TEST(HttpClient, RefusesWhatCannotBeSent) {
  Client client("http://127.0.0.1:1");
  for (const char* path : {"", "x", "/a b", "/a\r\nEvil: 1", "/\xff"}) {
    EXPECT_TRUE(error_of([&] { client.request("GET", path); }).starts_with("(not remote)")) << path;
  }
  EXPECT_TRUE(error_of([&] {
                client.request("GET", "/", "", "", {{"A", "b\r\nEvil: 1"}});
              }).starts_with("(not remote)"));
}

TEST(HttpClient, SplitsUrlsIntoOriginAndPath) {
  const struct {
    const char *text, *origin, *path;
  } rows[] = {{"http://a:80", "http://a:80", ""},
              {"http://a/", "http://a", ""},
              {"https://a.b:8/c/d//", "https://a.b:8", "/c/d"},
              {"http://[::1]:9/%41", "http://[::1]:9", "/%41"}};
  for (const auto& row : rows) {
    const UrlParts parts = split_url(row.text);
    EXPECT_EQ(parts.origin, row.origin);
    EXPECT_EQ(parts.path, row.path);
  }
  for (const char* bad : {"", "a/b", "ftp://a/b", "http:///b", "http://u@a/b", "http://a/b?c",
                          "http://a/b#c", "http://a/b c", "http://a/\n", "http://a/\xc3"}) {
    EXPECT_THROW(split_url(bad), Error) << bad;
  }
}

TEST(HttpClient, ParsesUrls) {
  const auto same = [](const char* text, bool tls, const char* host, int port) {
    const Url url = parse_url(text);
    return url.tls == tls && url.host == host && url.port == port;
  };
  EXPECT_TRUE(same("http://localhost", false, "localhost", 80));
  EXPECT_TRUE(same("https://example.org/", true, "example.org", 443));
  EXPECT_TRUE(same("http://[::1]:8080", false, "::1", 8080));
  for (const char* bad :
       {"", "localhost", "ftp://x", "http://", "http://:80", "http://x:", "http://x:0",
        "http://x:65536", "http://x:8a", "http://user@x", "http://x/path", "http://x?q",
        "http://[::1", "http://[::1]x", "http://a b"}) {
    EXPECT_THROW(parse_url(bad), Error) << bad;
  }
}

TEST(HttpClient, TakesAServerAsPeopleWriteIt) {
  const std::pair<const char*, const char*> rows[] = {{"localhost:8080", "http://localhost:8080"},
                                                      {"http://a:8080/", "http://a:8080"},
                                                      {"http://a:8080/v1", "http://a:8080"},
                                                      {"https://a/split/v1/", "https://a/split"},
                                                      {"a/split", "http://a/split"},
                                                      {"[::1]:8080", "http://[::1]:8080"}};
  for (const auto& [text, url] : rows) EXPECT_EQ(server_url(text), url) << text;
  for (const char* bad : {"", "ftp://a", "a b", "http://a:0", "http://a?b"}) {
    EXPECT_THROW(server_url(bad), Error) << bad;
  }
}

TEST(HttpClient, AsksBelowThePathOfItsUrl) {
  Script script("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  Client client(script.url() + "/split");
  EXPECT_EQ(client.origin(), script.url() + "/split");
  EXPECT_EQ(client.request("GET", "/v1/models").status, 200);
  EXPECT_TRUE(script.request.starts_with("GET /split/v1/models HTTP/1.1\r\n"));
}

TEST(HttpClient, AsksThroughAProxy) {
  Script script("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  Client::Options options;
  options.proxy = Proxy{"127.0.0.1", parse_url(script.url()).port, "Basic dTpw"};
  Client client("http://cloud.example:8080", options);
  EXPECT_EQ(client.request("GET", "/livez").status, 200);
  const std::string head = script.request;
  EXPECT_TRUE(head.starts_with("GET http://cloud.example:8080/livez HTTP/1.1\r\n")) << head;
  EXPECT_NE(head.find("Proxy-Authorization: Basic dTpw\r\n"), std::string::npos) << head;
  EXPECT_NE(head.find("Host: cloud.example:8080\r\n"), std::string::npos) << head;
}

TEST(HttpClient, AsksAProxyForAConnectionToATlsServer) {
  Script script("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n");
  Client::Options options;
  options.proxy = Proxy{"127.0.0.1", parse_url(script.url()).port, {}};
  Client client("https://cloud.example", options);
  const std::string error = error_of([&] { client.request("GET", "/livez"); });
  EXPECT_NE(error.find("the proxy answers 403"), std::string::npos) << error;
  EXPECT_TRUE(script.request.starts_with("CONNECT cloud.example:443 HTTP/1.1\r\n"));
}

TEST(HttpClient, FindsItsProxyAsCurlDoes) {
  std::map<std::string, std::string> variables;
  const auto at = [&](const char* url) -> std::string {
    const auto proxy = proxy_for(parse_url(url), [&](const char* name) -> const char* {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second.c_str();
    });
    return proxy ? cat(proxy->host, ":", proxy->port, proxy->authorization.empty() ? "" : " ",
                       proxy->authorization)
                 : "none";
  };
  EXPECT_EQ(at("http://a"), "none");
  variables["HTTP_PROXY"] = "p:3128";
  EXPECT_EQ(at("http://a"), "p:3128");
  EXPECT_EQ(at("https://a"), "none");
  variables["https_proxy"] = "http://u:p%40@q/";
  variables["HTTPS_PROXY"] = "http://other";
  EXPECT_EQ(at("https://a"), "q:1080 Basic dTpwQA==");
  EXPECT_EQ(at("http://127.0.0.1:8080"), "none");
  EXPECT_EQ(at("http://localhost"), "none");
  variables["NO_PROXY"] = "example.org, .lan,10.0.0.0/8";
  EXPECT_EQ(at("http://example.org"), "none");
  EXPECT_EQ(at("http://a.EXAMPLE.org"), "none");
  EXPECT_EQ(at("http://anexample.org"), "p:3128");
  EXPECT_EQ(at("http://x.lan"), "none");
  EXPECT_EQ(at("http://10.1.2.3"), "none");
  EXPECT_EQ(at("http://11.1.2.3"), "p:3128");
  variables["no_proxy"] = "*";
  EXPECT_EQ(at("http://11.1.2.3"), "none");
  variables = {{"all_proxy", "socks5://p"}};
  EXPECT_THROW(at("http://a"), Error);
}

TEST(HttpClient, CancelEndsTheRequest) {
  Script script("", true);
  auto asked = script.asked.get_future();
  Client client(script.url());
  auto error =
      std::async(std::launch::async, [&] { return error_of([&] { client.request("GET", "/"); }); });
  asked.get();
  client.cancel();
  EXPECT_TRUE(error.get().ends_with(": cancelled"));
  EXPECT_TRUE(error_of([&] { client.request("GET", "/"); }).ends_with(": cancelled"));
}

// Without and with TLS between.
class HttpPair : public ::testing::TestWithParam<bool> {
 protected:
  Server::Options server_options() const {
    Server::Options options;
    if (GetParam()) options.tls_cert_file = tls_.cert_file;
    options.tls_key_file = tls_.key_file;
    return options;
  }
  Client::Options client_options() const {
    Client::Options options;
    options.ca_cert_file = tls_.ca_file;
    return options;
  }
  std::string url() const {
    return cat(GetParam() ? "https" : "http", "://127.0.0.1:", running.port);
  }
  // Whether this was told, in a minute.
  bool hears(char what) const {
    const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (told != what && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    return told == what;
  }
  std::atomic<char> told{0};
  test::TemporaryFolder folder_;
  const test::TlsFiles tls_{folder_.path};
  Running running{server_options(), [this](Server& server) {
                    server.route("POST", "/echo",
                                 [](const Request& r) { return Response::text(200, r.body); });
                    server.route("GET", "/events", [](const Request&) {
                      return Response::events([](Sink& sink) {
                        for (int i = 0; i < 3; ++i) sink.write(sse_event(cat("{\"i\":", i, "}")));
                        sink.write(sse_done());
                        return Streamed::kDone;
                      });
                    });
                    server.route("DELETE", "/told/{what}", [this](const Request& r) {
                      told = r.path_params[0][0];
                      return Response::text(200, "heard");
                    });
                    server.route("GET", "/blob", [](const Request&) {
                      return Response::bytes({as_bytes_of("0123456789")}, nullptr, "a/b", "\"t\"");
                    });
                  }};
  Client client{url(), client_options()};
};
INSTANTIATE_TEST_SUITE_P(Over, HttpPair, ::testing::Bool(),
                         [](const auto& over) { return over.param ? "Tls" : "Tcp"; });

TEST_P(HttpPair, KeepsOneConnection) {
  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(client.request("POST", "/echo", std::to_string(i)).body, std::to_string(i));
  EXPECT_EQ(running.server.stats().connections, 1u);
  const std::string large(20 << 20, 'x');
  EXPECT_TRUE(client.request("POST", "/echo", large).body == large);
}

// The last word comes through although its client is gone by then, and nothing else is asked there.
TEST_P(HttpPair, HearsTheLastWordOfAConnection) {
  EXPECT_FALSE(client.tell("DELETE", "/told/a"));  // there is none
  for (const char what : {'b', 'c'}) {
    EXPECT_EQ(client.request("POST", "/echo", "x").body, "x");
    EXPECT_TRUE(client.tell("DELETE", cat("/told/", what)));
    EXPECT_TRUE(hears(what));
  }
  EXPECT_EQ(client.connections(), 2u);
  {
    Client last(url(), client_options());
    EXPECT_EQ(last.request("POST", "/echo", "d").body, "d");
    EXPECT_TRUE(last.tell("DELETE", "/told/d"));
  }
  EXPECT_TRUE(hears('d'));
}

TEST_P(HttpPair, ReconnectsWhenTheServerHasClosed) {
  EXPECT_EQ(client.request("POST", "/echo", "a", "", {{"Connection", "close"}}).body, "a");
  EXPECT_EQ(client.request("POST", "/echo", "b").body, "b");
}

TEST_P(HttpPair, GetsTheAnswerToABodyNobodyReads) {
  const Reply reply = client.request("POST", "/echo", std::string(65 << 20, 'x'));
  EXPECT_EQ(reply.status, 413);
  EXPECT_EQ(client.request("POST", "/echo", "b").body, "b");
}

TEST_P(HttpPair, StreamsEvents) {
  std::vector<std::string> events;
  SseParser parser([&](std::string_view data) {
    events.emplace_back(data);
    return true;
  });
  const Reply reply = client.get_stream(
      "/events", {}, [&](Bytes bytes) { return parser.feed(as_text(bytes)); }, 1000);
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(events, (std::vector<std::string>{"{\"i\":0}", "{\"i\":1}", "{\"i\":2}", "[DONE]"}));
}

TEST_P(HttpPair, StreamsCanStopAndFailAndAreCapped) {
  EXPECT_EQ(client
                .get_stream(
                    "/blob", {}, [](Bytes) { return false; }, 10)
                .status,
            200);
  EXPECT_THROW(client.get_stream(
                   "/blob", {}, [](Bytes) -> bool { throw std::logic_error("mine"); }, 10),
               std::logic_error);
  EXPECT_TRUE(error_of([&] {
                client.get_stream(
                    "/blob", {}, [](Bytes) { return true; }, 9);
              }).ends_with("over 9 bytes"));
  std::string got;
  const auto keep = [&](Bytes bytes) {
    got += as_text(bytes);
    return true;
  };
  EXPECT_EQ(client.get_stream("/blob", {{"Range", "bytes=2-4"}}, keep, 10).status, 206);
  EXPECT_EQ(got, "234");
  const Reply missing = client.get_stream("/none", {}, keep, 1000);
  EXPECT_EQ(missing.status, 404);
  EXPECT_TRUE(missing.body.find("not_found") != std::string::npos);
  EXPECT_EQ(got, "234");
  EXPECT_EQ(client.request("GET", "/blob", "", "", {{"If-None-Match", "\"t\""}}).status, 304);
  EXPECT_EQ(client.request("GET", "/blob").body, "0123456789");
}

TEST(Sse, ReadsEventsInAnyPieces) {
  const std::string text =
      "\xef\xbb\xbf: hello\n\ndata: one\n\nevent: x\ndata:two\r\ndata: lines\r\n\r\nid: "
      "7\n\ndatum: no\ndata\n\n"
      "data:  three\rdata: four\r\r" +
      sse_event("a\nb") + sse_comment("c\nd") + sse_done() + "data: unfinished\n";
  const std::vector<std::string> expected = {"one",          "two\nlines", "",
                                             " three\nfour", "a\nb",       "[DONE]"};
  for (size_t first = 0; first <= text.size(); ++first) {
    for (size_t second = first; second <= text.size(); second += 7) {
      std::vector<std::string> events;
      SseParser parser([&](std::string_view data) {
        events.emplace_back(data);
        return true;
      });
      parser.feed(std::string_view(text).substr(0, first));
      parser.feed(std::string_view(text).substr(first, second - first));
      parser.feed(std::string_view(text).substr(second));
      ASSERT_EQ(events, expected) << first << " " << second;
    }
  }
}

TEST(Sse, StopsAndCaps) {
  int seen = 0;
  SseParser stops([&](std::string_view) { return ++seen < 2; });
  EXPECT_FALSE(stops.feed("data: 1\n\ndata: 2\n\ndata: 3\n\n"));
  EXPECT_EQ(seen, 2);
  SseParser capped([](std::string_view) { return true; }, 10);
  EXPECT_THROW(capped.feed("data: 12345678"), Error);
  SseParser many([](std::string_view) { return true; }, 20);
  EXPECT_THROW(many.feed("data: 12345678\ndata: 12345678\ndata: 1"), Error);
}

}  // namespace
}  // namespace split::http
