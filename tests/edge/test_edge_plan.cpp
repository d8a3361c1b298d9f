// Measured plans: this machine's speed on weights of zeros.
#include <gtest/gtest.h>

#include "edge_client/measure/calibrate.h"
#include "edge_client/measure/plan.h"
#include "edge_client/place/plan_report.h"
#include "support/golden_model.h"

namespace split::edge {
namespace {

TEST(Calibration, TimesABlockAndTheHeadInEveryFormat) {
  const test::Golden demo("demo");
  const std::unique_ptr<Device> device = make_cpu_device(1);
  for (const auto& [profile, format] :
       {std::pair{Profile::kF32, "auto"}, {Profile::kF16, "f16"}, {Profile::kQ8_0, "q8_0"}}) {
    const Speed speed =
        calibrate(*device, *demo.model, DType::kF16, StageFormats::parse(format), profile);
    EXPECT_GT(speed.block_ms, 0) << format;
    EXPECT_GT(speed.head_ms, 0) << format;
    EXPECT_GT(speed.prompt_row_ms, 0) << format;
  }
  // Weights that come in blocks.
  EXPECT_GT(calibrate(*device, *demo.model, DType::kQ8_0, {}, Profile::kF32).head_ms, 0);
}

TEST(Calibration, FitsAContextThatIsShorterThanItsSteps) {
  const test::Golden small("rand-a");
  const std::unique_ptr<Device> device = make_cpu_device(1);
  EXPECT_GT(calibrate(*device, *small.model, DType::kF32, {}, Profile::kF32).head_ms, 0);
}

// Blocks that keep a state take other times than those of attention: the last of each is timed.
TEST(Calibration, TimesABlockOfEachKind) {
  const test::Golden qwen("models/qwen35-text");
  const std::unique_ptr<Device> device = make_cpu_device(1);
  const Speed speed =
      calibrate(*device, *qwen.model, DType::kF32, {}, Profile::kF32, [&](const Shard& shard) {
        EXPECT_EQ(shard.options().range, (StageRange{3, Point::head()}));
        EXPECT_TRUE(qwen.model->state(3).keeps() && !qwen.model->state(4).keeps());
      });
  EXPECT_GT(speed.block_ms, 0);
  EXPECT_GT(speed.block_row_ms, 0);
  EXPECT_GT(speed.prompt_row_ms, 0);
}

// A machine has the states of the blocks that run there; those of attention add none.
TEST(PlanShape, CountsTheStatesOfATextAtEachCut) {
  const test::Golden qwen("models/qwen35-text");
  const uint64_t one = qwen.model->state(0).floats() * sizeof(float);
  EXPECT_EQ(plan_shape(*qwen.model).state_bytes,
            (std::vector<uint64_t>{3 * one, 2 * one, 2 * one, one, 0, 0}));
  const test::Golden demo("demo");
  EXPECT_EQ(plan_shape(*demo.model).state_bytes, std::vector<uint64_t>(9));
  PlanReport report;
  report.input = plan_shape(*qwen.model);
  const Json json = parse_json(to_json(report), 8, "plan");
  for (const Json& place : json["cuts"]) {
    const bool cloud = place["cut"] == Json("cloud");
    const auto at = cloud ? 5 : place["cut"].get<size_t>();
    EXPECT_EQ(place["state_bytes"].get<uint64_t>(), report.input.state_bytes[at]) << at;
  }
}

}  // namespace
}  // namespace split::edge
