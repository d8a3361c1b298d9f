// Texts whose cut moves while they run, between two programs over HTTP: the text of one machine,
// and a receipt that says what happened.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "edge/moving_pair.h"
#include "edge_client/options/command_line.h"
#include "edge_client/place/counts.h"
#include "edge_client/split/placement.h"
#include "edge_client/weights/growth.h"
#include "support/edge_server.h"
#include "wire/protocol.h"

namespace split::test {
namespace {

using Json = nlohmann::json;

// "0:2,5:0,9:cloud", at rising tokens.
std::string schedule_of(std::minstd_rand& random, int layers, int tokens) {
  const auto any = [&] {
    const unsigned cut = static_cast<unsigned>(random() % static_cast<unsigned>(layers + 2));
    return cut > static_cast<unsigned>(layers) ? "cloud" : std::to_string(cut);
  };
  std::string all = cat("0:", any());
  for (int at = 1 + static_cast<int>(random() % 4); at < tokens;
       at += 1 + static_cast<int>(random() % 8)) {
    all += cat(",", at, ":", any());
  }
  return all;
}

class EdgeMovesOf : public testing::TestWithParam<const char*> {};

TEST_P(EdgeMovesOf, AnyScheduleGivesTheTextOfOneMachine) {
  MovingPair& pair = MovingPair::of(GetParam());
  const bool demo = GetParam() == std::string("demo");
  const int most = std::getenv("SPLIT_LONG") != nullptr ? (demo ? 100 : 300) : (demo ? 5 : 30);
  const int room = pair.golden.model->config().context - static_cast<int>(pair.prompt().size());
  const int tokens = std::min(32, room);
  ASSERT_GT(tokens, 4);
  std::minstd_rand random(3);
  size_t moved = 0;
  for (int n = 0; n < most; ++n) {
    const std::string moves = schedule_of(random, pair.layers(), tokens);
    const float temperature = n % 2 == 0 ? 0 : 0.9f;
    const auto seed = static_cast<uint64_t>(n);
    const Outcome got = pair.run(moves, temperature, seed, tokens);
    ASSERT_EQ(got.code, 0) << got.err;
    const Json json = got.json();
    ASSERT_EQ(json["tokens"].get<std::vector<int32_t>>(),
              pair.alone(temperature, 0.95f, seed, tokens))
        << moves << " at " << temperature << ", " << n;
    EXPECT_EQ(json["receipt"]["exact"], true);
    moved += json["receipt"]["moves"].size();
    EXPECT_EQ(pair.cloud.model().batcher().pages().in_use(), 0u) << moves;
  }
  EXPECT_GT(moved, static_cast<size_t>(most));
}

INSTANTIATE_TEST_SUITE_P(Models, EdgeMovesOf,
                         testing::Values("rand-a", "rand-b", "rand-c", "demo"));

TEST(EdgeMoves, AReceiptSaysWhereTheCutWasAndWhatThatTook) {
  MovingPair& pair = MovingPair::of("rand-a");
  const Json json = pair.run("0:2,4:1,7:0,10:3", 0, 1, 16, {"--draft=off"}).json();
  const Json& moves = json["receipt"]["moves"];
  ASSERT_EQ(moves.size(), 3u) << json;
  const int expected[3][3] = {{4, 2, 1}, {7, 1, 0}, {10, 0, 3}};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(moves[i]["at"], expected[i][0]);
    EXPECT_EQ(moves[i]["from"], expected[i][1]);
    EXPECT_EQ(moves[i]["to"], expected[i][2]);
    EXPECT_EQ(moves[i]["why"], "asked");
    EXPECT_GE(moves[i]["rows"], pair.prompt().size());
    EXPECT_GT(moves[i]["pause_ms"], 0);
  }
  EXPECT_GT(moves[0]["bytes"], pair.prompt().size() * 96 * sizeof(float));  // hidden states
  EXPECT_EQ(moves[1]["bytes"], 0);                                          // from ids
  EXPECT_LT(moves[2]["bytes"], pair.prompt().size() * 96 * sizeof(float));
  EXPECT_EQ(json["cut"], 3);
  const Outcome words =
      run_edge(pair.arguments({cat("--prompt-ids=", joined(pair.prompt())), "--moves=0:2,4:1",
                               "--max-tokens=8", "--seed=1", "--ignore-eos"}));
  EXPECT_NE(words.err.find("at 4 tokens from cut 2 to cut 1 (asked)"), std::string::npos)
      << words.err;
}

// From half of the blocks to three quarters of them, with the head here.
TEST(EdgeMoves, TheCloudsShareIsWhatTheCutsAllow) {
  MovingPair& pair = MovingPair::of("demo");
  const double head = edge::head_in_blocks(*pair.golden.model);
  const uint64_t rows = pair.prompt().size() + 59;
  const edge::TextWork work{rows, (rows - 20) * 4 + 20 * 6, 60, 0};
  for (const char* draft : {"--draft=off", "--draft=7"}) {
    const Json json = pair.run("40:6", 0, 1, 60, {"--cut=4", draft}).json();
    const Json& receipt = json["receipt"];
    ASSERT_EQ(receipt["moves"].size(), 1u) << json;
    EXPECT_EQ(receipt["cloud_percent"], *edge::cloud_percent(work, 8, head)) << receipt;
    EXPECT_LE(receipt["cloud_percent"], 75);
    EXPECT_EQ(receipt["cloud_layer_rows"].get<uint64_t>() -
                  receipt["cloud_layer_rows_again"].get<uint64_t>(),
              work.cloud_layer_rows);
    EXPECT_GT(receipt["cloud_layer_rows_again"], (rows - 20) * 4);  // that the move filled
    EXPECT_EQ(receipt["losses"], 0);
    EXPECT_TRUE(receipt["cloud_ms"].is_number());
    EXPECT_EQ(receipt["cloud_and_line_ms"], nullptr);
  }
}

// Nothing of such a text is computed here, however slow the line is, and nobody knows what of its
// time was the line's.
TEST(EdgeMoves, AStreamedTextTakesNoTimeHere) {
  MovingPair& pair = MovingPair::of("rand-a");
  const std::vector<std::string> text = {"--cut=cloud", cat("--prompt-ids=", joined(pair.prompt())),
                                         "--max-tokens=8", "--seed=1", "--ignore-eos"};
  const auto run = [&](const char* more) {
    std::vector<std::string> all = text;
    all.push_back(more);
    return run_edge(pair.arguments(all));
  };
  const Json receipt = run("--json").json()["receipt"];
  EXPECT_EQ(receipt["cloud_percent"], 100);
  EXPECT_EQ(receipt["cloud_ms"], nullptr);
  EXPECT_EQ(receipt["wire_ms"], 0);
  EXPECT_EQ(receipt["edge_ms"], 0);
  EXPECT_GT(receipt["cloud_and_line_ms"], 0);
  const std::string words = run("--temperature=1").err;
  EXPECT_NE(words.find(" ms cloud and line"), std::string::npos) << words;
  EXPECT_EQ(words.find(" ms here"), std::string::npos) << words;
  EXPECT_EQ(words.find(" ms wire"), std::string::npos) << words;
  EXPECT_EQ(words.find("foreseen"), std::string::npos) << words;
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
    return edge::read_command_line(flags, [](const char*) { return nullptr; }).options;
  };
  for (const char* flag : {"--prompt=a", "--serve", "--seed=1", "--device=cpu", "--cut=auto"}) {
    EXPECT_TRUE(options({flag}).auto_cut) << flag;
  }
  for (const char* flag :
       {"--cut=1", "--cut=cloud", "--head=cloud", "--moves=1:0", "--embed", "--plan"}) {
    EXPECT_FALSE(options({flag}).auto_cut) << flag;
  }
  EXPECT_FALSE(options({"--head=edge"}).all_on_cloud);
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
  pair.cloud.reset({}, {}, [&](const http::Request& request, int) {
    http::Response response = pair.cloud.real(request);
    Json model = Json::parse(response.body);
    model.erase("features");
    response.body = model.dump();
    return std::optional(response);
  });
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
  const Json body = {{"prompt", pair.prompt()}, {"temperature", 0.9}, {"seed", 5},
                     {"max_tokens", 24},        {"ignore_eos", true}, {"return_token_ids", true}};
  const std::vector<int32_t> expected = pair.alone(0.9f, 1, 5, 24);
  const auto answer = [&](const Json& cut) {
    const Json json = edge.ask("/v1/completions", body);
    EXPECT_EQ(json["choices"][0]["token_ids"].get<std::vector<int32_t>>(), expected) << cut;
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
  const Json body = {{"prompt", pair.prompt()}, {"temperature", 0.9}, {"seed", 5},
                     {"max_tokens", 24},        {"ignore_eos", true}, {"return_token_ids", true}};
  const std::vector<int32_t> expected = pair.alone(0.9f, 1, 5, 24);
  Json cut = "cloud";
  for (int tries = 0; tries < 2000 && cut != 0; ++tries) {
    const Json json = edge.ask("/v1/completions", body);
    ASSERT_EQ(json["choices"][0]["token_ids"].get<std::vector<int32_t>>(), expected);
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
  const wire::ModelInfo info = wire::parse_model_info(
      http::Client(pair.cloud.url()).request("GET", "/v1/models/rand-a").body);
  const auto steps = edge::growth_steps(*pair.golden.model, info, {});
  const uint64_t most = steps[0].bytes() + steps[1].bytes() + steps[2].bytes();  // blocks 2 and 1
  const Json body = {{"prompt", pair.prompt()}, {"temperature", 0.9}, {"seed", 5},
                     {"max_tokens", 24},        {"ignore_eos", true}, {"return_token_ids", true}};
  const std::vector<int32_t> expected = pair.alone(0.9f, 1, 5, 24);
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
    const Json json = edge.ask("/v1/completions", body);
    EXPECT_EQ(json["choices"][0]["token_ids"].get<std::vector<int32_t>>(), expected);
    const Json& receipt = json["usage"]["splitcompute"];
    EXPECT_EQ(receipt["cut"], row.cut) << receipt;
    EXPECT_LE(receipt["bytes_downloaded"], most);
  }
}

TEST(EdgeMoves, ABusyCloudKeepsTheTextWhereItIs) {
  MovingPair& pair = MovingPair::of("rand-a");
  pair.cloud.reset([](const http::Request& request, int) -> std::optional<http::Response> {
    if (request.body.find("\"fill\":true") == std::string::npos) return std::nullopt;
    return http::Response::json(503, R"({"error":{"message":"busy","code":"busy"}})");
  });
  const Outcome got = pair.run("0:2,4:1", 0, 1, 16);
  ASSERT_EQ(got.code, 0) << got.err;
  EXPECT_EQ(got.json()["tokens"].get<std::vector<int32_t>>(), pair.alone(0, 0.95f, 1, 16));
  EXPECT_EQ(got.json()["receipt"]["moves"].size(), 0u);
  EXPECT_EQ(got.json()["cut"], 2);
}

TEST(EdgeMoves, ACloudThatCannotKeepsTheCutAndALineSaysSo) {
  MovingPair& pair = MovingPair::of("rand-a");
  pair.cloud.reset({}, {}, [&](const http::Request& request, int) {
    http::Response response = pair.cloud.real(request);
    Json model = Json::parse(response.body);
    model.erase("features");
    response.body = model.dump();
    return std::optional(response);
  });
  const Outcome got = pair.run("0:2,4:1", 0, 1, 16);
  ASSERT_EQ(got.code, 0) << got.err;
  EXPECT_EQ(got.json()["tokens"].get<std::vector<int32_t>>(), pair.alone(0, 0.95f, 1, 16));
  EXPECT_EQ(got.json()["receipt"]["moves"].size(), 0u);
  EXPECT_EQ(got.json()["receipt"]["exact"], nullptr);
  EXPECT_NE(got.err.find("--moves: texts stay at cut 2: "), std::string::npos) << got.err;
}

TEST(EdgeMoves, OtherBitsAreToldAndExactForbidsThem) {
  MovingPair& pair = MovingPair::of("rand-a");
  const Json told = pair.run("0:2,4:1", 0, 1, 16, {"--format=f16"}).json();
  EXPECT_EQ(told["receipt"]["exact"], false);
  EXPECT_EQ(told["receipt"]["moves"].size(), 1u);
  const Outcome stays = pair.run("0:2,4:1", 0, 1, 16, {"--format=f16", "--exact"});
  EXPECT_EQ(stays.json()["receipt"]["exact"], false);
  EXPECT_EQ(stays.json()["receipt"]["moves"].size(), 0u);
  EXPECT_NE(stays.err.find("(--exact)"), std::string::npos) << stays.err;
  EXPECT_EQ(pair.run("0:2,4:1", 0, 1, 16, {"--exact"}).json()["receipt"]["moves"].size(), 1u);
}

TEST(EdgeMoves, WhatIsNoScheduleIsRefusedInOneLine) {
  const auto refused = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--server=http://127.0.0.1:1", "--prompt=x"});
    const Outcome got = run_edge(arguments);
    EXPECT_EQ(got.code, 2) << got.err;
    EXPECT_EQ(std::ranges::count(got.err, '\n'), 1) << got.err;
    return got.err;
  };
  for (const char* moves :
       {"", "4", "4:", ":2", "4:x", "-1:2", "4:2,", "4:2,4:1", "7:2,4:1", "4:2 "}) {
    EXPECT_NE(refused({cat("--moves=", moves)}).find("--moves: expected"), std::string::npos);
  }
  EXPECT_NE(refused({"--moves=0:2", "--cut=1"}).find("--cut"), std::string::npos);
  for (const char* other : {"--head=cloud", "--cut=cloud", "--cut=auto", "--embed"}) {
    EXPECT_NE(refused({"--moves=4:2", other})
                  .find("--moves: expected no --cut cloud or auto, --head cloud or --embed beside"),
              std::string::npos)
        << other;
  }
  MovingPair& pair = MovingPair::of("rand-a");
  EXPECT_EQ(pair.run("4:9", 0, 1, 16).code, 2);
}

