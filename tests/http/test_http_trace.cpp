// http/trace.h: which traceparents are taken, and what is passed on.
#include <gtest/gtest.h>

#include "http/client.h"
#include "support/http_peer.h"

namespace split::http {
namespace {

constexpr char kId[] = "4bf92f3577b34da6a3ce929d0e0e4736";
const std::string kGiven = cat("00-", kId, "-00f067aa0ba902b7-01");

TEST(Trace, GoesOnUnderASpanOfItsOwn) {
  const Trace trace = Trace::within(kGiven);
  ASSERT_TRUE(trace);
  EXPECT_EQ(trace.id(), kId);
  const std::string on(trace.traceparent());
  EXPECT_EQ(on.substr(0, 36), kGiven.substr(0, 36));
  EXPECT_EQ(on.substr(52), "-01");
  EXPECT_NE(on, kGiven);
  EXPECT_EQ(Trace::within(on).id(), kId);
  // A later version may say more.
  EXPECT_EQ(Trace::within(cat("42", kGiven.substr(2), "-more")).traceparent().substr(0, 3), "00-");
}

TEST(Trace, IsNoneForWhatIsNoTraceparent) {
  for (const std::string& wrong :
       {std::string(), kGiven.substr(1), kGiven + "-more", kGiven + "0", "ff" + kGiven.substr(2),
        cat("00-", std::string(32, '0'), "-00f067aa0ba902b7-01"),
        cat("00-", kId, "-0000000000000000-01"), cat("00-", kId, "-00F067AA0BA902B7-01"),
        cat("00_", kId, "-00f067aa0ba902b7-01"), cat("00-", kId, "-00f067aa0ba902b7-0x")}) {
    EXPECT_FALSE(Trace::within(wrong)) << wrong;
    EXPECT_EQ(Trace::within(wrong).traceparent(), "");
    EXPECT_EQ(Trace::within(wrong).id(), "");
  }
}

TEST(Trace, BeginsWhereNoneCameAndThatIsWanted) {
  for (const bool begin : {false, true}) {
    Server::Options options;
    options.begin_traces = begin;
    const Running running(options, [](Server& server) {
      server.route("GET", "/id",
                   [](const Request& r) { return Response::text(200, std::string(r.trace.id())); });
    });
    Client client(running.url());
    const std::string drawn = client.request("GET", "/id").body;
    EXPECT_EQ(drawn.size(), begin ? 32u : 0u);
    EXPECT_EQ(client.request("GET", "/id").body == drawn, !begin);
    EXPECT_EQ(client.request("GET", "/id", {}, {}, {{"traceparent", kGiven}}).body, kId);
  }
}

}  // namespace
}  // namespace split::http
