// The ledger: what sessions' receipts say that they cost, and what the server counted, are the
// same sums, whoever shared steps with whom.
#include <atomic>
#include <thread>

#include "support/cloud_fixture.h"
#include "support/prometheus_text.h"
#include "wire/protocol.h"

namespace split::cloud {
namespace {

constexpr int kSessions = 12;

std::string id_of(int n) {
  return std::string(30, '0') + static_cast<char>('a' + n % 6) + cat(n / 6);
}

// Steps of any depth, fills, refused ones, and a text that the cloud makes.
void use_session(const std::string& url, int n, uint64_t& bytes_out) {
  Caller caller(url);
  const std::string path = wire::session_path(id_of(n));
  ASSERT_EQ(caller.send("PUT", path, R"({"model":"demo","to":8})").status, 201);
  const auto ask = [&](const Json& body) {
    const http::Reply reply = caller.post_for_tensors(path + "/forward", body);
    if (reply.status < 300) bytes_out += reply.body.size();
    return reply.status;
  };
  const int cut = 2 * (n % 5);  // 0: nothing but the embedding
  ASSERT_EQ(ask({{"past", 0}, {"tokens", std::vector<int>(70, n)}, {"to", cut}}), 200);
  for (int t = 0; t < 10; ++t) {
    const Json to = n % 3 == 0 && cut == 8 ? Json("head") : Json(cut);
    ASSERT_EQ(ask({{"past", 70 + t}, {"tokens", {t}}, {"to", to}, {"phase", "generate"}}), 200);
  }
  ASSERT_EQ(ask({{"past", 200}, {"tokens", {1}}}), 409);
  if (cut > 0) {
    ASSERT_EQ(ask({{"fill", true}, {"past", 0}, {"count", 80}, {"to", 8}, {"rows", "none"}}), 204);
  }
  if (n % 4 != 3) return;
  const http::Reply text =
      caller.post("/v1/models/demo/sessions/" + id_of(n) + "/completions",
                  {{"prompt", "Once"}, {"max_tokens", 16}, {"ignore_eos", true}, {"stream", true}});
  ASSERT_EQ(text.status, 200);
}

TEST(CloudLedger, ReceiptsOfSessionsAddUpToWhatTheServerCounted) {
  TestCloud cloud({"demo"});
  double busy_ms = 0;  // steps run one after the other
  cloud.cloud.models[0]->batcher().on_step([&](const StepSeen& seen) { busy_ms += seen.ms; });
  std::vector<uint64_t> bytes(kSessions);
  std::vector<std::thread> threads;
  for (int n = 0; n < kSessions; ++n) {
    threads.emplace_back([&, n] { use_session(cloud.url(), n, bytes[static_cast<size_t>(n)]); });
  }
  for (std::thread& thread : threads) thread.join();
  double share_ms = 0, compute_ms = 0, layer_rows = 0;
  for (int n = 0; n < kSessions; ++n) {
    const Json receipt = json_of(cloud.ask().get(wire::session_path(id_of(n))));
    share_ms += receipt["share_ms"].get<double>();
    compute_ms += receipt["compute_ms"].get<double>();
    layer_rows += receipt["layer_rows"].get<double>();
    EXPECT_LE(receipt["share_ms"], receipt["compute_ms"]);
    EXPECT_EQ(receipt["bytes_out"], bytes[static_cast<size_t>(n)]);
  }
  test::PrometheusReader reader(cloud.ask().get("/metrics").body);
  const test::PrometheusText counted = reader.take();
  EXPECT_EQ(layer_rows, counted.value("split_layer_rows_total"));
  EXPECT_NEAR(share_ms, busy_ms, 0.01 * busy_ms);
  const double seconds =
      counted.value("split_forward_duration_seconds_sum", {{"phase", "decode"}}) +
      counted.value("split_forward_duration_seconds_sum", {{"phase", "prefill"}});
  EXPECT_NEAR(share_ms / 1e3, seconds, 0.01 * seconds);
  EXPECT_GE(compute_ms, share_ms);
}

}  // namespace
}  // namespace split::cloud
