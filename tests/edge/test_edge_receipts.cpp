// Tests receipts: how an answer was foreseen, what it took and what it cost, from run to run.
#include <gtest/gtest.h>

#include "support/edge_server.h"
#include "support/failing_device.h"
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
  for (const char* cut : {"4", "0", "cloud"}) {
    // A busy machine may be slower by more than is learnt at once, or faster than was measured.
    double off = 1, allowed = 0;
    for (int tries = 0; off > allowed && tries < 20; ++tries) {
      std::filesystem::remove_all(cache.path / "plans");  // what another cut taught
      measure();
      const Json first = receipt(cut), &plan = first["plan"];
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
      // The first one corrects the next by four fifths of what it was off, within ten times.
      const Json second = receipt(cut);
      const double took = plan["actual"]["token_ms"], foreseen = plan["predicted"]["token_ms"];
      const double corrected = second["plan"]["predicted"]["token_ms"];
      off = std::abs(corrected - (foreseen + 0.8 * (took - foreseen)));
      allowed = took * 0.02 + 0.002;
    }
    EXPECT_LE(off, allowed) << cut;
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
  const Outcome told =
      run({"--cut=4", "--goal=fast", "--prompt-ids=1,2,3", "--max-tokens=24", "--ignore-eos"});
  EXPECT_NE(told.err.find("  plan      cut 4 (asked): "), std::string::npos) << told.err;
  EXPECT_NE(told.err.find(" a token foreseen, "), std::string::npos) << told.err;
  EXPECT_NE(told.err.find("  cost      $"), std::string::npos) << told.err;
  EXPECT_NE(told.err.find("; all on the cloud: $"), std::string::npos) << told.err;
}

