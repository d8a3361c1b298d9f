// Tests receipts: how an answer was foreseen, what it took and what it cost, from run to run.
#include <gtest/gtest.h>

#include "support/edge_server.h"
#include "support/prometheus_text.h"

namespace split::test {
namespace {

using Json = nlohmann::json;

class EdgeReceipts : public ::testing::Test {
 protected:
  EdgeReceipts() : cloud("demo") {
    cloud.cloud.price_hour = 3.6;
    cloud.cloud.price_egress_gb = 0.09;
    cloud.cloud.models[0]->measure();
  }
  std::vector<std::string> arguments(std::vector<std::string> more) const {
    more.insert(more.end(), {cat("--server=", cloud.url()), cat("--cache=", cache.path.string()),
                             "--device=cpu", "--threads=1"});
    return more;
  }
  Outcome run(std::vector<std::string> more) const {
    const Outcome outcome = run_edge(arguments(std::move(more)));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome;
  }
  Json receipt(const char* cut) const {
    return run({cat("--cut=", cut), "--prompt-ids=1,2,3", "--max-tokens=24", "--ignore-eos",
                "--draft=off", "--json"})
        .json()["receipt"];
  }
  void measure() const { run({"--plan", "--measure", "--json"}); }

  GatedCloud cloud;
  TemporaryFolder cache;
};

TEST_F(EdgeReceipts, SayNothingOfAPlanBeforeAnythingWasMeasured) {
  const Json got = receipt("4");
  EXPECT_TRUE(got.at("plan").is_null());
  EXPECT_TRUE(got.at("cost").is_null());
}

TEST_F(EdgeReceipts, CompareAnAnswerWithItsPlanAndTeachTheNextOne) {
  measure();
  for (const char* cut : {"4", "0", "cloud"}) {
    const Json first = receipt(cut);
    const Json& plan = first["plan"];
    EXPECT_EQ(plan["cut"], cut == std::string("cloud") ? Json("cloud") : Json(std::stoi(cut)));
    EXPECT_EQ(plan["goal"], "fast");
    EXPECT_EQ(plan["why"], "asked");
    for (const char* side : {"predicted", "actual"}) {
      for (const char* name : {"first_token_ms", "token_ms", "bytes_per_token"}) {
        if (cut == std::string("0") && name == std::string("bytes_per_token")) continue;
        EXPECT_GT(plan[side][name], 0) << side << " " << name << " at " << cut;
      }
      EXPECT_GE(plan[side]["cloud_ms"], 0);
      EXPECT_GE(plan[side]["dollars_per_million"], 0);
    }
    // The first one corrects the next by half of what it was off, within ten times.
    const Json second = receipt(cut);
    const double took = plan["actual"]["token_ms"], foreseen = plan["predicted"]["token_ms"];
    EXPECT_NEAR(second["plan"]["predicted"]["token_ms"].get<double>(), (took + foreseen) / 2,
                took * 0.02 + 0.002)
        << cut;
  }
}

TEST_F(EdgeReceipts, APlanSaysWhetherATextIsTheSameHere) {
  const auto exact = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"--plan", "--measure", "--json"});
    return run(std::move(more)).json().at("exact");
  };
  EXPECT_TRUE(exact({}).is_null());  // as far as can be told: no block is here to look at
  EXPECT_EQ(exact({"--format=q8_0"}), false);
  receipt("4");
  EXPECT_EQ(exact({}), true);
  EXPECT_EQ(exact({"--profile=int8"}), false);
}

TEST_F(EdgeReceipts, CountMoneyAsTheCloudPricesIt) {
  measure();
  const Json got = receipt("4");
  const Json& cost = got["cost"];
  EXPECT_NEAR(cost["cloud"].get<double>(), got["cloud_ms"].get<double>() * 3.6 / 3.6e6, 1e-8);
  EXPECT_NEAR(cost["egress"].get<double>(), got["bytes_down"].get<double>() * 0.09e-9, 1e-9);
  EXPECT_NEAR(cost["weights"].get<double>(), got["bytes_downloaded"].get<double>() * 0.09e-9, 1e-9);
  EXPECT_GT(cost["all_cloud"], 0);
  EXPECT_TRUE(cost.contains("break_even_tokens"));
  const Outcome told = run({"--cut=4", "--prompt-ids=1,2,3", "--max-tokens=24", "--ignore-eos"});
  EXPECT_NE(told.err.find("  plan      cut 4 (asked): "), std::string::npos) << told.err;
  EXPECT_NE(told.err.find(" a token foreseen, "), std::string::npos) << told.err;
  EXPECT_NE(told.err.find("  cost      $"), std::string::npos) << told.err;
  EXPECT_NE(told.err.find("; all on the cloud: $"), std::string::npos) << told.err;
}

TEST_F(EdgeReceipts, OfAServerSayTheSameAndAreCounted) {
  measure();
  EdgeServer edge(arguments({"--cut=4", "--draft=off"}));
  edge.ready();
  http::Client client(edge.url());
  const Json body = {{"prompt", {1, 2, 3}}, {"max_tokens", 12}, {"ignore_eos", true}};
  const http::Reply reply =
      client.request("POST", "/v1/completions", body.dump(), "application/json");
  ASSERT_EQ(reply.status, 200) << reply.body;
  const Json usage = Json::parse(reply.body)["usage"]["splitcompute"];
  EXPECT_EQ(usage["plan"]["cut"], 4);
  EXPECT_GT(usage["plan"]["predicted"]["token_ms"], 0);
  EXPECT_GT(usage["plan"]["actual"]["token_ms"], 0);
  EXPECT_GT(usage["cost"]["cloud"], 0);
  const auto read = read_prometheus(client.request("GET", "/metrics").body);
  EXPECT_EQ(read.value("split_edge_plan_error_ratio_count"), 1);
  const Json plan = edge.status()["plan"];
  EXPECT_EQ(plan["cuts"].size(), 10u);
  EXPECT_GT(plan["rtt_ms"], 0);
}

TEST_F(EdgeReceipts, OfACutThatIsChosenMeasureForThemselves) {
  EdgeServer edge(arguments({"--cut=auto", "--draft=off"}));
  edge.ready();
  const Json body = {{"prompt", {1, 2, 3}}, {"max_tokens", 24}, {"ignore_eos", true}};
  Json plan;
  do {  // as the weights come
    const http::Reply reply = edge.post("/v1/completions", body);
    ASSERT_EQ(reply.status, 200) << reply.body;
    plan = Json::parse(reply.body)["usage"]["splitcompute"]["plan"];
  } while (plan.is_null() || plan["cut"] != 0);
  EXPECT_EQ(plan["goal"], "fast");
  EXPECT_GT(plan["predicted"]["token_ms"], 0);
}

}  // namespace
}  // namespace split::test
