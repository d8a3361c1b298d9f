// Sessions whose blocks do not all have the same rows: steps to any point, and fills.
#include <atomic>
#include <thread>

#include "run/shard/shard.h"
#include "support/cloud_fixture.h"
#include "support/prometheus_text.h"
#include "wire/protocol.h"

namespace split::cloud {
namespace {

class CloudLayers : public testing::Test {
 protected:
  explicit CloudLayers(const std::string& model = "rand-a", Profile profile = Profile::kF32)
      : name(model), golden(model), cloud({model}, 64 << 20, {}, profile) {
    const auto values = golden.values<int32_t>("eval.ids");
    ids.assign(values.begin(), values.end());
  }

  static std::string path(int n) {
    const std::string id = cat(n);
    return wire::session_path(std::string(32 - id.size(), '0') + id);
  }
  http::Reply put(int n, const Json& body) { return cloud.ask().send("PUT", path(n), body.dump()); }
  // Rows [past, past + count) of the ids.
  http::Reply step(int n, size_t past, size_t count, Json fields) {
    return step(cloud.ask(), n, past, count, std::move(fields));
  }
  http::Reply step(Caller& caller, int n, size_t past, size_t count, Json fields) {
    fields["past"] = past;
    fields["tokens"] = tokens(past, count);
    return caller.post(path(n) + "/forward", fields);
  }
  http::Reply fill(int n, size_t past, size_t count, Json fields) {
    fields.update({{"fill", true}, {"past", past}, {"count", count}});
    return cloud.ask().post(path(n) + "/forward", fields);
  }
  std::vector<int32_t> tokens(size_t past, size_t count) const {
    const auto first = ids.begin() + static_cast<ptrdiff_t>(past);
    return {first, first + static_cast<ptrdiff_t>(count)};
  }
  std::vector<float> values(const http::Reply& reply, const char* tensor = "hidden") {
    EXPECT_EQ(reply.status, 200) << reply.body;
    return reply.status == 200 ? floats_of(reply.body, tensor) : std::vector<float>();
  }
  // Those rows by the route without a session.
  std::vector<float> fresh(size_t past, size_t count, const Json& to) {
    const bool head = to == "head";
    const std::vector<float> all =
        values(cloud.ask().post_for_tensors(
                   "/v1/models/" + name + "/forward",
                   {{"tokens", tokens(0, past + count)}, {"to", to}, {"rows", "all"}}),
               head ? "logits" : "hidden");
    const size_t width = all.size() / (past + count);
    return {all.begin() + static_cast<ptrdiff_t>(past * width), all.end()};
  }
  Json describe(int n) { return json_of(cloud.ask().get(path(n))); }

