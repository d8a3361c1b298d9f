// /split/status on the stages: where each is to be, where it runs, and how much of it has
// landed.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "moving_pair.h"
#include "support/edge_server.h"

namespace split::test {
namespace {

using Json = nlohmann::json;

Json stage_of(const Json& status, const std::string& name) {
  for (const Json& stage : status.at("stages")) {
    if (stage.at("name") == name) return stage;
  }
  ADD_FAILURE() << "no stage " << name << " in " << status;
  return {};
}

std::set<std::string> hashes_of(GatedCloud& cloud, const std::set<std::string>& stages) {
  std::set<std::string> hashes;
  const Json model = Json::parse(Client(cloud.url()).request("GET", "/v1/models/rand-a").body);
  for (const Json& stage : model.at("stages")) {
    if (!stages.contains(stage.at("name"))) continue;
    for (const Json& blob : stage.at("blobs")) hashes.insert(blob.at("sha256"));
  }
  return hashes;
}

// All that is fetched is to run here; until it can, the text is the cloud's.
TEST(EdgeStatus, SaysThatTheCloudRunsWhatIsOnItsWayHere) {
  MovingPair& pair = MovingPair::of("rand-a");
  const TemporaryFolder fresh;
  const std::set<std::string> first = hashes_of(pair.cloud, {"norm", "head"});
  std::atomic<bool> all_come = false;
  pair.cloud.reset({}, [&](const http::Request& request, int) -> std::optional<http::Response> {
    if (!first.contains(request.path.substr(request.path.rfind('/') + 1))) all_come.wait(false);
    return std::nullopt;
  });
  pair.cloud.said_ms = 1e-6;  // quicker than this machine
  std::vector<std::string> arguments = pair.arguments({"--cut=auto"});
  arguments.push_back(cat("--cache=", fresh.path.string()));
  EdgeServer edge(arguments);
  edge.ready();
  const auto is_here = [&](const char* name) {
    return stage_of(edge.status(), name)["landing"]["percent"] == 100;
  };
  ASSERT_TRUE(soon([&] { return is_here("head"); }));
  edge.ask("/v1/completions", {{"prompt", pair.prompt()}, {"max_tokens", 8}});
  Json status = edge.status();
  EXPECT_EQ(status["cut"], "cloud");
  const int layers = status["layers"];
  for (const Json& stage : status["stages"]) {
    const bool landed = stage["name"] == "norm" || stage["name"] == "head";
    EXPECT_EQ(stage["where"], "edge") << stage;
    EXPECT_EQ(stage["runs"], "cloud") << stage;
    const bool block = stage["name"].get<std::string>().starts_with("block.");
    EXPECT_EQ(stage["kind"], block ? Json("attention") : Json()) << stage;
    EXPECT_EQ(stage["landing"]["percent"], landed ? 100 : 0) << stage;
    if (landed) {
      EXPECT_EQ(stage["landing"]["seconds_left"], nullptr) << stage;
    }
  }
  // The last block comes next; those behind it are here later.
  const Json last = stage_of(status, cat("block.", layers - 1))["landing"]["seconds_left"];
  const Json before = stage_of(status, cat("block.", layers - 2))["landing"]["seconds_left"];
  EXPECT_EQ(last.is_number(), before.is_number());
  if (last.is_number()) {
    EXPECT_LT(last, before);
  }
  all_come = true;
  all_come.notify_all();
  ASSERT_TRUE(soon([&] { return is_here("embed"); }));
  // It may stay there with all weights here.
  for (const Json& stage : edge.status()["stages"]) {
    EXPECT_EQ(stage["runs"], "cloud") << stage;
    EXPECT_EQ(stage["landing"]["percent"], 100) << stage;
  }
  EXPECT_EQ(edge.send("PUT", "/split/cut", {{"cut", 0}}).status, 200);
  for (const Json& stage : edge.status()["stages"]) {
    EXPECT_EQ(stage["runs"], "here") << stage;
    EXPECT_EQ(stage["landing"], (Json{{"percent", 100}, {"seconds_left", nullptr}})) << stage;
  }
}

// A stage changes sides where the text does, which is later than somebody asked for it.
TEST(EdgeStatus, FollowsATextThatMoves) {
  MovingPair& pair = MovingPair::of("rand-a");
  EdgeServer edge(pair.arguments({"--cut=2", "--draft=off"}));
  edge.ready();
  EXPECT_EQ(stage_of(edge.status(), "block.1")["runs"], "cloud");
  EXPECT_EQ(stage_of(edge.status(), "block.2")["runs"], "here");
  std::atomic<int> steps = 0;
  std::set<Json> seen;
  pair.cloud.reset([&](const http::Request& request, int) -> std::optional<http::Response> {
    if (request.body.find("\"fill\":true") != std::string::npos) return std::nullopt;
    const int n = steps++;
    if (n == 2) {
      EXPECT_EQ(edge.send("PUT", "/split/cut", {{"cut", 1}, {"running", true}}).status, 200);
    }
    if (n < 2) return std::nullopt;
    // A busy machine may not have fetched its rows before the text's end.
    if (n == 20) {
      EXPECT_TRUE(soon([&] {
        const Json answer = edge.status()["answers"].at(0);
        return answer["lane"] == "ready" || answer["cut"] == 1;
      }));
    }
    const Json status = edge.status(), stage = stage_of(status, "block.1");
    const Json cut = status["answers"].at(0)["cut"];
    EXPECT_EQ(stage["where"], "edge") << stage;
    EXPECT_EQ(stage["runs"], cut == 1 ? "here" : "cloud") << status;
    seen.insert(cut);
    return std::nullopt;
  });
  const Json json =
      edge.ask("/v1/completions",
               {{"prompt", pair.prompt()}, {"seed", 5}, {"max_tokens", 40}, {"ignore_eos", true}});
  EXPECT_EQ(json["usage"]["splitcompute"]["cut"], 1);
  EXPECT_EQ(seen, (std::set<Json>{1, 2}));
  // The head may be on the cloud for all texts.
  EXPECT_EQ(edge.send("PUT", "/split/placement", {{"head", "cloud"}}).status, 200);
  const Json status = edge.status();
  for (const auto& [name, where] : std::initializer_list<std::pair<const char*, const char*>>{
           {"embed", "cloud"}, {"block.0", "cloud"}, {"block.1", "here"}, {"head", "cloud"}}) {
    EXPECT_EQ(stage_of(status, name)["runs"], where) << name;
  }
}

// A driver that computes on the processor is no GPU, whatever it is called.
TEST(EdgeStatus, TellsAGpuFromADriverThatComputesOnTheProcessor) {
  MovingPair& pair = MovingPair::of("rand-a");
  EdgeServer edge(pair.arguments({"--cut=2"}));
  edge.ready();
  for (const ListedDevice& device : list_devices()) {
    if (!device.usable) continue;
    SCOPED_TRACE(device.text);
    ASSERT_EQ(edge.send("PUT", "/split/placement", {{"device", device.name}}).status, 200);
    const Json status = edge.status();
    EXPECT_EQ(status["device"]["is_gpu"], device.is_gpu) << status["device"];
    EXPECT_EQ(stage_of(status, "block.2")["is_gpu"], device.is_gpu);
    EXPECT_EQ(stage_of(status, "block.1")["is_gpu"], false);
    const Json held = Json::parse(edge.get("/api/ps").body)["models"][0];
    EXPECT_GT(held["size"], 0);
    EXPECT_EQ(held["size_vram"], device.is_gpu ? held["size"] : Json(0));
  }
}

}  // namespace
}  // namespace split::test
