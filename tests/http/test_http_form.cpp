// http/form: what browsers send, and one test for each way to be wrong. And CORS, which such pages
// need.
#include <gtest/gtest.h>

#include "http/form.h"
#include "support/http_peer.h"

namespace split::http {
namespace {

constexpr const char* kUrlencoded = "application/x-www-form-urlencoded; charset=UTF-8";
constexpr const char* kMultipart = "multipart/form-data; boundary=----WebKitFormBoundaryab12";

// `status code: message`, or "" when it is taken.
std::string refusal(std::string_view type, std::string_view body) {
  try {
    parse_form(type, body);
  } catch (const HttpError& error) {
    return cat(error.status, " ", error.code, ": ", error.message);
  }
  return "";
}
std::string form_refusal(std::string_view type, std::string_view body) {
  const std::string text = refusal(type, body), prefix = "400 invalid_form: the form: ";
  EXPECT_TRUE(text.starts_with(prefix)) << text;
  return text.substr(std::min(prefix.size(), text.size()));
}

TEST(Form, ReadsWhatJQuerySends) {
  EXPECT_EQ(parse_form(kUrlencoded, "offline_layers=3&input_text=caf%C3%A9+%26+%3D%0D%0Atea"),
            (FormFields{{"offline_layers", "3"}, {"input_text", "caf\xc3\xa9 & =\r\ntea"}}));
  EXPECT_EQ(parse_form("APPLICATION/x-www-form-urlencoded", "a&&b="),
            (FormFields{{"a", ""}, {"b", ""}}));
  EXPECT_EQ(parse_form(kUrlencoded, ""), FormFields{});
}

TEST(Form, ReadsWhatFormDataSends) {
  const std::string body =
      "------WebKitFormBoundaryab12\r\nContent-Disposition: form-data; name=\"input_text\"\r\n\r\n"
      "two\r\nlines -- --\r\n"
      "------WebKitFormBoundaryab12\r\ncontent-disposition:form-data;name=offline_layers\r\n"
      "Content-Type: text/plain\r\n\r\n\r\n"
      "------WebKitFormBoundaryab12--\r\n";
  const FormFields expected{{"input_text", "two\r\nlines -- --"}, {"offline_layers", ""}};
  EXPECT_EQ(parse_form(kMultipart, body), expected);
  EXPECT_EQ(
      parse_form("multipart/form-data; charset=x; boundary=\"----WebKitFormBoundaryab12\"", body),
      expected);
  EXPECT_EQ(parse_form(kMultipart, "------WebKitFormBoundaryab12--\r\n"), FormFields{});
}

TEST(Form, RefusesOtherTypesAndSizes) {
  const std::string type =
      "415 unsupported_media_type: expected application/x-www-form-urlencoded "
      "or multipart/form-data";
  EXPECT_EQ(refusal("", "a=1"), type);
  EXPECT_EQ(refusal("application/json", "{}"), type);
  EXPECT_EQ(refusal("multipart/mixed; boundary=x", "--x--"), type);
  EXPECT_EQ(refusal(kUrlencoded, "a=" + std::string(1 << 20, 'x')),
            "413 form_too_large: the form: expected at most 1048576 bytes");
}

TEST(Form, RefusesBadEscapes) {
  for (const char* body : {"a=%", "a=%4", "a=%zz", "%z=1"}) {
    EXPECT_EQ(form_refusal(kUrlencoded, body), "a broken escape") << body;
  }
  EXPECT_EQ(form_refusal(kUrlencoded, "a=1&b=2&a=3"), "a field is there twice");
  std::string many;
  for (int i = 0; i < 33; ++i) many += cat("f", i, "=&");
  EXPECT_EQ(form_refusal(kUrlencoded, many), "expected at most 32 fields");
}

TEST(Form, RefusesBadParts) {
  const std::string head = "Content-Disposition: form-data; name=\"a\"\r\n";
  const auto refused = [](const std::string& body) {
    return form_refusal("multipart/form-data; boundary=b", body);
  };
  EXPECT_EQ(refusal("multipart/form-data; boundary=b", "--b\r\n" + head + "\r\n1\r\n--b--"), "");
  EXPECT_EQ(refused(""), "does not begin with its boundary");
  EXPECT_EQ(refused("x--b--"), "does not begin with its boundary");
  EXPECT_EQ(refused("--b"), "a boundary's line does not end");
  EXPECT_EQ(refused("--bb\r\n"), "a boundary's line does not end");
  EXPECT_EQ(refused("--b\r\n"), "a part's head is over 1024 bytes or not there");
  EXPECT_EQ(refused("--b\r\n" + head + "X: " + std::string(1024, 'x') + "\r\n\r\n1\r\n--b--"),
            "a part's head is over 1024 bytes or not there");
  EXPECT_EQ(refused("--b\r\n" + head + "\r\n1"), "a part does not end");
  EXPECT_EQ(refused("--b\r\n" + head + "\r\n1\r\n--b"), "a boundary's line does not end");
  EXPECT_EQ(refused("--b\r\n" + head + "\r\n1\r\n--b--x"), "bytes after its end");
  EXPECT_EQ(refused("--b\r\nno colon\r\n\r\n1\r\n--b--"), "a part's header line has no colon");
  EXPECT_EQ(refused("--b\r\nA: b\r\n\r\n1\r\n--b--"), "a part has no name");
  EXPECT_EQ(refused("--b\r\n\r\n\r\n1\r\n--b--"), "a part has no name");
  EXPECT_EQ(refused("--b\r\nContent-Disposition: attachment; name=a\r\n\r\n1\r\n--b--"),
            "expected a part of form-data");
  EXPECT_EQ(refused("--b\r\nContent-Disposition: form-data\r\n\r\n1\r\n--b--"),
            "expected one name for each part");
  EXPECT_EQ(refused("--b\r\n" + head + head + "\r\n1\r\n--b--"), "expected one name for each part");
  EXPECT_EQ(
      refused(
          "--b\r\nContent-Disposition: form-data; name=\"a\"; filename=\"x\"\r\n\r\n1\r\n--b--"),
      "a file, expected fields");
  EXPECT_EQ(refused("--b\r\nContent-Disposition: form-data; name=\"a\r\n\r\n1\r\n--b--"),
            "name: a quote does not end");
  EXPECT_EQ(refused("--b\r\nContent-Disposition: form-data; name=\"a\\\"b\"\r\n\r\n1\r\n--b--"),
            "name: unexpected quotes");
  const std::string part = "--b\r\n" + head + "\r\n1\r\n";
  EXPECT_EQ(refused(part + part + "--b--"), "a field is there twice");
}

TEST(Form, RefusesBadBoundaries) {
  EXPECT_EQ(form_refusal("multipart/form-data", "--b--"), "multipart/form-data without a boundary");
  EXPECT_EQ(form_refusal("multipart/form-data; boundary=", "--"),
            "expected a boundary of 1 to 70 characters");
  const std::string long_one(71, 'b');
  EXPECT_EQ(form_refusal("multipart/form-data; boundary=" + long_one, "--" + long_one + "--"),
            "expected a boundary of 1 to 70 characters");
  EXPECT_EQ(form_refusal("multipart/form-data; boundary=\"b", "--b--"),
            "boundary: a quote does not end");
}

// --- CORS

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
