// Keys and TLS between the programs: what an edge needs to be let in, whom it trusts, and to whom
// it says nothing.
#include "pair_faults.h"
#include "support/http_peer.h"
#include "support/tls_testing.h"

namespace split::test {
namespace {

const std::string kKey = "ann-0123456789abcdef-canary";
const std::string kModel = std::string(SPLIT_SOURCE_DIR) + "/tests/golden/rand-a";

class PairAccess : public ::testing::Test {
 protected:
  // cloud_server with keys, and TLS if asked for.
  Arguments cloud_arguments(bool tls) const {
    Arguments all = kOnCpu + Arguments{"--model", kModel, "--api-key-file", keys_};
    if (tls) all = all + Arguments{"--tls-cert", tls_.cert_file, "--tls-key", tls_.key_file};
    return all;
  }
  EdgeResult run(const std::string& url, const Arguments& extra) const {
    const Arguments arguments = {
        "--prompt-ids", "5,17,99,256,31", "--cut",  "1",       "--seed",      "3", "--max-tokens",
        "12",           "--ignore-eos",   "--json", "--quiet", "--retry-for", "20"};
    return run_edge(url, home_, kOnCpu + arguments + extra);
  }
  static void expect_refused(const EdgeResult& got, int code, const std::string& part) {
    EXPECT_EQ(got.code, code) << got.err;
    EXPECT_EQ(got.out, "");
    EXPECT_EQ(lines_of(got.err), 1u) << got.err;
    EXPECT_NE(got.err.find(part), std::string::npos) << got.err;
  }
  static void expect_no_key(const std::string& text) {
    EXPECT_EQ(text.find("canary"), std::string::npos) << text;
  }

  Folder home_, files_;
  const TlsFiles tls_{files_.path};
  const std::string keys_ = put_file(files_.path / "keys", "ann:" + kKey + " sessions=2\n");
};

TEST_F(PairAccess, OneTextWithAndWithoutKeysAndTls) {
  CloudProcess plain(kOnCpu + Arguments{"--model", kModel});
  const EdgeResult expected = run(plain.url(), {});
  ASSERT_EQ(expected.code, 0) << expected.err;
  for (const bool tls : {false, true}) {
    CloudProcess cloud(cloud_arguments(tls));
    for (const Arguments& extra : std::vector<Arguments>{{}, {"--cut", "cloud"}}) {
      const EdgeResult got =
          run(cloud.url(), Arguments{"--api-key", kKey, "--ca-cert", tls_.ca_file} + extra);
      ASSERT_EQ(got.code, 0) << got.err;
      EXPECT_EQ(got.tokens(), expected.tokens());
      expect_no_key(got.out + got.err);
    }
    expect_refused(run(cloud.url(), {"--ca-cert", tls_.ca_file}), 3, "answered 401");
    expect_refused(run(cloud.url(), {"--ca-cert", tls_.ca_file, "--api-key", "wrong-canary"}), 3,
                   "(--api-key or SPLIT_API_KEY)");
    cloud.process().signal(SIGTERM);
    EXPECT_EQ(cloud.process().wait(), 0);
    expect_no_key(cloud.process().out() + cloud.process().err());
  }
}

TEST_F(PairAccess, TheKeyMayComeFromTheEnvironment) {
  CloudProcess cloud(cloud_arguments(false));
  Process edge(edge_command(cloud.url(), kOnCpu + Arguments{"--prompt-ids", "5", "--max-tokens",
                                                            "1", "--quiet"}),
               {cat("XDG_CACHE_HOME=", home_.path.string()), "SPLIT_API_KEY=" + kKey});
  EXPECT_EQ(edge.wait(), 0) << edge.err();
}

TEST_F(PairAccess, AnEdgeTrustsNobodyWithoutReason) {
  CloudProcess cloud(cloud_arguments(true));
  const Arguments key = {"--api-key", kKey};
  const std::string localhost = cat("https://localhost:", cloud.port());
  const EdgeResult unknown = run(cloud.url(), key);
  expect_refused(unknown, 3, "its certificate: ");  // nobody of the system's
  EXPECT_EQ(unknown.err.find("cloud_server"), std::string::npos) << unknown.err;
  EXPECT_EQ(run(localhost, key + Arguments{"--ca-cert", tls_.ca_file}).code, 0);
  expect_refused(
      run(cat("https://127.0.0.2:", cloud.port()), key + Arguments{"--ca-cert", tls_.ca_file}), 3,
      "cannot connect");
  expect_refused(run(cloud.url(), {"--ca-cert", keys_}), 2, "expected PEM certificates");
  expect_refused(run(cloud.url(), {"--ca-cert", "/nonexistent/ca.pem"}), 2, "/nonexistent/ca.pem");
  expect_refused(run(cloud.url(), {"--api-key", "a b"}), 2, "API key");
}

// Another server that notes what it is told.
class Stranger {
 public:
  explicit Stranger(std::function<http::Response(const http::Request&)> answer)
      : running_(http::Server::Options{}, [&](http::Server& server) {
          const auto note = [this, answer](const http::Request& request) {
            ++asked;
            if (request.headers.get("Authorization")) ++told;
            return answer(request);
          };
          server.route("GET", "/blobs/{hash}", note);
          server.route("GET", "/v1/models", note);
        }) {}
  std::string url() const { return running_.url(); }
  std::atomic<int> asked{0}, told{0};