// Waits, on a thread of the cloud, until the only text there has done so; the lane goes on.
void expect_answer(EdgeServer& edge, const std::function<bool(const Json& answer)>& done) {
  const bool is_done = soon([&] {
    const Json answers = edge.status()["answers"];
    return answers.size() == 1 && done(answers[0]);
  });
  EXPECT_TRUE(is_done) << edge.status()["answers"];
}

TEST(EdgeMoves, ARunningAnswerMovesWhereItIsAskedTo) {
  MovingPair& pair = MovingPair::of("rand-a");
  EdgeServer edge(pair.arguments({"--cut=2", "--draft=off"}));
  edge.ready();
  const Json body = {{"prompt", pair.prompt()}, {"temperature", 0.9}, {"seed", 5},
                     {"max_tokens", 24},        {"ignore_eos", true}, {"return_token_ids", true}};
  const std::vector<int32_t> expected = pair.alone(0.9f, 1, 5, 24);
  for (const int cut : {1, 3, 0}) {
    std::atomic<int> put = 0;
    std::atomic<int> steps = 0;
    pair.cloud.reset([&](const http::Request& request, int) -> std::optional<http::Response> {
      if (request.body.find("\"fill\":true") != std::string::npos) return std::nullopt;
      const int n = steps++;
      if (n == 4) {
        put = edge.send("PUT", "/split/cut", {{"cut", cut}, {"running", true}}).status;
      }
      if (n == 6) {
        expect_answer(edge, [&](const Json& answer) {
          return answer["lane"] == "ready" || answer["cut"] == cut;
        });
      }
      return std::nullopt;
    });
    const Json json = edge.ask("/v1/completions", body);
    EXPECT_EQ(put, 200);
    EXPECT_EQ(json["choices"][0]["token_ids"].get<std::vector<int32_t>>(), expected) << cut;
    const Json& receipt = json["usage"]["splitcompute"];
    EXPECT_EQ(receipt["cut"], cut);
    EXPECT_EQ(receipt["exact"], true);
    ASSERT_EQ(receipt["moves"].size(), 1u) << receipt;
    EXPECT_EQ(receipt["moves"][0]["to"], cut);
    EXPECT_EQ(edge.status()["cut"], cut);
    EXPECT_EQ(edge.status()["answers"].size(), 0u);
    EXPECT_EQ(edge.send("PUT", "/split/cut", {{"cut", 2}}).status, 200);
  }
  const std::string metrics = edge.get("/metrics").body;
  for (const char* line : {"split_edge_moves_total{to=\"0\",why=\"asked\"} 1\n",
                           "split_edge_move_pause_seconds_count 3\n"}) {
    EXPECT_NE(metrics.find(line), std::string::npos) << metrics;
  }
  EXPECT_EQ(edge.send("PUT", "/split/cut", {{"cut", 1}, {"running", 1}}).status, 400);
}

