// http/: TLS of the server against raw sessions, and what its client trusts. That requests and
// answers are the same with and without TLS is with the client's tests.
#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include <array>

#include "http/client.h"
#include "http/tls.h"
#include "support/http_peer.h"
#include "support/temporary_folder.h"
#include "support/tls_testing.h"

namespace split::http {
namespace {

using std::chrono::milliseconds;

// One that would speak anything.
TlsContext lax_context(const std::string& ca_file, int most_version = TLS1_3_VERSION) {
  TlsContext context = tls_client_context(ca_file);
  ::SSL_CTX_set_min_proto_version(context.get(), 0);
  ::SSL_CTX_set_max_proto_version(context.get(), most_version);
  ::SSL_CTX_set_security_level(context.get(), 0);  // or it would not even ask
  ::SSL_CTX_set_cipher_list(context.get(), "ALL");
  return context;
}

class HttpTls : public ::testing::Test {
 protected:
  Server::Options options() const { return with(tls_); }
  static Server::Options with(const test::TlsFiles& files) {
    Server::Options options;
    options.tls_cert_file = files.cert_file;
    options.tls_key_file = files.key_file;
    return options;
  }
  static void add_routes(Server& server) {
    server.route("GET", "/hi", [](const Request& r) {
      return Response::text(200, r.secure ? "hi, secure" : "hi");
    });
    server.route("POST", "/echo", [](const Request& r) { return Response::text(200, r.body); });
  }
  // Returns the error of a client that trusts `ca_file`; "" for an answer.
  static std::string error_of(const std::string& url, const std::string& ca_file) {
    Client::Options options;
    options.ca_cert_file = ca_file;
    try {
      Client(url, options).request("GET", "/hi");
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kRemote) << error.what();
      EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos);
      return error.what();
    }
  }
  test::TemporaryFolder folder_;
  const test::TlsFiles tls_{folder_.path};
};

TEST_F(HttpTls, SpeaksOnePointTwoAndUp) {
  const Running running(options(), add_routes);
  for (const auto& [version, name] :
       {std::pair{TLS1_2_VERSION, "TLSv1.2"}, {TLS1_3_VERSION, "TLSv1.3"}}) {
    const TlsContext context = lax_context(tls_.ca_file, version);
    Peer peer(running.port, &context);
    ASSERT_TRUE(peer.shake_hands()) << name;
    EXPECT_STREQ(::SSL_get_version(peer.tls()), name);
    peer.say(get("/hi"));
    EXPECT_EQ(body_of(peer.answer()), "hi, secure");
  }
  const TlsContext before = lax_context(tls_.ca_file, TLS1_1_VERSION);
  Peer old(running.port, &before);
  EXPECT_FALSE(old.shake_hands());
}

// A record that is longer than what the server takes at once: no event tells of its rest.
TEST_F(HttpTls, KeepsBytesThatAreDecryptedAlready) {
  Server::Options small = options();
  small.max_head_bytes = 128;
  const Running running(small, add_routes);
  const TlsContext context = tls_client_context(tls_.ca_file);
  Peer peer(running.port, &context);
  const std::string body(16000, 'b');
  peer.say(post("Content-Length: 16000\r\n", body));
  EXPECT_TRUE(body_of(peer.answer()) == body);
  std::string many;  // and several requests in one record
  for (int i = 0; i < 40; ++i) many += post("Content-Length: 3\r\n", cat(i + 100));
  peer.say(many);
  for (int i = 0; i < 40; ++i) EXPECT_EQ(body_of(peer.answer()), cat(i + 100));
}

// A client that changes its keys again and again has a call no longer than any other.
TEST_F(HttpTls, ReadsOneRecordACall) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const Fd ours(ends[0]), theirs(ends[1]);
  const TlsContext trusting = tls_client_context(tls_.ca_file);
  const TlsContext serving = tls_server_context(tls_.cert_file, tls_.key_file);
  const TlsSession client = tls_connect(trusting, ours.get(), "localhost");
  const TlsSession server = tls_accept(serving, theirs.get());
  while (tls_handshake(client.get()) != TlsNext::kDone) tls_handshake(server.get());
  while (tls_handshake(server.get()) != TlsNext::kDone) continue;
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(::SSL_key_update(client.get(), SSL_KEY_UPDATE_NOT_REQUESTED), 1);
    ASSERT_EQ(tls_handshake(client.get()), TlsNext::kDone);
  }
  size_t n = 0, calls = 1;
  ASSERT_EQ(tls_write(client.get(), "x", n), TlsNext::kDone);
  char byte = 0;
  while (tls_read(server.get(), {&byte, 1}, n) == TlsNext::kRead) ++calls;
  EXPECT_EQ(byte, 'x');
  EXPECT_EQ(calls, 21u);
}

TEST_F(HttpTls, TellsPlainClientsWhatItSpeaks) {
  const Running running(options(), add_routes);
  const std::string answer = last_words(running.port, get("/hi"));
  EXPECT_TRUE(says(answer, 400) && has(answer, "https://")) << answer;
  EXPECT_EQ(last_words(running.port, "\x16\x03\x01nonsense, nonsense").find("HTTP"),
            std::string::npos);
  const Running plain({}, add_routes);
  const std::string error = error_of(cat("https://127.0.0.1:", plain.port), tls_.ca_file);
  EXPECT_TRUE(has(error, "cannot connect: TLS: ")) << error;
}

