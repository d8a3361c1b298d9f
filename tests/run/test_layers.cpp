// run/: blocks of a sequence that do not all have the same rows. Whatever order they come in, by
// steps to any point or by fills, and in whatever company, bits are those of plain steps.
#include <gtest/gtest.h>

#include "layer_schedule.h"

namespace split::test {
namespace {

struct Case {
  const char* model;
  Profile profile;
  std::optional<DType> kv = {};
};

class LayerSchedules : public testing::TestWithParam<Case> {};

TEST_P(LayerSchedules, GiveThePlainBits) {
  const Case& c = GetParam();
  const Golden golden(c.model);
  const auto device = make_cpu_device(2);
  ShardOptions options = options_for(*golden.model);
  options.profile = c.profile;
  options.formats = profile_formats(c.profile);
  options.kv = c.kv;
  Shard shard(*device, *golden.model, golden.weights(), options);
  const unsigned seeds = golden.model->config().context > 64 ? 1 : 10;  // long ones take seconds
  for (unsigned seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    LayerSchedule(shard, seed).run(50);
    EXPECT_EQ(shard.pages().in_use(), 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, LayerSchedules,
    testing::Values(Case{"demo", Profile::kF32}, Case{"rand-a", Profile::kF32},
                    Case{"rand-b", Profile::kF32}, Case{"rand-c", Profile::kF32},
                    Case{"demo", Profile::kF16}, Case{"rand-b", Profile::kBF16},
                    Case{"demo", Profile::kQ8_0, DType::kQ8_0}, Case{"rand-b", Profile::kQ8_0},
                    Case{"rand-c", Profile::kQ4_0}, Case{"rand-a", Profile::kInt8}),
    [](const auto& info) {
      std::string name = cat(info.param.model, "_", profile_name(info.param.profile));
      std::erase(name, '-');
      return name;
    });

}  // namespace
}  // namespace split::test