TEST_F(EdgeReceipts, OfAServerSayTheSameAndAreCounted) {
  measure();
  EdgeServer edge(arguments({"--cut=4", "--draft=off"}));
  edge.ready();
  Client client(edge.url());
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
  cloud.said_ms = 1e6;  // so that texts begin here once they can
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

// Weights that come beside a text are its receipt's, also where it ends on the cloud.
TEST_F(EdgeReceipts, CountWhatCameBesideTheText) {
  const Json stages =
      Json::parse(Client(cloud.url()).request("GET", "/v1/models/demo").body)["stages"];
  ASSERT_EQ(stages[1]["name"], "block.0");
  const std::string first = stages[1]["blobs"][0]["sha256"];
  cloud.reset({}, [&](const http::Request& request, int) -> std::optional<http::Response> {
    if (request.path.find(first) == std::string::npos) return std::nullopt;
    return http::Response::json(404, "{}");  // so that texts stay there
  });
  EdgeServer edge(arguments({"--cut=auto", "--draft=off"}));
  edge.ready();
  edge.until("1/8 layers here");
  const Json receipt = edge.ask(
      "/v1/completions",
      {{"prompt", {1, 2, 3}}, {"max_tokens", 4}, {"ignore_eos", true}})["usage"]["splitcompute"];
  EXPECT_GT(receipt["bytes_downloaded"], 0);
  EXPECT_GE(edge.status()["bytes_downloaded"], receipt["bytes_downloaded"]);
  EXPECT_GT(read_prometheus(edge.get("/metrics").body)
                .value("split_edge_shard_bytes_total", {{"source", "server"}}),
            0);
}

// How hidden states travel (--wire).
class EdgeWire : public EdgeReceipts {
 protected:
  Json answer(std::vector<std::string> more) const {
    more.insert(more.end(), {"--prompt-ids=1,2,3,4,5,6,7,8", "--max-tokens=4", "--temperature=0",
                             "--ignore-eos", "--draft=off", "--logprobs=1", "--json"});
    return run(std::move(more)).json();
  }
  static double logprob(const Json& answer) { return answer["logprobs"][0]["logprob"]; }
};

TEST_F(EdgeWire, RoundedRowsTakeFewerBytesAndAreNotExact) {
  const int rows = 8 + 3, row = 4 * 320;  // of the demo's
  for (const char* cut : {"4", "8"}) {
    const Json plain = answer({cat("--cut=", cut)});
    EXPECT_TRUE(plain["receipt"]["exact"].is_null());
    const double down = plain["receipt"]["bytes_down"];
    for (const auto& [format, part] : {std::pair("f16", 0.5), std::pair("q8_0", 34.0 / 128)}) {
      const Json got = answer({cat("--cut=", cut), cat("--wire=", format)});
      EXPECT_EQ(got["receipt"]["exact"], false) << format;
      // At a cut behind the last block only wanted rows travel.
      const double saved = (std::string(cut) == "8" ? 4 : rows) * row * (1 - part);
      EXPECT_NEAR(down - got["receipt"]["bytes_down"].get<double>(), saved, 4 * 64) << format;
      EXPECT_NEAR(logprob(got), logprob(plain), 0.05) << format;
      EXPECT_NE(logprob(got), logprob(plain)) << format;
    }
  }
  const Outcome told = run({"--cut=4", "--wire=q8_0", "--prompt-ids=1,2,3", "--max-tokens=2"});
  EXPECT_NE(told.err.find(" in all; rows as q8_0\n"), std::string::npos) << told.err;
  EXPECT_EQ(told.err.find("bit for bit"), std::string::npos) << told.err;
}

TEST_F(EdgeWire, RowsOnTheirWayUpAreRoundedToo) {
  const Json plain = answer({"--cut=8", "--head=cloud"});
  const Json got = answer({"--cut=8", "--head=cloud", "--wire=f16"});
  EXPECT_EQ(got["receipt"]["exact"], false);
  // Four rows go down and up again as halves; logits are as they are.
  const int saved = 4 * 320 * 2;
  EXPECT_NEAR(plain["receipt"]["bytes_up"].get<double>() - got["receipt"]["bytes_up"].get<double>(),
              saved, 4 * 64);
  EXPECT_NEAR(
      plain["receipt"]["bytes_down"].get<double>() - got["receipt"]["bytes_down"].get<double>(),
      saved, 4 * 64);
  EXPECT_NEAR(logprob(got), logprob(plain), 0.05);
}

TEST_F(EdgeWire, WhereNoRowTravelsNothingIsRounded) {
  for (const char* cut : {"0", "cloud"}) {
    const Json plain = answer({cat("--cut=", cut)});
    const Json got = answer({cat("--cut=", cut), "--wire=q8_0"});
    EXPECT_EQ(got["tokens"], plain["tokens"]);
    EXPECT_EQ(got["logprobs"], plain["logprobs"]);
    EXPECT_TRUE(got["receipt"]["exact"].is_null()) << cut;
  }
}

TEST_F(EdgeWire, ACloudThatKnowsNoFormatSendsItsRowsAsTheyAreAndALineSaysSo) {
  const Json plain = answer({"--cut=4"});
  cloud.reset_without_features();
  const Outcome got =
      run({"--cut=4", "--wire=f16", "--prompt-ids=1,2,3,4,5,6,7,8", "--max-tokens=4",
           "--temperature=0", "--ignore-eos", "--draft=off", "--json"});
  EXPECT_EQ(got.json()["tokens"], plain["tokens"]);
  EXPECT_EQ(got.json()["receipt"]["bytes_down"], plain["receipt"]["bytes_down"]);
  EXPECT_TRUE(got.json()["receipt"]["exact"].is_null());
  const std::string line =
      "--wire f16: the server knows no other format than f32: rows travel as f32\n";
  const size_t at = got.err.find(line);
  ASSERT_NE(at, std::string::npos) << got.err;
  EXPECT_EQ(got.err.find(line, at + 1), std::string::npos) << "said twice: " << got.err;
}

TEST_F(EdgeWire, IsRefusedBesideExactAndByAnUnknownName) {
  const Outcome both = run_edge(arguments({"--exact", "--wire=f16", "--prompt-ids=1"}));
  EXPECT_EQ(both.code, 2);
  EXPECT_NE(both.err.find("--exact: expected --wire f32 beside it, got f16"), std::string::npos)
      << both.err;
  const Outcome unknown = run_edge(arguments({"--wire=q4_0", "--prompt-ids=1"}));
  EXPECT_EQ(unknown.code, 2);
  EXPECT_NE(unknown.err.find("--wire"), std::string::npos) << unknown.err;
}

TEST_F(EdgeWire, APlanCountsItsBytesAndAServerSaysItIsNotExact) {
  const auto bytes = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--plan", "--json", "--draft=off"});
    return run(std::move(more)).json()["cuts"][5]["bytes_per_token"].get<int>();
  };
  EXPECT_EQ(bytes({}) - bytes({"--wire=f16"}), 2 * 320);
  EXPECT_EQ(bytes({}) - bytes({"--wire=q8_0"}), 4 * 320 - 10 * 34);
  EdgeServer edge(arguments({"--cut=4", "--draft=off", "--wire=q8_0"}));
  edge.ready();
  EXPECT_EQ(edge.status()["exact"], false);
  const http::Reply reply = edge.post(
      "/v1/completions", {{"prompt", {1, 2, 3}}, {"max_tokens", 3}, {"ignore_eos", true}});
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(Json::parse(reply.body)["usage"]["splitcompute"]["exact"], false);
  // A move of what runs could change it.
  const http::Reply moved = edge.send("PUT", "/split/cut", {{"cut", 6}, {"running", true}});
  EXPECT_EQ(moved.status, 200) << moved.body;
  EXPECT_EQ(edge.status()["exact"], false);
}

