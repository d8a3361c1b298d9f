// This server answers as an earlier one did: the same status, headers and bytes.
#include <gtest/gtest.h>

#include "support/cloud_fixture.h"
#include "support/exchanges.h"

namespace split::cloud {
namespace {

void expect_alike(const http::Reply& reply, const Json& exchange, const std::string& what) {
  ASSERT_EQ(reply.status, exchange["status"].get<int>()) << what << reply.body.substr(0, 500);
  for (const auto& [name, value] : exchange["headers"].items()) {
    EXPECT_EQ(reply.headers.get(name).value_or("none"), value.get<std::string>()) << what << name;
  }
  const std::string body = test::without_what_varies(reply.body);
  if (reply.status >= 400) {
    EXPECT_EQ(test::without_message(body), test::without_message(exchange["body"])) << what;
  } else if (exchange.contains("sha256")) {
    EXPECT_EQ(exchange["sha256"], Sha256::hex_of(as_bytes_of(body))) << what << body.substr(0, 500);
  } else {
    EXPECT_TRUE(body == test::recorded_body(exchange)) << what << body.substr(0, 500);
  }
}

TEST(CloudExchanges, AreAnsweredAsTheyWereRecorded) {
  TestCloud cloud({"demo", "rand-a"});
  for (const char* name : {"requests", "edge-cut", "edge-head", "edge-embed", "edge-cloud"}) {
    const Json file = test::recorded(name);
    ASSERT_GT(file["exchanges"].size(), 2u);
    for (const Json& exchange : file["exchanges"]) {
      const Json& asked = exchange["request"];
      http::Headers headers;
      for (const char* header : {"Accept", "Range"}) {
        if (asked.contains(header)) headers.set(header, asked[header].get<std::string>());
      }
      const std::string method = asked["method"], path = asked["path"];
      const http::Reply reply = cloud.ask().send(method, path, test::recorded_body(asked),
                                                 asked.value("Content-Type", ""), headers);
      expect_alike(reply, exchange,
                   cat(name, ": ", method, " ", path, " ", asked.value("body", ""), ": "));
    }
  }
  EXPECT_EQ(cloud.cloud.sessions.size(), 1u);  // that of POST /v1/sessions
}

}  // namespace
}  // namespace split::cloud
