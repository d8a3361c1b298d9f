// http/: cpp-httplib, an implementation that is not ours, as the other end: its client asks our
// server, its server answers our client. Only its public interface, which its versions share.
#include <gtest/gtest.h>
#include <httplib.h>

#include "http/client.h"
#include "support/http_peer.h"
#include "support/temporary_folder.h"
#include "support/tls_testing.h"

#ifdef __SANITIZE_THREAD__
// The library is not built for it: what guards its static variables is not seen.
extern "C" const char* __tsan_default_suppressions() {  // NOLINT(bugprone-reserved-identifier)
  return "race:libcpp-httplib\n";
}
#endif

namespace split::http {
namespace {

void add_routes(Server& server) {
  server.route("POST", "/echo", [](const Request& request) {
    Response response = Response::text(201, request.body);
    response.headers.add("X-Query", request.query("q").value_or("none"));
    return response;
  });
  server.route("GET", "/blob", [](const Request&) {
    return Response::bytes({as_bytes_of("01234"), as_bytes_of("56789")}, nullptr, "a/b", "\"t\"");
  });
  server.route("GET", "/events", [](const Request&) {
    return Response::events([](Sink& sink) {
      for (const char* word : {"one ", "two ", "three"}) sink.write(word);
      return Streamed::kDone;
    });
  });
  server.route("DELETE", "/gone", [](const Request&) {
    Response response;
    response.status = 204;
    return response;
  });
}

// Everything of an answer that a client may ask for.
void ask_everything(httplib::Client& client) {
  client.set_keep_alive(true);
  for (int i = 0; i < 3; ++i) {
    const auto echo = client.Post("/echo?q=a%20b", "body\n", "text/plain");
    ASSERT_TRUE(echo) << httplib::to_string(echo.error());
    EXPECT_EQ(echo->status, 201);
    EXPECT_EQ(echo->body, "body\n");
    EXPECT_EQ(echo->get_header_value("X-Query"), "a b");
    EXPECT_EQ(echo->get_header_value("Content-Type"), "text/plain; charset=utf-8");
  }
  const auto blob = client.Get("/blob");
  ASSERT_TRUE(blob);
  EXPECT_EQ(blob->body, "0123456789");
  EXPECT_EQ(blob->get_header_value("ETag"), "\"t\"");
  const auto part = client.Get("/blob", {httplib::make_range_header({{3, 6}})});
  ASSERT_TRUE(part);
  EXPECT_EQ(part->status, 206);
  EXPECT_EQ(part->body, "3456");
  EXPECT_EQ(part->get_header_value("Content-Range"), "bytes 3-6/10");
  const auto head = client.Head("/blob");
  ASSERT_TRUE(head);
  EXPECT_EQ(head->get_header_value("Content-Length"), "10");
  std::string streamed;
  const auto events = client.Get("/events", [&](const char* data, size_t size) {
    streamed.append(data, size);
    return true;
  });
  ASSERT_TRUE(events);
  EXPECT_EQ(streamed, "one two three");
  const auto gone = client.Delete("/gone");
  ASSERT_TRUE(gone);
  EXPECT_EQ(gone->status, 204);
  EXPECT_EQ(gone->get_header_value("Content-Length"), "");
  const auto missing = client.Get("/missing");
  ASSERT_TRUE(missing);
  EXPECT_EQ(missing->status, 404);
  EXPECT_EQ(missing->get_header_value("Content-Type"), "application/json");
}

TEST(HttpLibrary, ItsClientReadsOurAnswers) {
  const Running running({}, add_routes);
  httplib::Client client("127.0.0.1", running.port);
  ask_everything(client);
  EXPECT_EQ(running.server.stats().connections, 1u);
}

TEST(HttpLibrary, ItsClientReadsOurAnswersOverTls) {
  const test::TemporaryFolder folder;
  const test::TlsFiles tls{folder.path};
  Server::Options options;
  options.tls_cert_file = tls.cert_file;
  options.tls_key_file = tls.key_file;
  const Running running(options, add_routes);
  httplib::Client client(cat("https://127.0.0.1:", running.port));
  client.set_ca_cert_path(tls.ca_file.c_str());
  ask_everything(client);
}

TEST(HttpLibrary, ItsServerReadsOurRequests) {
  httplib::Server server;
  server.Post("/echo", [](const httplib::Request& request, httplib::Response& response) {
    response.status = 201;
    response.set_header("X-Query", request.get_param_value("q"));
    response.set_header("X-Key", request.get_header_value("Authorization"));
    response.set_content(request.body, "text/plain");
  });
  server.Get("/chunks", [](const httplib::Request&, httplib::Response& response) {
    response.set_chunked_content_provider("a/b", [](size_t, httplib::DataSink& sink) {
      for (const std::string word : {"one ", "two ", "three"}) sink.write(word.data(), word.size());
      sink.done();
      return true;
    });
  });
  const int port = server.bind_to_any_port("127.0.0.1");
  std::thread listening([&] { server.listen_after_bind(); });
  {
    Client::Options options;
    options.bearer_token = "key";
    Client client(cat("http://127.0.0.1:", port), options);
    for (const std::string& body :
         {std::string("body\n"), std::string(), std::string(1 << 20, 'x')}) {
      const Reply reply = client.request("POST", "/echo?q=a%20b", body, "text/plain");
      EXPECT_EQ(reply.status, 201);
      EXPECT_TRUE(reply.body == body);
      EXPECT_EQ(reply.headers.get("X-Query"), "a b");
      EXPECT_EQ(reply.headers.get("X-Key"), "Bearer key");
    }
    EXPECT_EQ(client.request("HEAD", "/chunks").body, "");
    EXPECT_EQ(client.request("GET", "/missing").status, 404);
    std::string streamed;
    const auto keep = [&](Bytes bytes) {
      streamed += as_text(bytes);
      return true;
    };
    EXPECT_EQ(client.get_stream("/chunks", {}, keep, 100).status, 200);
    EXPECT_EQ(streamed, "one two three");
    // The library ends a kept connection after five requests.
    EXPECT_LE(client.connections(), 2u);
  }
  server.stop();
  listening.join();
}

}  // namespace
}  // namespace split::http
