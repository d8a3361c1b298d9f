// A budget pays for what requests hold before it is allocated: large answers are made in parts, and
// what a budget does not cover is refused and leaves nothing behind.
#include <thread>

#include "support/cloud_fixture.h"
#include "wire/protocol.h"

namespace split::cloud {
namespace {

constexpr uint64_t kMiB = 1 << 20;

// All is given back soon after the last byte of an answer.
void expect_all_given_back(const Cloud& cloud) {
  while (cloud.memory.used() != 0) std::this_thread::yield();
}

TEST(CloudMemory, LogitsOfAllRowsAreHeldSomeAtATime) {
  TestCloud cloud({"demo"});
  const std::string path = wire::model_forward_path("demo");
  std::vector<int32_t> ids(300);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i % 50);
  const uint64_t all = ids.size() * static_cast<uint64_t>(cloud.config().vocab) * sizeof(float);
  cloud.cloud.memory.set_limit(all / 4);
  const Json some = {{"tokens", ids}, {"rows", {0, 31, 32, 150, 299}}, {"top", 3}};
  const Json every = {{"tokens", ids}, {"rows", "all"}, {"top", 3}};
  const Json few = json_of(cloud.ask().post(path, some))["top"];
  const Json many = json_of(cloud.ask().post(path, every))["top"];
  ASSERT_EQ(many.size(), ids.size());
  EXPECT_EQ(few, Json({many[0], many[31], many[32], many[150], many[299]}));  // bit for bit
  // Rows of a list that is spread over all of them.
  std::vector<uint32_t> odd;
  for (uint32_t row = 1; row < ids.size(); row += 2) odd.push_back(row);
  const Json odds =
      json_of(cloud.ask().post(path, {{"tokens", ids}, {"rows", odd}, {"top", 3}}))["top"];
  ASSERT_EQ(odds.size(), odd.size());
  for (size_t i = 0; i < odd.size(); ++i) ASSERT_EQ(odds[i], many[odd[i]]) << i;
  expect_all_given_back(cloud.cloud);
}

TEST(CloudMemory, JsonThatWouldTakeTooMuchIsRefusedForNow) {
  TestCloud cloud({"demo"});
  cloud.cloud.memory.set_limit(64 * kMiB);
  std::string body = "{\"tokens\":[{}";
  while (body.size() < 8 * kMiB - 16) body += ",{}";  // parsed, 300 MB
  body += "]}";
  for (const std::string& path :
       {wire::model_forward_path("demo"), std::string("/v1/completions")}) {
    const http::Reply reply = cloud.ask().send("POST", path, body);
    expect_error(reply, 503, "busy", "", path);
    EXPECT_EQ(reply.headers.get("Retry-After"), "1");
  }
  expect_all_given_back(cloud.cloud);
  EXPECT_GE(cloud.cloud.memory.refusals(), 2u);
  EXPECT_EQ(cloud.ask().get("/livez").status, 200);
  const std::string metrics = cloud.ask().get("/metrics").body;
  for (const char* name : {"split_memory_budget_bytes 67108864", "split_memory_used_bytes ",
                           "split_memory_refusals_total "}) {
    EXPECT_NE(metrics.find(name), std::string::npos) << name;
  }
}

TEST(CloudMemory, AStormNeverHoldsMoreThanTheBudgetAndEndsInAnswers) {
  TestCloud cloud({"demo"});
  std::vector<int32_t> ids(200, 1);
  const Json body = {{"tokens", ids}, {"rows", "all"}, {"top", 1}};
  cloud.cloud.memory.set_limit(3 * kMiB);  // two at a time
  std::atomic<int> answered{0}, refused{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < 12; ++i) {
    clients.emplace_back([&] {
      Caller caller(cloud.url());
      const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
      while (std::chrono::steady_clock::now() < end) {
        const http::Reply reply = caller.post(wire::model_forward_path("demo"), body);
        if (reply.status == 200) {
          ++answered;
          return;
        }
        EXPECT_EQ(reply.status, 503) << reply.body;
        ++refused;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(answered, 12);
  EXPECT_GT(refused, 0);
  expect_all_given_back(cloud.cloud);
}

TEST(CloudMemory, ATextThatCannotFitIsNotEncoded) {
  TestCloud cloud({"demo"});
  const http::Reply reply =
      cloud.ask().post("/v1/completions", {{"prompt", std::string(4 * kMiB, 'a')}});
  expect_error(reply, 400, "invalid_request", "prompt");
  EXPECT_NE(reply.body.find("which has at least"), std::string::npos) << reply.body;
}

TEST(CloudMemory, AHeaderOfTensorsHasABound) {
  TestCloud cloud({"demo"});
  std::string frame(8, '\0');
  const uint64_t length = 1 << 20;
  std::memcpy(frame.data(), &length, sizeof length);
  frame += "{" + std::string(length - 2, ' ') + "}";
  const http::Reply reply =
      cloud.ask().post_tensors(wire::model_forward_path("demo") + "?from=1&to=2", std::move(frame));
  expect_error(reply, 400, "invalid_request", "");
  EXPECT_NE(reply.body.find("expected at most 65536"), std::string::npos) << reply.body;
}

}  // namespace
}  // namespace split::cloud