 private:
  http::Running running_;
};

TEST_F(PairAccess, TheKeyGoesToTheServerAlone) {
  CloudProcess cloud(cloud_arguments(false));
  Stranger store([&](const http::Request& request) {
    http::Client::Options options;
    options.bearer_token = kKey;  // the store's own way to the blobs
    http::Client client(cloud.url(), options);
    const http::Reply reply =
        client.request("GET", "/v1/blobs/sha256/" + request.path_params[0], {}, {},
                       {{"Range", std::string(request.headers.get("Range").value_or("bytes=0-"))}});
    http::Response response;
    response.status = reply.status;
    response.content_type = "application/octet-stream";
    response.headers.set("Content-Range",
                         std::string(reply.headers.get("Content-Range").value_or("")));
    response.body = reply.body;
    return response;
  });
  CloudProcess front(cloud_arguments(false) + Arguments{"--blob-url", store.url() + "/blobs"});
  const EdgeResult got = run(front.url(), {"--api-key", kKey});
  EXPECT_EQ(got.code, 0) << got.err;
  EXPECT_GT(store.asked, 0);
  EXPECT_EQ(store.told, 0);
}

TEST_F(PairAccess, NoRedirectIsFollowed) {
  Stranger target([](const http::Request&) { return http::Response::json(200, "{\"data\":[]}"); });
  Stranger from([&](const http::Request&) {
    http::Response response = http::Response::text(302, "there");
    response.headers.set("Location", target.url() + "/v1/models");
    return response;
  });
  expect_refused(run(from.url(), {"--api-key", kKey}), 3, "answered 302");
  EXPECT_EQ(from.told, 1);
  EXPECT_EQ(target.asked, 0);
}

// A page from elsewhere that a browser takes here, perhaps by a name of its own, gets nothing.
// In a container a server listens everywhere: with names of its own it is still asked by no other.
TEST_F(PairAccess, NamesGuardWhoListensEverywhereToo) {
  const auto status = [](const std::string& said, const std::string& host) {
    const std::string mark = "listening on http://0.0.0.0:";
    const int port = std::atoi(said.c_str() + said.find(mark) + mark.size());
    return http::last_words(port, cat("GET /v1/models HTTP/1.1\r\nHost: ", host,
                                      "\r\nConnection: close\r\n\r\n"))
        .substr(9, 3);
  };
  const auto listens = [](Process& process) {
    return process.until([&] { return process.err().find("ready") != std::string::npos; });
  };
  const Arguments names = {"--insecure", "--allowed-host", "cloud"};
  Process cloud(Arguments{program_path("cloud_server"), "--port", "0", "--host", "0.0.0.0"} +
                kOnCpu + Arguments{"--model", kModel} + names);
  ASSERT_TRUE(listens(cloud)) << cloud.err();
  EXPECT_EQ(status(cloud.err(), "cloud:8080"), "200");
  EXPECT_EQ(status(cloud.err(), "localhost"), "200");
  EXPECT_EQ(status(cloud.err(), "evil.example"), "403");
  const CloudProcess behind(kOnCpu + Arguments{"--model", kModel});
  Process edge(edge_command(behind.url(), kOnCpu + names + Arguments{"--serve", "0.0.0.0:0"}),
               {cat("XDG_CACHE_HOME=", home_.path.string())});
  ASSERT_TRUE(listens(edge)) << edge.err();
  EXPECT_EQ(status(edge.err(), "localhost:8081"), "200");
  EXPECT_EQ(status(edge.err(), "evil.example"), "403");
}

// --healthcheck asks the port with the TLS that the flags say, for containers.
TEST_F(PairAccess, AServerLooksAtItself) {
  CloudProcess cloud(cloud_arguments(true));
  const auto look = [&](const Arguments& flags) {
    return exit_code(Arguments{program_path("cloud_server"), "--healthcheck", "--host", "0.0.0.0",
                               "--port", cat(cloud.port())} +
                     flags);
  };
  ASSERT_TRUE(cloud.process().until(
      [&] { return cloud.process().err().find("ready at") != std::string::npos; }));
  const Arguments tls = {"--tls-cert", tls_.cert_file};
  EXPECT_EQ(look(tls), 0);
  EXPECT_EQ(look({}), 1);
  cloud.process().signal(SIGTERM);
  EXPECT_EQ(cloud.process().wait(), 0);
  EXPECT_EQ(look(tls), 1);
}

// Its id would be drawn after the balancer has chosen a server.
TEST_F(PairAccess, NoIdIsDrawnBehindABalancer) {
  const CloudProcess cloud(kOnCpu + Arguments{"--model", kModel});
  http::Client client(cloud.url());
  const auto open = [&](const http::Headers& headers) {
    return client.request("POST", "/v1/sessions", R"({"cut":1})", "application/json", headers);
  };
  EXPECT_EQ(open({}).status, 201);
  const http::Reply refused = open({{"X-Forwarded-For", "10.0.0.7"}});
  EXPECT_EQ(refused.status, 405);
  EXPECT_NE(refused.body.find("PUT /v1/sessions/{id}"), std::string::npos) << refused.body;
}

TEST_F(PairAccess, ThisMachineAloneIsAskedByItsNames) {
  const auto status = [](const CloudProcess& cloud, const std::string& path,
                         const std::string& host, const std::string& origin = "") {
    const std::string answer = http::last_words(
        cloud.port(), cat("GET ", path, " HTTP/1.1\r\nHost: ", host, "\r\nConnection: close\r\n",
                          origin.empty() ? "" : cat("Origin: ", origin, "\r\n"), "\r\n"));
    return answer.substr(9, 3);
  };
  const CloudProcess cloud(kOnCpu + Arguments{"--model", kModel, "--allowed-host", "Cloud.example",
                                              "--cors-origin", "https://page.example"});
  for (const char* host : {"localhost", "LOCALHOST:1", "[::1]", "127.0.0.1:80", "cloud.example"}) {
    EXPECT_EQ(status(cloud, "/v1/models", host), "200") << host;
  }
  for (const char* host : {"evil.example", "localhost.evil.example"}) {
    EXPECT_EQ(status(cloud, "/v1/models", host), "403") << host;
    EXPECT_EQ(status(cloud, "/livez", host), "200") << host;
  }
  for (const char* wrong : {"a b", "localhost:18090@evil"}) {
    EXPECT_EQ(status(cloud, "/v1/models", wrong), "400") << wrong;
  }
  for (const auto& [origin, code] : {std::pair("http://evil.example", "403"),
                                     {"x://localhost", "403"},
                                     {"http://localhost:3000", "200"},
                                     {"https://page.example", "200"}}) {
    EXPECT_EQ(status(cloud, "/v1/models", "localhost", origin), code) << origin;
  }
  EXPECT_EQ(status(cloud, "http://evil.example/v1/models", "localhost"), "403");
  EXPECT_EQ(status(cloud, "http://localhost/v1/models", "evil.example"), "200");
  const CloudProcess guarded(cloud_arguments(false));  // its keys are what it goes by
  EXPECT_EQ(status(guarded, "/v1/models", "evil.example"), "401");
}

TEST_F(PairAccess, FlagsOfTheServerAreChecked) {
  const auto expect_usage = [](const Arguments& arguments, const std::string& part) {
    Process cloud(Arguments{program_path("cloud_server"), "--port", "0"} + arguments);
    EXPECT_EQ(cloud.wait(), 2) << cloud.err();
    EXPECT_NE(cloud.err().find(part), std::string::npos) << cloud.err();
    EXPECT_EQ(lines_of(cloud.err()), 1u) << cloud.err();
    expect_no_key(cloud.err());
  };
  expect_usage({"--tls-cert", tls_.cert_file}, "--tls-cert and --tls-key together");
  expect_usage({"--tls-key", tls_.key_file}, "--tls-cert and --tls-key together");
  expect_usage({"--tls-cert", tls_.cert_file, "--tls-key", tls_.ca_file}, "ca.pem: expected a PEM");
  expect_usage({"--api-key-file", "/nonexistent/keys"}, "/nonexistent/keys");
  const std::string bad = put_file(files_.path / "bad", "ann: canary-canary-canary\n");
  expect_usage({"--api-key-file", bad}, "line 1: expected a key");
  expect_usage({"--host", "0.0.0.0"}, "--api-key-file");
  expect_usage({"--allowed-host", "cloud.example:80"}, "--allowed-host: expected a name");
  expect_usage({"--allowed-host", "a b"}, "--allowed-host: expected a name");
  expect_usage({"--trusted-proxy", "10.0.0.0/33"}, "--trusted-proxy: expected ADDRESS");
  // With keys it may be reached from elsewhere; a warning says what is missing.
  Arguments open = Arguments{program_path("cloud_server"), "--port", "0", "--host", "0.0.0.0"};
  Process cloud(open + cloud_arguments(false));
  EXPECT_TRUE(cloud.until(
      [&] { return cloud.err().find("listening on http://0.0.0.0:") != std::string::npos; }));
  EXPECT_NE(cloud.err().find("in the clear"), std::string::npos) << cloud.err();
  cloud.signal(SIGTERM);
  EXPECT_EQ(cloud.wait(), 0);
}

// A connection stays through it, with TLS as it was; who comes anew meets the new certificate.
TEST_F(PairAccess, SighupReadsKeysAndCertificatesAgain) {
  CloudProcess cloud(cloud_arguments(true));
  Process& process = cloud.process();
  const auto told = [&](size_t times, const std::string& what) {
    return process.until([&] {
      size_t count = 0;
      for (size_t at = 0; (at = process.err().find(what, at)) != std::string::npos; ++at) ++count;
      return count == times;
    });
  };
  const auto options_of = [](const std::string& ca) {
    http::Client::Options options;
    options.ca_cert_file = ca;
    return options;
  };
  const auto status = [](http::Client& client, const std::string& key) {
    return client.request("GET", "/v1/models", {}, {}, {{"Authorization", "Bearer " + key}}).status;
  };
  ASSERT_TRUE(told(1, "ready at https://")) << process.err();
  http::Client before(cloud.url(), options_of(tls_.ca_file));
  EXPECT_EQ(status(before, kKey), 200);

  const Folder anew;
  const TlsFiles others(anew.path);
  const std::string bob = "bob-0123456789abcdef-canary";
  const auto copy = [](const std::string& from, const std::string& to) {
    std::filesystem::rename(from, to);
  };
  copy(others.cert_file, tls_.cert_file);
  process.signal(SIGHUP);  // the key is another one's: nothing changes
  ASSERT_TRUE(told(1, "error: SIGHUP: nothing has changed")) << process.err();
  EXPECT_EQ(status(before, kKey), 200);
  copy(others.key_file, tls_.key_file);
  put_file(keys_, "bob:" + bob + "\n");
  process.signal(SIGHUP);
  ASSERT_TRUE(told(1, "SIGHUP: keys and certificates were read again")) << process.err();
  EXPECT_EQ(status(before, kKey), 401);
  EXPECT_EQ(status(before, bob), 200);
  EXPECT_EQ(before.connections(), 1u);
  http::Client after(cloud.url(), options_of(others.ca_file));
  EXPECT_EQ(status(after, bob), 200);
  http::Client trusting(cloud.url(), options_of(tls_.ca_file));
  EXPECT_THROW(status(trusting, bob), http::NoReply);
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait(), 0);
  expect_no_key(process.err());
}

}  // namespace
}  // namespace split::test
