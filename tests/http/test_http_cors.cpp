// http/: what a page from elsewhere may read and ask (CORS).
#include <gtest/gtest.h>

#include "support/http_peer.h"

namespace split::http {
namespace {

Server::Options with_origins(std::vector<std::string> origins) {
  Server::Options options;
  options.cors_origins = std::move(origins);
  return options;
}
void add_form_routes(Server& server) {
  server.route("GET", "/x", [](const Request&) { return Response::text(200, "x"); });
  server.route("POST", "/x", [](const Request&) -> Response { throw HttpError(400, "no", "no"); });
}
constexpr const char* kPage = "http://page.example:8000";

std::string asked(int port, std::string_view method, std::string_view headers) {
  Peer peer(port);
  peer.say(cat(method, " /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n", headers,
               method == "POST" ? "Content-Length: 0\r\n" : "", "\r\n"));
  return peer.to_end();
}

TEST(Cors, APageOfTheOriginMayRead) {
  const Running running(with_origins({"https://other", kPage}), add_form_routes);
  const std::string origin = cat("Origin: ", kPage, "\r\n");
  for (const char* method : {"GET", "POST", "HEAD"}) {
    const std::string answer = asked(running.port, method, origin);
    EXPECT_TRUE(has(answer, cat("Access-Control-Allow-Origin: ", kPage, "\r\n"))) << answer;
    EXPECT_TRUE(has(answer, "Vary: Origin\r\n")) << answer;
    EXPECT_TRUE(has(answer, "Access-Control-Expose-Headers: ETag")) << answer;
    EXPECT_FALSE(has(answer, "Access-Control-Allow-Methods")) << answer;
  }
  for (const char* other : {"Origin: http://page.example\r\n", "Origin: null\r\n", ""}) {
    const std::string answer = asked(running.port, "GET", other);
    EXPECT_TRUE(says(answer, 200));
    EXPECT_FALSE(has(answer, "Access-Control-Allow")) << answer;
    EXPECT_TRUE(has(answer, "Vary: Origin\r\n")) << answer;
  }
}

TEST(Cors, APreflightNamesMethodsAndHeaders) {
  const Running running(with_origins({kPage}), add_form_routes);
  const std::string preflight =
      cat("Origin: ", kPage, "\r\nAccess-Control-Request-Method: POST\r\n");
  std::string answer = asked(running.port, "OPTIONS", preflight);
  EXPECT_TRUE(says(answer, 204)) << answer;
  EXPECT_TRUE(has(answer, cat("Access-Control-Allow-Origin: ", kPage, "\r\n"))) << answer;
  EXPECT_TRUE(has(answer, "Access-Control-Allow-Methods: GET, HEAD, POST, OPTIONS\r\n")) << answer;
  EXPECT_TRUE(has(answer, "Access-Control-Allow-Headers: Accept, Authorization, Content-Type,"))
      << answer;
  EXPECT_TRUE(has(answer, "Access-Control-Max-Age: 600\r\n")) << answer;
  EXPECT_FALSE(has(answer, "Private-Network")) << answer;
  // Those that a client adds by itself.
  answer = asked(running.port, "OPTIONS",
                 preflight + "Access-Control-Request-Headers: content-type,x-stainless-os\r\n");
  EXPECT_TRUE(has(answer, ", X-Request-Id, content-type,x-stainless-os\r\n")) << answer;
  answer = asked(running.port, "OPTIONS",
                 preflight + "Access-Control-Request-Private-Network: true\r\n");
  EXPECT_TRUE(has(answer, "Access-Control-Allow-Private-Network: true\r\n")) << answer;
  answer = asked(running.port, "OPTIONS",
                 "Origin: http://evil\r\nAccess-Control-Request-Method: POST\r\n");
  EXPECT_FALSE(has(answer, "Access-Control-Allow")) << answer;
}

TEST(Cors, AStarIsEverybodyAndNothingIsNobody) {
  const Running open(with_origins({"*"}), add_form_routes);
  EXPECT_TRUE(has(asked(open.port, "GET", "Origin: http://a\r\n"),
                  "Access-Control-Allow-Origin: http://a\r\n"));
  const Running closed(with_origins({}), add_form_routes);
  const std::string answer = asked(closed.port, "GET", "Origin: http://a\r\n");
  EXPECT_FALSE(has(answer, "Access-Control")) << answer;
  EXPECT_FALSE(has(answer, "Vary")) << answer;
}

}  // namespace
}  // namespace split::http