// A cloud whose device computes otherwise after a driver's reset says so beside its next rows: from
// then on nothing here is exact, and what has to be exact stays where it is.
TEST(EdgeBits, AreOthersOnceTheCloudsDeviceWasLost) {
  for (const bool wrong : {false, true}) {
    auto made = std::make_unique<ResetDevice>(wrong);
    ResetDevice& device = *made;
    GatedCloud cloud("demo", Profile::kInt8, std::move(made));
    const TemporaryFolder cache;
    const std::vector<std::string> arguments{cat("--server=", cloud.url()),
                                             cat("--cache=", cache.path.string()), "--exact",
                                             "--draft=off", "--device=cpu"};
    const auto with = [&](std::vector<std::string> more) {
      more.insert(more.end(), arguments.begin(), arguments.end());
      return more;
    };
    EdgeServer edge(with({"--cut=2"}));
    edge.ready();
    const auto exact_of = [&] {
      const Json made = edge.ask(
          "/v1/completions",
          {{"prompt", {1, 2, 3}}, {"max_tokens", 6}, {"ignore_eos", true}, {"temperature", 0}});
      return made["usage"]["splitcompute"]["exact"];
    };
    const auto move = [&](int cut) {
      return edge.send("PUT", "/split/cut", {{"cut", cut}, {"running", true}});
    };
    const Json receipt = {
        {"prompt", {1, 2}}, {"max_tokens", 2}, {"ignore_eos", true}, {"receipt", true}};
    EXPECT_EQ(move(3).status, 200);
    EXPECT_EQ(exact_of(), true);
    EXPECT_EQ(edge.post("/v1/completions", receipt).status, 200);
    device.fails_at = device.steps + 3;
    EXPECT_EQ(exact_of(), !wrong);
    EXPECT_EQ(device.restarts, 1);
    EXPECT_EQ(edge.status()["exact"], !wrong);
    EXPECT_EQ(exact_of(), !wrong);
    const http::Reply moved = move(2);
    EXPECT_EQ(moved.status, wrong ? 409 : 200) << moved.body;
    EXPECT_EQ(moved.body.find("\"not_exact\"") != std::string::npos, wrong) << moved.body;
    const http::Reply told = edge.post("/v1/completions", receipt);
    EXPECT_EQ(told.status, wrong ? 400 : 200) << told.body;
    // Another edge reads the new name, and takes the model for what it is.
    const Json fresh = run_edge(with({"--plan", "--measure", "--json"})).json();
    EXPECT_EQ(fresh.at("exact"), !wrong) << fresh;
  }
}

TEST(EdgeBits, AMoveThatWasPlannedStaysOnceTheyAreOthers) {
  for (const bool wrong : {false, true}) {
    auto made = std::make_unique<ResetDevice>(wrong, ResetDevice::kSelfTest + 5);
    ResetDevice& device = *made;
    GatedCloud cloud("demo", Profile::kInt8, std::move(made));
    const TemporaryFolder cache;
    const Outcome got =
        run_edge({cat("--server=", cloud.url()), cat("--cache=", cache.path.string()), "--exact",
                  "--draft=off", "--cut=4", "--moves=20:2", "--prompt-ids=1,2,3", "--max-tokens=32",
                  "--ignore-eos", "--json", "--device=cpu"});
    ASSERT_EQ(got.code, 0) << got.err;
    EXPECT_EQ(device.restarts, 1);
    const Json receipt = got.json()["receipt"];
    EXPECT_EQ(receipt["exact"], !wrong);
    EXPECT_EQ(receipt["moves"].size(), wrong ? 0u : 1u);
    EXPECT_EQ(got.json()["tokens"].size(), 32u);
  }
}

}  // namespace
}  // namespace split::test
