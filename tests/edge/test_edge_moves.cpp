// Texts whose cut moves while they run, between two programs over HTTP: the text of one machine,
// and a receipt that says what happened.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "edge/moving_pair.h"
#include "edge_client/place/counts.h"
#include "edge_client/split/placement.h"
#include "support/edge_server.h"

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
    EXPECT_TRUE(comes_true([&] { return pair.cloud.model().batcher().pages().in_use() == 0; }))
        << moves;
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
    EXPECT_EQ(moves[i]["reason"], "asked for");
  }
  EXPECT_GT(moves[0]["bytes"], pair.prompt().size() * 96 * sizeof(float));  // hidden states
  EXPECT_EQ(moves[1]["bytes"], 0);                                          // from ids
  EXPECT_LT(moves[2]["bytes"], pair.prompt().size() * 96 * sizeof(float));
  EXPECT_EQ(json["cut"], 3);
  const Outcome words =
      run_edge(pair.arguments({cat("--prompt-ids=", joined(pair.prompt())), "--moves=0:2,4:1",
                               "--max-tokens=8", "--seed=1", "--ignore-eos"}));
  EXPECT_NE(words.err.find("at 4 tokens from cut 2 to cut 1 (asked for)"), std::string::npos)
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
  pair.cloud.reset_without_features();
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

// Waits, on a thread of the cloud, until the only text there has done so; the mover goes on.
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
