// Tests that a receipt's times are the text's: over a slow line, and where the cloud is slow to
// hear that the text has ended.
#include <gtest/gtest.h>

#include <regex>

#include "base/resources/clock.h"
#include "edge/costs/slow_line.h"
#include "edge/moving_pair.h"

namespace split::test {
namespace {

using Json = nlohmann::json;
using namespace std::chrono_literals;

class EdgeTimes : public ::testing::Test {
 protected:
  // A text of 12 tokens, as its reader and its receipt have it.
  struct Told {
    Outcome outcome;
    double ms = 0, first_ms = 0, rate = 0;  // of the receipt
    double words_ms = 0;                    // between the first word and the last one
  };
  Outcome run(const std::string& url, const std::string& cut, std::vector<std::string> more,
              const EdgeOptions& options = {}) {
    const TemporaryFolder fresh;  // of what a cut of its own needs all is kept
    const std::string cache = cut == "auto" ? fresh.path.string() : pair_.cache.path.string();
    more.insert(more.end(), {cat("--server=", url), cat("--cache=", cache), cat("--cut=", cut),
                             "--prompt=Once upon a time", "--seed=7", "--max-tokens=12",
                             "--ignore-eos", "--draft=off", "--device=cpu", "--threads=1"});
    const Outcome outcome = run_edge(more, options);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome;
  }
  Told told(const std::string& url, const std::string& cut) {
    std::optional<Clock::time_point> first;
    Clock::time_point last;
    EdgeOptions options;
    options.on_out = [&] {
      last = Clock::now();
      if (!first) first = last;
    };
    Told told{run(url, cut, {}, options)};
    if (first) told.words_ms = ms_between(*first, last);
    const std::regex line(
        R"(12 tokens in ([\d.]+) (m?s) \(first after ([\d.]+) (m?s), then ([\d.]+) tokens/s\))");
    std::smatch found;
    if (!std::regex_search(told.outcome.err, found, line)) {
      ADD_FAILURE() << told.outcome.err;
      return told;
    }
    const auto ms = [&](int i) {
      return std::stod(found[i].str()) * (found[i + 1] == "s" ? 1000 : 1);
    };
    told.ms = ms(1);
    told.first_ms = ms(3);
    told.rate = std::stod(found[5].str());
    return told;
  }
  static void expect_sums(const Json& r, size_t tokens) {
    const double ms = r["ms"];
    EXPECT_NEAR(r["time_to_first_token_ms"].get<double>() +
                    1000 * static_cast<double>(tokens - 1) / r["tokens_per_second"].get<double>(),
                ms, 1)
        << r;
    const double there = r["cloud_ms"].is_null()
                             ? r["cloud_and_line_ms"].get<double>()
                             : r["cloud_ms"].get<double>() + r["wire_ms"].get<double>();
    EXPECT_NEAR(there + r["edge_ms"].get<double>() - r["beside_ms"].get<double>() +
                    r["waiting_ms"].get<double>(),
                ms, 1)
        << r;
  }

  // A trip and more: what ends a session on a connection of its own takes two.
  static constexpr double kSlackMs = 250;

  MovingPair& pair_ = MovingPair::of("demo");
};

TEST_F(EdgeTimes, OfATextEndWithItsLastTokenOverASlowLine) {
  for (const char* cut : {"6", "cloud"})
    run(pair_.cloud.http(), cut, {"--json"});  // fills the cache
  const SlowLine line(pair_.cloud.http(), 5'000'000, 100ms);
  for (const char* cut : {"6", "cloud", "auto"}) {
    const Told one = told(line.url(), cut);
    EXPECT_NEAR(one.ms - one.first_ms, one.words_ms, kSlackMs) << cut << "\n" << one.outcome.err;
    EXPECT_NEAR(11000 / one.rate, one.words_ms, kSlackMs) << cut << "\n" << one.outcome.err;
    const Json json = run(line.url(), cut, {"--json"}).json();
    expect_sums(json["receipt"], json["tokens"].size());
  }
  // Nobody waited for it, but each session was ended.
  const auto until = Clock::now() + 30s;
  while (pair_.cloud.cloud.sessions.size() > 0 && Clock::now() < until) std::this_thread::yield();
  EXPECT_EQ(pair_.cloud.cloud.sessions.size(), 0u);
}

// The gate opens once the edge has gone.
TEST_F(EdgeTimes, AGoodbyeThatIsNotHeardTakesNone) {
  for (const char* cut : {"6", "cloud", "auto"}) {
    std::atomic<bool> gone{false};
    pair_.cloud.on_goodbye = [&](const http::Request&, int) -> std::optional<http::Response> {
      while (!gone) std::this_thread::yield();
      return std::nullopt;
    };
    const Told one = told(pair_.cloud.http(), cut);
    gone = true;
    pair_.cloud.reset({});
    EXPECT_NEAR(one.ms - one.first_ms, one.words_ms, kSlackMs) << cut << "\n" << one.outcome.err;
  }
}

}  // namespace
}  // namespace split::test