TEST_F(HttpTls, SlowHandshakesCostNoThreadAndEnd) {
  Server::Options quick = options();
  quick.head_timeout = std::chrono::seconds(3);
  const Running running(quick, add_routes);
  std::vector<Peer> slow;
  for (int i = 0; i < 200; ++i) {
    slow.emplace_back(running.port);
    if (i % 2 == 0) slow.back().say(std::string_view("\x16\x03\x01\x02\x00\x01", 6));  // its begin
  }
  EXPECT_EQ(error_of(cat("https://127.0.0.1:", running.port), tls_.ca_file), "");
  EXPECT_LE(running.server.stats().workers, 8u);
  for (Peer& peer : slow) EXPECT_EQ(peer.to_end(), "");  // though it never ended a record
}

TEST_F(HttpTls, TheOldestOfManyHandshakesGivesWay) {
  Server::Options few = options();
  few.max_handshakes = 4;
  few.head_timeout = std::chrono::hours(1);
  const Running running(few, add_routes);
  const TlsContext context = tls_client_context(tls_.ca_file);
  std::vector<Peer> peers;
  for (int i = 0; i < 10; ++i) {
    peers.emplace_back(running.port);
    if (i % 2 == 0) peers.back().say(std::string_view("\x16\x03\x01\x02\x00\x01", 6));
  }
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(peers[i].to_end(), "");
  for (int i = 0; i < 20; ++i) {
    Peer peer(running.port, &context);
    peer.say(get("/hi"));
    EXPECT_EQ(body_of(peer.answer()), "hi, secure");
    if (i == 0) {
      EXPECT_LE(running.server.stats().connections, 5u);
    }
  }
}

// One deadline for the handshake, not one for each of its bytes.
TEST_F(HttpTls, AHandshakeInSingleBytesEndsToo) {
  Server::Options quick = options();
  quick.head_timeout = milliseconds(200);
  const Running running(quick, add_routes);
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const Fd ours(ends[0]), theirs(ends[1]);
  const TlsContext context = tls_client_context(tls_.ca_file);
  const TlsSession session = tls_connect(context, ours.get(), "localhost");
  tls_handshake(session.get());
  std::array<char, 4096> hello;
  const ssize_t size = ::recv(theirs.get(), hello.data(), hello.size(), 0);
  ASSERT_GT(size, 100);
  Peer peer(running.port);
  pollfd answer{peer.fd(), POLLIN, 0};
  ssize_t said = 0;
  while (said < size && peer.say({&hello[static_cast<size_t>(said)], 1})) {
    ++said;
    if (::poll(&answer, 1, 10) != 0) break;
  }
  EXPECT_LT(said, size);
  EXPECT_EQ(peer.to_end(), "");
}

TEST_F(HttpTls, StopsWithoutWaitingForHandshakes) {
  Running running(options(), add_routes);
  Peer silent(running.port);
  EXPECT_EQ(error_of(cat("https://127.0.0.1:", running.port), tls_.ca_file), "");
  running.stop();
  EXPECT_EQ(silent.to_end(), "");
}

TEST_F(HttpTls, GivesUpOnReadersThatStop) {
  const std::string large(64 << 20, 'z');
  Server::Options quick = options();
  quick.min_write_rate = 1ull << 40;
  quick.write_timeout = milliseconds(100);
  const Running running(quick, [&](Server& server) {
    server.route("GET", "/large", [&](const Request&) {
      return Response::bytes({as_bytes_of(large)}, nullptr, "a/b", "");
    });
  });
  const TlsContext context = tls_client_context(tls_.ca_file);
  Peer peer(running.port, &context);
  peer.say(get("/large"));
  peer.until("\r\n\r\n");
  while (running.server.stats().connections != 0) std::this_thread::yield();
  EXPECT_LT(peer.to_end().size(), large.size());
}

TEST_F(HttpTls, ReadersThatReadNothingKeepNoWorker) {
  constexpr size_t kPiece = 10'000, kPieces = 1000;
  const std::string large(5 << 20, 'z');
  Server::Options few = options();
  few.max_inflight = few.idle_workers = few.queue = 1;
  const Running running(few, [&](Server& server) {
    add_routes(server);
    server.route("GET", "/large", [&](const Request&) {
      return Response::bytes({as_bytes_of(large)}, nullptr, "a/b", "");
    });
    server.route("GET", "/stream", [&](const Request&) {
      return Response::events([made = size_t{0}](Sink& sink) mutable {
        for (; made < kPieces && !sink.full(); ++made) sink.write(std::string(kPiece, 's'));
        return made < kPieces ? Streamed::kMore : Streamed::kDone;
      });
    });
  });
  const TlsContext context = tls_client_context(tls_.ca_file);
  std::vector<Peer> readers;
  for (int i = 0; i < 6; ++i) {
    readers.emplace_back(running.port, &context);
    readers.back().say(get(i % 2 == 0 ? "/large" : "/stream") + get("/hi"));
    readers.back().until("\r\n\r\n");
    EXPECT_EQ(error_of(cat("https://127.0.0.1:", running.port), tls_.ca_file), "") << i;
  }
  for (size_t i = 0; i < readers.size(); ++i) {
    if (i % 2 == 0) {
      EXPECT_TRUE(readers[i].exactly(large.size()) == large);
    } else {
      EXPECT_EQ(readers[i].until("\r\n0\r\n\r\n").size(), kPieces * (kPiece + 8) + 5);
    }
    EXPECT_EQ(body_of(readers[i].answer()), "hi, secure");  // in their order
  }
}

