// edge_client audit against an edge, which gives the rows of both machines.
#include "audit/audited.h"

namespace split::test {
namespace {

struct Edge {
  Edge(std::string url, std::vector<std::string> more)
      : cloud(std::move(url)), server([&] {
          more.insert(more.end(), {cat("--server=", cloud), "--retry-for=1",
                                   cat("--cache=", auditor.cache().string())});
          return more;
        }()) {
    server.ready();
  }
  Outcome audited(std::vector<std::string> more = {"--rounds=12"}) {
    more.push_back(cat("--weights=", cloud));
    return auditor.run(server.url(), answer(server.url()), more);
  }
  const std::string cloud;
  Auditor auditor;
  EdgeServer server;
};

// Whichever machine computed a block: the edge gives rows of both.
TEST(EdgeAudit, AgreesWithAnswersOfPairs) {
  GatedCloud exact("demo", Profile::kInt8);
  for (GatedCloud* cloud : {&demo(), &exact}) {
    for (const char* cut : {"--cut=3", "--cut=cloud", "--cut=0", "--cut=8"}) {
      SCOPED_TRACE(cat(cut, cloud == &exact ? " int8" : ""));
      Edge edge(cloud->url(), {cut});
      const Outcome outcome = edge.audited();
      EXPECT_EQ(outcome.code, 0) << outcome.err;
      const std::string held =
          answer(edge.server.url(), {{"response_format", {{"type", "json_object"}}}});
      const Outcome formed =
          edge.auditor.run(edge.server.url(), held, {"--rounds=12", cat("--weights=", edge.cloud)});
      EXPECT_EQ(formed.code, 0) << formed.err;
    }
  }
}

// Rows of a long text come from the cloud in pieces, and go there so.
TEST(EdgeAudit, AsksForLongTextsInPieces) {
  std::atomic<uint64_t> most{0}, steps{0};  // bytes of a body that the cloud takes or gives
  Running front([&](http::Server& server) {
    const auto seen = [&](const http::Request& request) {
      http::Response response = demo().real(request);
      most = std::max({most.load(), uint64_t{request.body.size()}, uint64_t{response.body.size()}});
      ++steps;
      return response;
    };
    for (const char* path : {"/v1/models/{id}/forward", "/v1/sessions/{id}/forward"}) {
      server.route("POST", path, seen);
    }
    for (const char* method : {"PUT", "DELETE"}) {
      server.route(method, "/v1/sessions/{id}",
                   [](const http::Request& r) { return demo().real(r); });
    }
    cloud::add_routes(server, demo().cloud);
  });
  for (const char* cut : {"--cut=4", "--cut=cloud"}) {
    Edge edge(front.url(), {cut});
    const Json more = {{"max_tokens", 400}, {"ignore_eos", true}};
    const std::string text = answer(edge.server.url(), more);
    EXPECT_EQ(receipt_of(text)["root"], receipt_of(answer(demo().url(), more))["root"]) << cut;
    const Outcome outcome =
        edge.auditor.run(edge.server.url(), text, {"--rounds=3", cat("--weights=", edge.cloud)});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
  }
  EXPECT_GE(steps, 2 * 4u);
  EXPECT_LT(most, 256 * 320 * sizeof(float) + 1024);  // not 406 rows of them
}

// The pair's two machines are asked alike, and either one is found.
TEST(EdgeAudit, FindsACloudThatCheatsInOneBlock) {
  Cheat cheat;
  Edge edge(cheat.url(), {"--cut=5"});
  EXPECT_EQ(edge.audited().code, 0);
  cheat.flip();
  expect_line(edge.audited({kMany}), 5, "block 3, row ");
}

TEST(EdgeAudit, HasNoReceiptsWhereRowsAreOfTwoKinds) {
  Edge edge(demo().url(), {"--cut=3", "--profile=int8"});
  expect_refused(edge.server.post("/v1/completions", asked()), 400, "rows of two kinds");
  EXPECT_EQ(edge.server.post("/v1/completions", asked({{"receipt", false}})).status, 200);
  Edge rounded(demo().url(), {"--cut=cloud", "--wire=f16"});
  expect_refused(rounded.server.post("/v1/completions", asked()), 400, "travel in f16");
  Edge alone(demo().url(), {"--cut=0", "--profile=int8"});
  EXPECT_EQ(alone.server.post("/v1/completions", asked()).status, 200);
  expect_refused(alone.server.post("/split/unsplit", asked()), 400, "have none");
}

TEST(EdgeAudit, SaysThatTheCloudOfItsRowsIsLost) {
  std::optional<Running> front(
      [](http::Server& server) { cloud::add_routes(server, demo().cloud); });
  Edge edge(front->url(), {"--cut=3"});
  const Json receipt = receipt_of(answer(edge.server.url()));
  Json other = receipt;
  other["root"] = std::string(64, 'a');
  const auto audit = [&](const Json& of) {
    return edge.server.post(wire::kAuditPath,
                            {{"receipt", of}, {"point", 1}, {"first", 0}, {"count", 2}});
  };
  expect_refused(audit(other), 410, "rows_gone");
  front.reset();
  EXPECT_EQ(audit(receipt).status, 200);  // it has these
  expect_refused(audit(other), 503, "cloud_unavailable");
}

}  // namespace
}  // namespace split::test
