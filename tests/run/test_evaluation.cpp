// Tests what the f16 profile costs, and the loss of the golden windows.
#include <gtest/gtest.h>

#include <cmath>

#include "sequences.h"

namespace split::test {
namespace {

// Halves round each weight, key and value to 2^-11 = 4.9e-4 relative, independently, so a state is
// off by about that. Sharp attention multiplies a key's rounding by the size of the score, about 10
// in the demo model and in rand-c: two or three times as much. The bounds are twice the largest row
// measured.
TEST(F16Profile, HiddenStatesAreAsCloseToF32AsStated) {
  struct Bound {
    const char* model;
    double measured, bound;
  };
  constexpr Bound kBounds[] = {{"demo", 1.23e-3, 2.5e-3},
                               {"rand-a", 4.6e-4, 1e-3},
                               {"rand-b", 3.7e-4, 1e-3},
                               {"rand-c", 1.33e-3, 2.7e-3}};

  for (const Bound& bound : kBounds) {
    const Golden golden(bound.model);
    const auto device = make_cpu_device(2);
    const Point last = Point::norm();
    const auto eval = golden.values<int32_t>("eval.ids");
    const auto count = std::min<size_t>(golden.model->config().context, 200);
    std::vector<Rows> results;
    for (const Profile profile : {Profile::kF32, Profile::kF16}) {
      ShardOptions options = options_for(*golden.model, {.to = last});
      options.profile = profile;
      Shard shard(*device, *golden.model, golden.weights(), options);
      Sequence sequence(shard);
      results.push_back(sequence.run(last, std::span(eval).first(count), count));
    }
    double worst = 0;
    for (size_t row = 0; row < count; ++row) {
      worst = std::max(worst, relative(results[1][row], results[0][row]));
    }
    EXPECT_LT(worst, bound.bound) << bound.model;
    EXPECT_GT(worst, bound.measured / 4) << bound.model << ": the profiles are one";
  }
}

class Evaluation : public testing::TestWithParam<const char*> {};

// -log p of each next token over the golden windows, all rows' logits, many windows at once.
TEST_P(Evaluation, MeanLossAgreesWithPyTorch) {
  const Golden golden(GetParam());
  const auto device = make_cpu_device(2);
  const ModelConfig& config = golden.model->config();
  Shard shard(*device, *golden.model, golden.weights(), options_for(*golden.model));
  Batcher batcher(shard);
  const auto ids = golden.values<int32_t>("eval.ids");
  const auto expected = golden.values<float>("eval.nll");
  const auto window = static_cast<size_t>(config.context);
  const auto vocab = static_cast<size_t>(config.vocab);
  double sum = 0, expected_sum = 0, worst = 0;
  size_t count = 0;
  for (size_t w = 0; w < ids.size() / window; ++w) {
    Sequence sequence(shard);
    const std::vector<float> logits =
        append(batcher, sequence.id,
               {.tokens = std::span(ids).subspan(w * window, window), .wanted = Wanted::kAll});
    for (size_t t = 0; t + 1 < window; ++t) {
      const auto row = std::span(logits).subspan(t * vocab, vocab);
      const double largest = *std::max_element(row.begin(), row.end());
      double total = 0;
      for (const float x : row) total += std::exp(x - largest);
      const double nll = largest + std::log(total) - row[ids[w * window + t + 1]];
      const double golden_nll = expected[w * (window - 1) + t];
      worst = std::max(worst, std::abs(nll - golden_nll));
      sum += nll;
      expected_sum += golden_nll;
      ++count;
    }
  }
  ASSERT_EQ(count, expected.size());
  EXPECT_NEAR(sum / expected_sum, 1.0, 1e-4);
  EXPECT_LT(worst, 2e-3);
}

INSTANTIATE_TEST_SUITE_P(Models, Evaluation, testing::Values("demo", "rand-a", "rand-b", "rand-c"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace split::test