  const std::string name;
  const Golden golden;
  std::vector<int32_t> ids;
  TestCloud cloud;
};

TEST_F(CloudLayers, AModelSaysWhatItsSessionsKnow) {
  const Json json = json_of(cloud.ask().get("/v1/models/rand-a"));
  for (const char* feature : {"to", "fill", "completions", "load", "digest", "again"}) {
    const auto& all = json["features"];
    EXPECT_NE(std::find(all.begin(), all.end(), feature), all.end()) << feature;
  }
  EXPECT_EQ(json["phases_alike"], true);
  EXPECT_EQ(json["bits"], "cpu 2; f32; kv f32; narrow; embed f32, block f32, norm f32, head f32");
}

TEST_F(CloudLayers, AModelSaysHowBusyItIs) {
  const Json before = json_of(cloud.ask().get("/v1/models/rand-a/load"));
  for (const char* cost :
       {"block_ms", "block_row_ms", "head_ms", "head_row_ms", "prompt_row_ms", "want"}) {
    EXPECT_TRUE(before.at(cost).is_null()) << cost;
  }
  EXPECT_EQ(before["step_ms"], (Json{{"p50", nullptr}, {"p99", nullptr}}));
  EXPECT_EQ(before["busy"], 0);
  EXPECT_EQ(before["sessions"], 0);
  ASSERT_EQ(put(1, {{"cut", 3}}).status, 201);
  ASSERT_EQ(step(1, 0, 20, {}).status, 200);
  cloud.cloud.models[0]->measure();
  const Json after = json_of(cloud.ask().get("/v1/models/rand-a/load"));
  for (const char* cost : {"block_ms", "head_ms", "prompt_row_ms"}) {
    EXPECT_GE(after.at(cost), 0) << cost;
  }
  EXPECT_GT(after["busy"], 0);
  EXPECT_GT(after["step_ms"]["p99"], 0);
  EXPECT_EQ(after["sessions"], 1);
  const Shard& shard = cloud.cloud.models[0]->batcher().shard();
  EXPECT_EQ(after["kv_free_bytes"], shard.page_bytes() * (shard.pages().total() - 2));
  EXPECT_EQ(after["prices"], (Json{{"hour", nullptr}, {"egress_gb", nullptr}}));
  cloud.cloud.price_hour = 3.5;
  cloud.cloud.price_egress_gb = 0.09;
  EXPECT_EQ(json_of(cloud.ask().get("/v1/models/rand-a/load"))["prices"],
            (Json{{"hour", 3.5}, {"egress_gb", 0.09}}));
  expect_error(cloud.ask().get("/v1/models/none/load"), 404, "model_not_found", "model");
}

TEST(LoadMeter, LooksAtTheLastSeconds) {
  LoadMeter meter;
  const LoadMeter::Time start{};
  const auto at = [&](double ms) {
    return start + std::chrono::microseconds(static_cast<int64_t>(1000 * ms));
  };
  EXPECT_EQ(meter.at(at(0)).busy, 0);
  EXPECT_FALSE(meter.at(at(0)).p99_ms.has_value());
  for (int i = 1; i <= 100; ++i) meter.add(i, at(100 * i));  // 1 to 100 ms in each 100
  EXPECT_EQ(meter.at(at(10000)).p50_ms, 50);
  EXPECT_EQ(meter.at(at(10000)).p99_ms, 99);
  EXPECT_NEAR(meter.at(at(10000)).busy, (51 + 100) * 25 / 5000.0, 0.02);
  EXPECT_EQ(meter.at(at(20000)).busy, 0);
  // More steps than are kept: of the time that these took.
  for (int i = 1; i <= 1000; ++i) meter.add(0.5, at(20000 + i));
  EXPECT_NEAR(meter.at(at(21000)).busy, 0.5, 0.01);
  EXPECT_NEAR(meter.at(at(21000)).work, 0.5, 0.01);
  for (int i = 1; i <= 1000; ++i) meter.add(0.5, 0.1, at(21000 + i));
  EXPECT_NEAR(meter.at(at(22000)).busy, 0.5, 0.01);
  EXPECT_NEAR(meter.at(at(22000)).work, 0.1, 0.01);
}

TEST(LoadMeter, WhatAStepCostsAtLeastIsSharedByAFullOne) {
  const StepCosts costs{.block_ms = 0.5, .head_ms = 2};
  StepSeen seen{.ms = 10, .generated_rows = 8, .to = Point::head()};
  EXPECT_DOUBLE_EQ(work_of(seen, costs, 12, 32), 10 - 8 * 0.75);
  seen.to = 4;
  EXPECT_DOUBLE_EQ(work_of(seen, costs, 12, 32), 10 - 2 * 0.75);
  seen.fill_rows = 24;  // a full one
  EXPECT_DOUBLE_EQ(work_of(seen, costs, 12, 32), 10);
  seen = {.ms = 1, .generated_rows = 1, .to = Point::head()};  // it was quicker than ever
  EXPECT_DOUBLE_EQ(work_of(seen, costs, 12, 32), 0);
}

TEST_F(CloudLayers, AStepGoesAsFarAsItSays) {
  ASSERT_EQ(put(1, {{"cut", 3}}).status, 201);
  for (int to = 0; to <= 3; ++to) {
    EXPECT_EQ(values(step(1, 0, 9, {{"to", to}})), fresh(0, 9, to)) << to;
  }
  EXPECT_EQ(values(step(1, 9, 2, {{"to", "norm"}})), fresh(9, 2, "norm"));
  EXPECT_EQ(values(step(1, 11, 2, {{"to", "head"}}), "logits"), fresh(11, 2, "head"));
  EXPECT_EQ(values(step(1, 13, 1, {})), fresh(13, 1, 3));  // the session's own
  const http::Reply none = step(1, 14, 2, {{"to", 2}, {"rows", "none"}, {"can", 1}});
  EXPECT_EQ(none.status, 204);
  EXPECT_EQ(none.body, "");
  EXPECT_TRUE(none.headers.get("Server-Timing").has_value());
  EXPECT_EQ(describe(1)["have"], 16);
  EXPECT_EQ(values(step(1, 16, 1, {{"to", 2}})), fresh(16, 1, 2));
}

TEST_F(CloudLayers, AStepGoesNoFartherThanItsSession) {
  ASSERT_EQ(put(1, {{"cut", 2}}).status, 201);
  ASSERT_EQ(put(2, {{"from", 1}, {"to", 2}}).status, 201);
  for (const Json& to : std::vector<Json>{3, "norm", "head"}) {
    expect_error(step(1, 0, 1, {{"to", to}}), 400, "invalid_request", "to", to.dump());
  }
  const std::string row = wire::frame("hidden", 1, 96, std::vector<float>(96, 1.0f));
  const auto hidden = [&](const std::string& query) {
    return cloud.ask().post_tensors(path(2) + "/forward?past=0" + query, row);
  };
  expect_error(hidden("&to=0"), 400, "invalid_request", "to");
  expect_error(hidden("&to=3"), 400, "invalid_request", "to");
  EXPECT_EQ(hidden("&to=1").body, row);
  EXPECT_EQ(hidden("&to=2&rows=none").status, 204);
}

TEST_F(CloudLayers, AFillGivesBlocksTheRowsThatTheyLack) {
  ASSERT_EQ(put(1, {{"cut", 3}}).status, 201);
  ASSERT_EQ(step(1, 0, 20, {{"to", 1}}).status, 200);
  const http::Reply early = step(1, 20, 1, {{"to", 3}});
  expect_error(early, 409, "depth_mismatch", "past");
  EXPECT_EQ(json_of(early, 409)["error"]["have"], 0);
  expect_error(fill(1, 1, 5, {{"to", 3}}), 409, "depth_mismatch", "past");
  EXPECT_EQ(describe(1)["have"], 20);  // nothing was lost

  EXPECT_EQ(values(fill(1, 0, 8, {{"to", 2}, {"rows", "all"}})), fresh(0, 8, 2));
  const http::Reply farther = fill(1, 8, 12, {{"to", 3}, {"rows", "all"}});
  EXPECT_EQ(json_of(farther, 409)["error"]["have"], 0);
  EXPECT_EQ(fill(1, 0, 8, {{"to", 3}, {"rows", "none"}}).status, 204);
  const http::Reply partly = step(1, 20, 1, {{"to", 3}});
  EXPECT_EQ(json_of(partly, 409)["error"]["have"], 8);
  // A fill again, and beyond it: positions say what is meant.
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(values(fill(1, 6, 14, {{"to", 3}, {"rows", "all"}})), fresh(6, 14, 3));
  }
  EXPECT_EQ(values(step(1, 20, 3, {{"to", 3}})), fresh(20, 3, 3));
  EXPECT_EQ(values(fill(1, 20, 3, {{"to", "head"}, {"rows", "last"}}), "logits"),
            fresh(22, 1, "head"));
  // Less deep again, and the others fall behind.
  EXPECT_EQ(values(step(1, 23, 1, {{"to", 1}})), fresh(23, 1, 1));
  EXPECT_EQ(json_of(step(1, 24, 1, {{"to", 2}}), 409)["error"]["have"], 23);
  EXPECT_EQ(cloud.ask().send("DELETE", path(1)).status, 204);
  EXPECT_EQ(cloud.pages().in_use(), 0u);
}

TEST_F(CloudLayers, AFillIsOfRowsThatAreThere) {
  expect_error(fill(1, 0, 1, {{"to", 1}}), 404, "session_unknown", "");
  ASSERT_EQ(put(1, {{"cut", 3}}).status, 201);
  ASSERT_EQ(put(2, {{"from", 1}, {"to", 3}}).status, 201);
  expect_error(fill(1, 0, 1, {{"to", 1}}), 409, "position_mismatch", "past");
  ASSERT_EQ(step(1, 0, 12, {}).status, 200);
  for (const auto& [past, count] : {std::pair{0, 13}, {12, 1}, {11, 2}, {64, 1}}) {
    const http::Reply reply = fill(1, size_t(past), size_t(count), {});
    expect_error(reply, 409, "position_mismatch", "past");
    EXPECT_EQ(json_of(reply, 409)["error"]["have"], 12);
  }
  expect_error(fill(2, 0, 1, {}), 400, "invalid_request", "fill");
  expect_error(fill(1, 0, 0, {}), 400, "invalid_request", "count");
  expect_error(fill(1, 0, 65, {}), 400, "invalid_request", "count");
  expect_error(fill(1, 0, 1, {{"tokens", {1}}}), 400, "invalid_request", "tokens");
  expect_error(fill(1, 0, 1, {{"phase", "prompt"}}), 400, "invalid_request", "phase");
  // Cut back, the session knows no more of what was there.
  ASSERT_EQ(step(1, 4, 2, {{"to", 1}}).status, 200);
  EXPECT_EQ(values(fill(1, 0, 6, {})), fresh(0, 6, 3));
  EXPECT_EQ(describe(1)["have"], 6);
}

// A device that was lost took all rows along: as for a step, the client sends its tokens again.
TEST_F(CloudLayers, AFillOfALostSessionIsRefused) {
  ASSERT_EQ(put(1, {{"cut", 3}}).status, 201);
  ASSERT_EQ(step(1, 0, 12, {{"to", 1}}).status, 200);
  cloud.pages().forget();
  const http::Reply lost = fill(1, 0, 12, {});
  expect_error(lost, 409, "position_mismatch", "past");
  EXPECT_EQ(json_of(lost, 409)["error"]["have"], 0);
  ASSERT_EQ(step(1, 0, 5, {{"to", 1}}).status, 200);
  EXPECT_EQ(values(fill(1, 0, 5, {})), fresh(0, 5, 3));
}

TEST_F(CloudLayers, WhatLayersWereRunIsCounted) {
  ASSERT_EQ(put(1, {{"cut", 3}}).status, 201);
  ASSERT_EQ(step(1, 0, 10, {{"to", 1}}).status, 200);
  ASSERT_EQ(fill(1, 0, 10, {{"to", 2}, {"rows", "none"}}).status, 204);
  const uint64_t head =
      cloud.cloud.models[0]->batcher().shard().layer_rows({3, Point::head()}, 0, 1);
  ASSERT_GT(head, 0u);
  ASSERT_EQ(fill(1, 0, 10, {{"to", "head"}, {"rows", "last"}}).status, 200);
  EXPECT_EQ(describe(1)["layer_rows"], 10 + 20 + 30 + head);
  EXPECT_EQ(describe(1)["steps"], 3);
  const auto read = test::read_prometheus(cloud.ask().get("/metrics").body);
  EXPECT_EQ(read.value("split_layer_rows_total"), static_cast<double>(60 + head));
  EXPECT_EQ(read.value("split_fill_rows_total"), 20);
  EXPECT_EQ(read.value("split_tokens_total", {{"phase", "prefill"}}), 10);
  EXPECT_EQ(read.value("split_step_depths_count"), 3);
  EXPECT_EQ(read.value("split_step_depths_sum"), 3);
}

// Steps of a text run between the slices of a fill, and both come out right.
TEST_F(CloudLayers, StepsAndFillsOfOneSessionMeet) {
  ASSERT_EQ(put(1, {{"cut", 3}}).status, 201);
  ASSERT_EQ(step(1, 0, 8, {{"to", 1}}).status, 200);
  std::vector<std::vector<float>> expected;
  for (size_t at = 8; at < 50; ++at) expected.push_back(fresh(at, 1, 1));
  std::atomic<size_t> wrong = 0, have = 8;
  std::thread steps([&] {
    Caller caller(cloud.url());
    for (size_t at = 8; at < 50; ++at) {
      const http::Reply reply = step(caller, 1, at, 1, {{"to", 1}});
      wrong += reply.status != 200 || floats_of(reply.body, "hidden") != expected[at - 8];
      have = at + 1;
    }
  });
  for (size_t filled = 0; filled < 50;) {
    const size_t count = have - filled;
    if (count == 0) continue;
    EXPECT_EQ(values(fill(1, filled, count, {{"to", 3}})), fresh(filled, count, 3));
    filled += count;
  }
  steps.join();
  EXPECT_EQ(wrong, 0u);
}

// Rows repeat the phase that they came with, where that matters; longer than a slice.
class CloudLayersInBlocks : public CloudLayers {
 protected:
  CloudLayersInBlocks() : CloudLayers("demo", Profile::kQ8_0) {}
};

TEST_F(CloudLayersInBlocks, FillsRepeatPhases) {
  const Json json = json_of(cloud.ask().get("/v1/models/demo"));
  EXPECT_EQ(json["phases_alike"], false);
  for (const int n : {1, 2}) {
    ASSERT_EQ(put(n, {{"cut", 8}}).status, 201);
    const int to = n == 1 ? 2 : 8;
    ASSERT_EQ(step(n, 0, 90, {{"to", to}}).status, 200);
    ASSERT_EQ(step(n, 90, 5, {{"to", to}, {"phase", "generate"}}).status, 200);
    ASSERT_EQ(step(n, 95, 75, {{"to", to}}).status, 200);
  }
  ASSERT_EQ(fill(1, 0, 170, {{"rows", "none"}}).status, 204);
  const Json next = {{"to", "head"}, {"phase", "generate"}};
  EXPECT_EQ(values(step(1, 170, 1, next), "logits"), values(step(2, 170, 1, next), "logits"));
}

}  // namespace
}  // namespace split::cloud
