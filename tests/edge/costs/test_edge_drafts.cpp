// Tests what guesses cost the cloud and the line, and what they bring, by receipts.
#include <gtest/gtest.h>

#include "edge/costs/slow_line.h"
#include "edge/moving_pair.h"

namespace split::test {
namespace {

using Json = nlohmann::json;

Json text_of(MovingPair& pair, const std::string& prompt, const char* draft,
             std::vector<std::string> more) {
  more.insert(more.end(), {"--cut=6", cat("--prompt=", prompt), cat("--draft=", draft), "--json",
                           "--ignore-eos", "--device=cpu", "--threads=1"});
  const Outcome outcome = pair.cloud.ended(run_edge(pair.arguments(std::move(more))));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return outcome.json();
}

double tokens_a_trip(const Json& text) {
  return (static_cast<double>(text["tokens"].size()) - 1) /
         (text["receipt"]["trips"].get<double>() - 1);
}

TEST(EdgeDrafts, CostLittleWhereIdsAreDrawn) {
  MovingPair& pair = MovingPair::of("demo");
  for (const auto& [prompt, seed] :
       std::initializer_list<std::pair<const char*, int>>{{"Once upon a time", 1},
                                                          {"Once upon a time", 2},
                                                          {"Once upon a time", 3},
                                                          {"The king", 7}}) {
    const auto text = [&](const char* draft) {
      return text_of(pair, prompt, draft, {cat("--seed=", seed), "--max-tokens=100"});
    };
    const Json with = text("auto"), without = text("off");
    EXPECT_EQ(with["tokens"], without["tokens"]);
    for (const auto& [figure, most] : std::initializer_list<std::pair<const char*, double>>{
             {"cloud_layer_rows", 1.1}, {"bytes_down", 1.15}, {"bytes_up", 1.15}}) {
      EXPECT_LE(with["receipt"][figure].get<double>(),
                most * without["receipt"][figure].get<double>())
          << figure << " of " << prompt << " " << seed;
    }
  }
}

// On a line of 50 ms, where each trip that a guess spares is worth many rows.
TEST(EdgeDrafts, StayWhereTheyHold) {
  MovingPair& pair = MovingPair::of("demo");
  const SlowLine line(pair.cloud.http(), 0, std::chrono::milliseconds(25));
  pair.through = line.url();
  const auto text = [&](const std::string& prompt, const char* tokens) {
    return text_of(pair, prompt, "auto", {"--temperature=0", cat("--max-tokens=", tokens)});
  };
  std::string loop;
  for (int i = 0; i < 6; ++i) loop += "and the king said, \"Yes!\" and the queen said, \"No!\" ";
  EXPECT_GE(tokens_a_trip(text(loop, "150")), 4);
  double tokens = 0, trips = 0;
  for (const char* prompt :
       {"Once upon a time there was a little", "The king", "Far out in the sea",
        "The old woman shut the door", "A poor miller had three sons"}) {
    const Json one = text(prompt, "100");
    tokens += 99;
    trips += 99 / tokens_a_trip(one);
  }
  EXPECT_GE(tokens / trips, 2);
}

}  // namespace
}  // namespace split::test
