// Measured plans: this machine's speed on weights of zeros.
#include <gtest/gtest.h>

#include "edge_client/measure/calibrate.h"
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

}  // namespace
}  // namespace split::edge
