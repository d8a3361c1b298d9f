// Texts that --cut auto places, at a terminal and with --serve: they begin on the cloud and go on
// where the weights have come to.
#include <gtest/gtest.h>

#include "edge/moving_pair.h"
#include "edge_client/options/command_line.h"
#include "edge_client/weights/growth.h"
#include "support/edge_server.h"
#include "wire/protocol.h"

namespace split::test {
namespace {

using Json = nlohmann::json;

// A request, and the ids with which the cloud alone answers it.
struct Sampled {
  Json body;
  std::vector<int32_t> expected;
};
Sampled sampled_text(MovingPair& pair) {
  return {{{"prompt", pair.prompt()},
           {"temperature", 0.9},
           {"seed", 5},
           {"max_tokens", 24},
           {"ignore_eos", true},
           {"return_token_ids", true}},
          pair.alone(0.9f, 1, 5, 24)};
}

// With weights that arrive at any moment of it, that are all here, and that never come; for speed
// alone it may stay where it is.
TEST(EdgeAuto, GivesTheCloudsTextWhereverItEnds) {
  MovingPair& pair = MovingPair::of("demo");
  int moved = 0;
  for (int i = 0; i < 6; ++i) {
    const TemporaryFolder fresh;
    const float temperature = i % 2 == 0 ? 0.0f : 0.8f;
    const auto run = [&](std::vector<std::string> more) {
      more.insert(more.end(),
                  {"--cut=auto", cat("--prompt-ids=", joined(pair.prompt())),
                   cat("--temperature=", temperature), cat("--seed=", i), "--max-tokens=400",
                   "--ignore-eos", "--json", "--device=cpu", "--threads=1"});
      std::vector<std::string> all = pair.arguments(std::move(more));
      if (i < 3) all.push_back(cat("--cache=", fresh.path.string()));
      const Outcome outcome = pair.cloud.ended(run_edge(all));
      EXPECT_EQ(outcome.code, 0) << outcome.err;
      return outcome;
    };
    const std::vector<int32_t> alone =
        pair.alone(temperature, 0.95f, static_cast<uint64_t>(i), 400);
    for (const std::vector<std::string>& goal :
         {std::vector<std::string>{"--goal=fast"}, {"--goal=offload", "--pace=0.1"}}) {
      const Outcome got = run(goal);
      EXPECT_EQ(got.json()["tokens"].get<std::vector<int32_t>>(), alone);
      const Json json = got.json(), &moves = json["receipt"]["moves"];
      if (json["receipt"]["bytes_downloaded"] > 0) {  // else all was here
        EXPECT_NE(got.err.find("come beside the text"), std::string::npos) << got.err;
      }
      if (moves.empty()) continue;
      if (goal.size() > 1) ++moved;
      EXPECT_EQ(moves.front()["from"], "cloud");
      EXPECT_EQ(moves.back()["to"], json["cut"]);
      EXPECT_EQ(json["receipt"]["exact"], true);
    }
    const Outcome none = run({"--max-weights=0"});
    EXPECT_EQ(none.json()["tokens"].get<std::vector<int32_t>>(), alone);
    EXPECT_EQ(none.json()["cut"], "cloud");
    EXPECT_EQ(none.json()["receipt"]["bytes_downloaded"], 0);
  }
  EXPECT_GT(moved, 0);
}

// The words go to the cloud, which makes ids of them; what is known of the model here comes later.
TEST(EdgeAuto, BeginsWithThePromptsWords) {
  MovingPair& pair = MovingPair::of("demo");
  for (const char* tokens : {"1", "3", "120"}) {
    const TemporaryFolder fresh;
    const auto run = [&](const char* cut) {
      std::vector<std::string> all = pair.arguments(
          {cut, "--prompt=The king said", "--temperature=0", cat("--max-tokens=", tokens),
           "--ignore-eos", "--json", "--device=cpu", "--threads=1"});
      all.push_back(cat("--cache=", fresh.path.string()));
      const Outcome outcome = pair.cloud.ended(run_edge(all));
      EXPECT_EQ(outcome.code, 0) << outcome.err;
      return outcome.json();
    };
    const Json there = run("--cut=cloud"), chosen = run("--cut=auto");
    for (const char* key : {"prompt_tokens", "tokens", "text", "finish_reason"}) {
      EXPECT_EQ(chosen[key], there[key]) << tokens;
    }
    EXPECT_GE(chosen["receipt"]["trips"], 1);
    if (chosen["cut"] == "cloud") {
      EXPECT_EQ(chosen["receipt"]["cloud_layer_rows"], there["receipt"]["cloud_layer_rows"]);
    }
  }
}

TEST(EdgeAuto, IsTheCutWhereNoFlagSaysWhatRunsHere) {
  const auto options = [](const std::vector<std::string>& flags) {
    World world;
    world.environment = [](const char*) { return nullptr; };
    return edge::read_command_line(flags, world).options;
  };
  for (const char* flag : {"--prompt=a", "--serve", "--seed=1", "--device=cpu", "--cut=auto"}) {
    EXPECT_TRUE(options({flag}).placement.auto_cut) << flag;
  }
  for (const char* flag :
       {"--cut=1", "--cut=cloud", "--head=cloud", "--moves=1:0", "--embed", "--plan"}) {
    EXPECT_FALSE(options({flag}).placement.auto_cut) << flag;
  }
  EXPECT_FALSE(options({"--head=edge"}).placement.cut);
}

TEST(EdgeAuto, PlacesTheHeadItself) {
  for (const char* head : {"edge", "cloud"}) {
    const Outcome got =
        run_edge({"--server=http://127.0.0.1:1", "--prompt=x", "--cut=auto", cat("--head=", head)});
    EXPECT_EQ(got.code, 2);
    EXPECT_EQ(got.err,
              "edge_client: --head: expected no --cut auto beside it, which places the head too\n");
  }
}

TEST(EdgeAuto, EmbedsOnTheCloudAndHasLogprobs) {
  MovingPair& pair = MovingPair::of("rand-a");
  const std::string prompt = cat("--prompt-ids=", joined(pair.prompt()));
  const Outcome there = run_edge(pair.arguments({"--cut=cloud", prompt, "--embed", "--json"}));
  const Outcome chosen = run_edge(pair.arguments({"--cut=auto", prompt, "--embed", "--json"}));
  EXPECT_EQ(chosen.code, 0) << chosen.err;
  EXPECT_EQ(chosen.out, there.out);
  const auto scored = [&](const char* cut) {
    return pair.cloud
        .ended(run_edge(pair.arguments({cut, prompt, "--logprobs=2", "--json", "--temperature=0",
                                        "--max-tokens=12", "--ignore-eos", "--device=cpu"})))
        .json();
  };
  const Json one = scored("--cut=cloud"), other = scored("--cut=auto");
  ASSERT_EQ(one["logprobs"].size(), 12u);
  EXPECT_EQ(other["logprobs"], one["logprobs"]);
  EXPECT_EQ(other["receipt"]["trips"], 1);
}

TEST(EdgeAuto, ACloudThatKeepsNoRowsHasTheFixedCutAndALineSaysSo) {
  MovingPair& pair = MovingPair::of("rand-a");
  pair.cloud.reset_without_features();
  const Outcome got = pair.cloud.ended(run_edge(
      pair.arguments({"--cut=auto", cat("--prompt-ids=", joined(pair.prompt())), "--seed=1",
                      "--max-tokens=8", "--ignore-eos", "--json", "--device=cpu"})));
  ASSERT_EQ(got.code, 0) << got.err;
  EXPECT_EQ(got.json()["cut"], 1);
  EXPECT_EQ(got.json()["tokens"].get<std::vector<int32_t>>(), pair.alone(0.8f, 0.95f, 1, 8));
  EXPECT_NE(got.err.find("--cut auto: the server's sessions have one cut for good: texts stay at "
                         "cut 1\n"),
            std::string::npos)
      << got.err;
}

// The cloud is slow, by its own word.
TEST(EdgeAuto, AServerIsReadyWithTheCloudAndAnswersAloneOnceAllIsHere) {
  MovingPair& pair = MovingPair::of("rand-a");
  const TemporaryFolder fresh;
  std::atomic<bool> blobs_come = false;
  pair.cloud.reset({}, [&](const http::Request&, int) -> std::optional<http::Response> {
    blobs_come.wait(false);
    return std::nullopt;
  });
  pair.cloud.said_ms = 1e6;
  std::vector<std::string> arguments = pair.arguments({"--cut=auto"});
  arguments.push_back(cat("--cache=", fresh.path.string()));
  EdgeServer edge(arguments);
  edge.ready();
  const Sampled text = sampled_text(pair);
  const auto answer = [&](const Json& cut) {
    const Json json = edge.ask("/v1/completions", text.body);
    EXPECT_EQ(json["choices"][0]["token_ids"].get<std::vector<int32_t>>(), text.expected) << cut;
    EXPECT_EQ(json["usage"]["splitcompute"]["cut"], cut);
    return json["usage"]["splitcompute"];
  };
  EXPECT_EQ(answer("cloud")["trips"], 1);
  EXPECT_EQ(edge.status()["cut"], "cloud");
  EXPECT_EQ(edge.status()["goal"], "fast");
  blobs_come = true;
  blobs_come.notify_all();
  EXPECT_TRUE(soon([&] { return edge.status()["cut"] == 0; }));
  const Json alone = answer(0);
  EXPECT_EQ(alone["trips"], 0);
  EXPECT_EQ(alone["bytes_up"], 0);
  EXPECT_EQ(edge.status()["exact"], true);
  // The plan knows what has come since the program began.
  const Json plan = edge.status()["plan"];
  EXPECT_GT(plan["cuts"].size(), 2u);
  for (const Json& place : plan["cuts"]) EXPECT_EQ(place["missing_bytes"], 0) << place;
  const Json whole = edge.status()["bytes_downloaded"];
  EXPECT_GT(whole, 0);
  // To where somebody wants it, with the weights that are here, and back.
  for (const Json& cut : {Json("cloud"), Json(2), Json("auto")}) {
    EXPECT_EQ(edge.send("PUT", "/split/cut", {{"cut", cut}}).status, 200);
    const Json there = cut == "auto" ? Json(0) : cut;
    EXPECT_EQ(edge.status()["cut"], there);
    answer(there);
  }
  EXPECT_EQ(edge.status()["bytes_downloaded"], whole);
  EXPECT_EQ(edge.send("PUT", "/split/cut", {{"cut", "other"}}).status, 400);
  edge.stop();
  // Without any server, from the cache.
  Outcome offline = run_edge({"--server=http://127.0.0.1:1", "--cut=auto",
                              cat("--cache=", fresh.path.string()), "--prompt-ids=5"});
  EXPECT_EQ(offline.code, 3);  // never heard of that one
}

// A text of one token teaches nothing, so that the cloud is as fast as it says.
TEST(EdgeAuto, AServersAnswersStayOnAFasterCloudAndAreHereWhenItIsLost) {
  MovingPair& pair = MovingPair::of("demo");
  const TemporaryFolder fresh;
  pair.cloud.said_ms = 1e-6;
  std::optional<Running> front;
  front.emplace([&](http::Server& server) {
    server.route("GET", "/v1/models/{id}/load", [&](const http::Request& request) {
      return pair.cloud.real(request, pair.cloud.url());
    });
    cloud::add_routes(server, pair.cloud.cloud);
  });
  EdgeServer edge({"--cut=auto", cat("--server=", front->url()),
                   cat("--cache=", fresh.path.string()), "--retry-for=5"});
  edge.ready().until("8/8 layers here\n");
  const auto answer = [&](int tokens) {
    const Json json = edge.ask("/v1/completions", {{"prompt", pair.prompt()},
                                                   {"temperature", 0.9},
                                                   {"seed", 5},
                                                   {"max_tokens", tokens},
                                                   {"ignore_eos", true},
                                                   {"return_token_ids", true}});
    EXPECT_EQ(json["choices"][0]["token_ids"].get<std::vector<int32_t>>(),
              pair.alone(0.9f, 1, 5, tokens));
    return json["usage"]["splitcompute"];
  };
  // By whoever asks where the next one begins.
  EXPECT_TRUE(soon([&] {
    EXPECT_EQ(edge.status()["cut"], "cloud");
    return HasFailure() || edge.until("").find("staying on the cloud\n") != std::string::npos;
  }));
  EXPECT_NE(edge.until("").find("--cut auto: all here would take "), std::string::npos)
      << edge.until("");
  const Json there = answer(1);
  EXPECT_EQ(there["cut"], "cloud");
  EXPECT_EQ(there["trips"], 1);
  EXPECT_EQ(there["device"], "none");
  EXPECT_EQ(there["plan"]["why"], "fastest");
  EXPECT_GT(there["bytes_downloaded"], 0);  // all the same
  front.reset();
  const Json lost = answer(24);
  EXPECT_EQ(lost["cut"], 0);
  ASSERT_EQ(lost["moves"].size(), 1u) << lost;
  EXPECT_EQ(lost["moves"][0]["why"], "cloud_lost");
  EXPECT_NE(lost["device"], "none");
  EXPECT_EQ(edge.status()["cut"], 0);  // for a while
  const Json next = answer(24);
  EXPECT_EQ(next["cut"], 0);
  EXPECT_TRUE(next["moves"].empty());
}

// Each stage that lands is a place, from the head down.
TEST(EdgeAuto, OffloadsStageByStage) {
  MovingPair& pair = MovingPair::of("rand-a");
  const TemporaryFolder fresh;
  pair.cloud.reset({});
  std::vector<std::string> arguments =
      pair.arguments({"--cut=auto", "--goal=offload", "--pace=0.1"});
  arguments.push_back(cat("--cache=", fresh.path.string()));
  EdgeServer edge(arguments);
  edge.ready();
  const Sampled text = sampled_text(pair);
  Json cut = "cloud";
  for (int tries = 0; tries < 2000 && cut != 0; ++tries) {
    const Json json = edge.ask("/v1/completions", text.body);
    ASSERT_EQ(json["choices"][0]["token_ids"].get<std::vector<int32_t>>(), text.expected);
    const Json& receipt = json["usage"]["splitcompute"];
    cut = receipt["cut"];
    for (const Json& move : receipt["moves"]) {
      EXPECT_EQ(move["why"], "landed");
      EXPECT_TRUE(move["from"] == "cloud" || move["from"] > move["to"]) << receipt;
    }
  }
  EXPECT_EQ(cut, 0);
  EXPECT_EQ(edge.status()["goal"], "offload");
}

// Half a model here is what texts go on with, with either goal.
TEST(EdgeAuto, APartThatFitsTakesAnswersOver) {
  MovingPair& pair = MovingPair::of("rand-a");
  const wire::ModelInfo info =
      wire::parse_model_info(Client(pair.cloud.url()).request("GET", "/v1/models/rand-a").body);
  const auto steps = edge::growth_steps(*pair.golden.model, info, {});
  const uint64_t most = steps[0].bytes() + steps[1].bytes() + steps[2].bytes();  // blocks 2 and 1
  const Sampled text = sampled_text(pair);
  struct Row {
    const char* goal;
    double cloud_ms;  // a block there, by its own word
    Json cut;
  };
  for (const Row& row :
       {Row{"offload", 1e-6, 1}, Row{"fast", 1e6, 1}, Row{"fast", 1e-6, "cloud"}}) {
    SCOPED_TRACE(cat(row.goal, " ", row.cloud_ms));
    const TemporaryFolder fresh;
    pair.cloud.reset({});
    pair.cloud.said_ms = row.cloud_ms;
    std::vector<std::string> arguments = pair.arguments(
        {"--cut=auto", cat("--goal=", row.goal), "--pace=0.1", cat("--max-weights=", most)});
    arguments.push_back(cat("--cache=", fresh.path.string()));
    EdgeServer edge(arguments);
    edge.ready().until("2/3 layers here\n");
    EXPECT_TRUE(soon([&] { return edge.status()["cut"] == row.cut; }));
    const Json json = edge.ask("/v1/completions", text.body);
    EXPECT_EQ(json["choices"][0]["token_ids"].get<std::vector<int32_t>>(), text.expected);
    const Json& receipt = json["usage"]["splitcompute"];
    EXPECT_EQ(receipt["cut"], row.cut) << receipt;
    EXPECT_LE(receipt["bytes_downloaded"], most);
  }
}

}  // namespace
}  // namespace split::test