TEST(EdgeMoves, UnderExactARunningAnswerStaysWhereBitsDiffer) {
  MovingPair& pair = MovingPair::of("rand-a");
  EdgeServer edge(pair.arguments({"--cut=2", "--exact", "--format=f16"}));
  edge.ready();
  const http::Reply reply = edge.send("PUT", "/split/cut", {{"cut", 1}, {"running", true}});
  EXPECT_EQ(reply.status, 409);
  EXPECT_NE(reply.body.find("\"not_exact\""), std::string::npos) << reply.body;
  EXPECT_EQ(edge.status()["exact"], false);
  EXPECT_EQ(edge.status()["cut"], 2);
}

TEST(EdgeMoves, EachOfSeveralTextsHasItsOwnLane) {
  MovingPair& pair = MovingPair::of("rand-a");
  EdgeServer edge(pair.arguments({"--moves=0:2,3:1,7:0,12:3"}));
  edge.ready();
  const Json body = {
      {"prompt", pair.prompt()}, {"temperature", 0.9},       {"seed", 5}, {"max_tokens", 20},
      {"ignore_eos", true},      {"return_token_ids", true}, {"n", 2}};
  const Json json = edge.ask("/v1/completions", body);
  ASSERT_EQ(json["choices"].size(), 2u);
  EXPECT_EQ(json["choices"][0]["token_ids"].get<std::vector<int32_t>>(),
            pair.alone(0.9f, 1, 5, 20));
  EXPECT_EQ(json["usage"]["splitcompute"]["moves"].size(), 6u);
  // A text without moves is the same.
  EdgeServer fixed(pair.arguments({"--cut=2"}));
  const Json still = fixed.ready().ask("/v1/completions", body);
  EXPECT_EQ(json["choices"], still["choices"]);
}

}  // namespace
}  // namespace split::test