TEST_F(HttpTls, ClientsTrustOnlyWhatTheyShould) {
  const Running running(options(), add_routes);
  const std::string there = cat("https://127.0.0.1:", running.port);
  EXPECT_EQ(error_of(there, tls_.ca_file), "");
  EXPECT_EQ(error_of(cat("https://localhost:", running.port), tls_.ca_file), "");
  const test::Identity stranger("split test authority");  // of the same name
  const std::string strangers = test::put_file(folder_.path / "other.pem", stranger.certificate());
  for (const std::string& ca_file : {strangers, std::string()}) {
    const std::string error = error_of(there, ca_file);
    EXPECT_TRUE(has(error, "cannot connect: its certificate: ")) << error;
  }
  const auto refused = [&](const test::Identity& server, std::string_view why) {
    const std::string cert = test::put_file(folder_.path / "c.pem", server.certificate());
    const std::string key = test::put_file(folder_.path / "k.pem", server.key());
    Server::Options other;
    other.tls_cert_file = cert;
    other.tls_key_file = key;
    const Running impostor(other, add_routes);
    const std::string error = error_of(cat("https://127.0.0.1:", impostor.port), tls_.ca_file);
    EXPECT_TRUE(has(error, why)) << error;
  };
  refused(test::Identity("127.0.0.1", "DNS:localhost", &tls_.ca), "IP address mismatch");
  refused(test::Identity("x", "IP:127.0.0.1", &tls_.ca, 0), "certificate has expired");
  refused(test::Identity("x", "IP:127.0.0.1"), "self-signed");
  // Anybody's leaf is no authority.
  const test::Identity leaf("leaf", "DNS:evil.example", &tls_.ca);
  refused(test::Identity("x", "IP:127.0.0.1", &leaf), "its certificate: ");
}

TEST_F(HttpTls, HandshakesCanBeCancelledAndEnd) {
  Client::Options options;
  options.ca_cert_file = tls_.ca_file;
  options.connect_timeout = milliseconds(100);
  // A listener that accepts in the kernel and never answers.
  Fd silent(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  ASSERT_EQ(::bind(silent.get(), reinterpret_cast<sockaddr*>(&at), size), 0);
  ASSERT_EQ(::listen(silent.get(), 8), 0);
  ASSERT_EQ(::getsockname(silent.get(), reinterpret_cast<sockaddr*>(&at), &size), 0);
  const std::string url = cat("https://127.0.0.1:", ntohs(at.sin_port));
  try {
    Client(url, options).request("GET", "/");
    FAIL();
  } catch (const Error& error) {
    EXPECT_TRUE(has(error.what(), "TLS timed out")) << error.what();
  }
  options.connect_timeout = std::chrono::hours(1);
  Client client(url, options);
  client.cancel();
  EXPECT_THROW(client.request("GET", "/"), Error);
}

TEST_F(HttpTls, FilesThatCannotBeUsedAreOneLine) {
  const auto put = [&](const char* name, const std::string& text) {
    return test::put_file(folder_.path / name, text);
  };
  const std::string none = folder_.path / "none.pem", noise = put("noise.pem", "hello\n");
  const std::string other_key = put("other.pem", test::Identity("other").key());
  const std::string locked = put("locked.pem", tls_.server.key("secret"));
  const std::string chain =
      put("chain.pem", tls_.server.certificate() + "-----BEGIN CERTIFICATE-----\nAAAA\n");
  const struct {
    std::string cert, key, file, what;
  } rows[] = {
      {none, tls_.key_file, none, "No such file"},
      {tls_.cert_file, none, none, "No such file"},
      {noise, tls_.key_file, noise, "expected a PEM certificate, found none"},
      {tls_.key_file, tls_.key_file, tls_.key_file, "expected a PEM certificate, found none"},
      {tls_.cert_file, noise, noise, "expected a PEM private key, found none"},
      {tls_.cert_file, other_key, other_key, "is not the certificate's"},
      {tls_.cert_file, locked, locked, "has a passphrase"},
      {chain, tls_.key_file, chain, "the chain cannot be read"},
  };
  for (const auto& row : rows) {
    try {
      tls_server_context(row.cert, row.key);
      ADD_FAILURE() << row.what;
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_TRUE(has(text, row.file) && has(text, row.what)) << text;
      EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    }
  }
  EXPECT_THROW(tls_client_context(noise), Error);
  EXPECT_THROW(tls_client_context(none), Error);
}

}  // namespace
}  // namespace split::http
