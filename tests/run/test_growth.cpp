// A shard that grows while it runs has the bits of one that was loaded at once, whatever goes
// wrong.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "run/sequences.h"
#include "support/failing_device.h"
#include "support/golden_model.h"

namespace split {
namespace {

using test::expect_same;
using test::FailingDevice;
using test::first_difference;
using test::ForwardingDevice;
using test::Golden;
using test::Rows;
using test::Sequence;

const Golden& golden() {
  static const Golden golden("rand-a");
  return golden;
}
const Model& model() { return *golden().model; }
int layers() { return model().config().layers; }

ShardOptions growing(Point floor, Profile profile = Profile::kF32) {
  ShardOptions options;
  options.floor = floor;
  options.profile = profile;
  options.formats = profile_formats(profile);
  options.kv_bytes = kv_bytes_for(model(), {}, profile, 40);
  return options;
}

std::vector<float> hidden_rows(size_t rows) {
  std::vector<float> values(rows * static_cast<size_t>(model().config().channels));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i * 2654435761u % 2048) / 1024 - 1;
  }
  return values;
}

// Logits of the last of these rows, of a new sequence from a point on.
std::vector<float> logits_from(Shard& shard, Point from, std::span<const float> hidden) {
  const auto channels = static_cast<uint32_t>(model().config().channels);
  const Sequence sequence(shard);
  ShardRows rows{sequence.id,
                 {.range = {.from = from},
                  .hidden = hidden,
                  .width = channels,
                  .phase = Phase::kPrompt,
                  .wanted = Wanted::kLast}};
  CHECK(shard.pages().reserve(sequence.id, rows.rows.count()));
  std::vector<float> out(shard.width(Point::head()));
  shard.forward(std::span(&rows, 1), out.data());
  return out;
}

// Checks the results of both from each point that can be fed.
void expect_alike(Shard& grown, Shard& whole) {
  const std::vector<float> hidden = hidden_rows(5);
  const int first = grown.floor().is_tokens() ? 0 : grown.floor().block();
  for (int from = first; from <= layers(); ++from) {
    EXPECT_EQ(first_difference(logits_from(grown, from, hidden), logits_from(whole, from, hidden)),
              -1)
        << "from " << from << ", floor " << grown.floor().name();
  }
}

struct Case {
  std::string device;
  unsigned threads;
  Profile profile;
};

class Growth : public testing::TestWithParam<Case> {};

TEST_P(Growth, StageByStageHasTheBitsOfAllAtOnce) {
  const Case& with = GetParam();
  std::unique_ptr<Device> devices[2];
  for (auto& device : devices) {
    try {
      device = make_device({with.device, with.threads});
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
  ShardOptions at_once = growing(Point::tokens(), with.profile);
  Shard whole(*devices[0], model(), golden().weights(), at_once);
  Shard grown(*devices[1], model(), golden().weights(), growing(Point::head(), with.profile));
  EXPECT_EQ(grown.floor(), Point::head());
  EXPECT_EQ(grown.page_bytes(), whole.page_bytes());
  EXPECT_THROW(logits_from(grown, layers(), hidden_rows(1)), Error);
  grown.grow(layers());
  EXPECT_EQ(grown.floor(), Point(layers()));
  expect_alike(grown, whole);
  for (int block = layers() - 1; block >= 0; --block) {
    grown.grow(block);
    EXPECT_EQ(grown.floor(), Point(block));
    expect_alike(grown, whole);
  }
  grown.grow(Point::tokens());
  const std::vector<int32_t> tokens{3, 1, 4, 1, 5, 9, 2, 6};
  for (const Point to : {Point(2), Point::norm(), Point::head(), Point::top()}) {
    Sequence a(grown), b(whole);
    expect_same(a.run(to, tokens, 3), b.run(to, tokens, 8), to.name());
  }
  EXPECT_EQ(grown.same_bits_in_both_phases(), whole.same_bits_in_both_phases());
}

INSTANTIATE_TEST_SUITE_P(
    Devices, Growth,
    testing::Values(Case{"cpu", 1, Profile::kF32}, Case{"cpu", 2, Profile::kF32},
                    Case{"cpu", 2, Profile::kF16}, Case{"cpu", 2, Profile::kQ8_0},
                    Case{"cpu", 1, Profile::kInt8}, Case{"vulkan", 0, Profile::kF32},
                    Case{"vulkan", 0, Profile::kQ8_0}),
    [](const auto& info) {
      return cat(info.param.device, info.param.threads, "_", profile_name(info.param.profile));
    });

TEST(Growing, RefusesRowsBelowTheFloor) {
  const auto device = make_cpu_device(1);
  Shard shard(*device, model(), golden().weights(), growing(2));
  const Sequence sequence(shard);
  try {
    logits_from(shard, 1, hidden_rows(1));
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kNotFound);
    EXPECT_STREQ(error.what(),
                 "[shard] rows at 1: expected 2 or later, until more stages are there");
  }
  EXPECT_THROW(Sequence(shard).run(Point::head(), std::vector<int32_t>{1}, 1), Error);
  logits_from(shard, 2, hidden_rows(1));
  shard.grow(1);
  logits_from(shard, 1, hidden_rows(1));
}

// Steps of several lengths run all the while.
TEST(Growing, BesideStepsChangesNoBit) {
  for (const auto& [name, profile] :
       {std::pair("cpu", Profile::kF32), {"cpu", Profile::kQ8_0}, {"vulkan", Profile::kF32}}) {
    std::unique_ptr<Device> device;
    try {
      device = make_device({name, 2});
    } catch (const Error& error) {
      continue;  // no Vulkan here
    }
    const auto other = make_device({name, 2});
    Shard whole(*other, model(), golden().weights(), growing(Point::tokens(), profile));
    const std::vector<float> hidden = hidden_rows(9);
    std::vector<std::vector<float>> want;
    for (int from = 0; from <= layers(); ++from) want.push_back(logits_from(whole, from, hidden));

    Shard grown(*device, model(), golden().weights(), growing(layers(), profile));
    std::atomic<bool> done{false};
    std::thread grower([&] {
      grown.grow(Point::tokens());
      done = true;
    });
    for (bool last = false; !last;) {
      last = done;
      const Point floor = grown.floor();
      const int from = floor.is_tokens() ? 0 : floor.block();
      EXPECT_EQ(first_difference(logits_from(grown, from, hidden), want[static_cast<size_t>(from)]),
                -1)
          << name << " from " << from;
    }
    grower.join();
  }
}

// The device fails at each step of a growth, starts again or leaves its place to the CPU; what is
// there then is what was, and it goes on.
TEST(Growing, SurvivesALostDevice) {
  const auto calm = make_cpu_device(1);
  Shard whole(*calm, model(), golden().weights(), growing(Point::tokens()));
  for (const bool for_good : {false, true}) {
    for (int at = 0; at <= layers(); ++at) {
      FailingDevice device(at, for_good);
      Shard grown(device, model(), golden().weights(), growing(layers()));
      testing::internal::CaptureStderr();
      for (int floor = layers(); floor >= 0; --floor) {
        grown.grow(floor);
        try {
          logits_from(grown, floor, hidden_rows(2));
        } catch (const Error& error) {
          ASSERT_TRUE(grown.recover(error));
          EXPECT_EQ(grown.floor(), Point(floor));
        }
      }
      grown.grow(Point::tokens());
      testing::internal::GetCapturedStderr();
      EXPECT_EQ(device.restarts, 1);
      expect_alike(grown, whole);
    }
  }
}

// Growth with steps on another thread, one of which fails while a stage is on its way.
TEST(Growing, BeginsAStageAgainThatALostDeviceTook) {
  const auto calm = make_cpu_device(1);
  Shard whole(*calm, model(), golden().weights(), growing(Point::tokens()));
  // Holds the growth at the first block's packing until the device has failed.
  class Held : public FailingDevice {
   public:
    Held() : FailingDevice(1) {}
    void make_ready(const Program& program, const Limits& limits,
                    std::span<const Binding> bindings) override {
      if (!began.exchange(true)) failed.wait(false);
      FailingDevice::make_ready(program, limits, bindings);
    }
    std::atomic<bool> began{false}, failed{false};
  } device;
  Shard grown(device, model(), golden().weights(), growing(layers()));
  logits_from(grown, layers(), hidden_rows(1));
  std::thread grower([&] { grown.grow(0); });
  while (!device.began) std::this_thread::yield();
  testing::internal::CaptureStderr();
  try {
    logits_from(grown, layers(), hidden_rows(1));
    ADD_FAILURE() << "expected an error";
  } catch (const Error& error) {
    EXPECT_TRUE(grown.recover(error));
  }
  testing::internal::GetCapturedStderr();
  device.failed = true;
  device.failed.notify_all();
  grower.join();
  EXPECT_EQ(device.restarts, 1);
  EXPECT_EQ(grown.floor(), Point(0));
  expect_alike(grown, whole);
}

TEST(Growing, WithoutRoomForAStageItsFloorStays) {
  class Full : public ForwardingDevice {
   public:
    Full() : ForwardingDevice(make_cpu_device(1)) {}
    std::unique_ptr<Buffer> alloc_pages(const Limits& limits, int64_t channels,
                                        DType dtype) override {
      if (full) fail();
      return ForwardingDevice::alloc_pages(limits, channels, dtype);
    }
    std::unique_ptr<Buffer> upload(const Slot& slot, const TensorView& view) override {
      ++uploads;
      return ForwardingDevice::upload(slot, view);
    }
    std::unique_ptr<Executable> load(const Program& program, Workspace& workspace,
                                     std::span<const Binding> bindings) override {
      if (full_at_load) fail();
      return ForwardingDevice::load(program, workspace, bindings);
    }
    [[noreturn]] static void fail() {
      throw Error(ErrorKind::kDevice, "[test] VK_ERROR_OUT_OF_DEVICE_MEMORY");
    }
    bool full = false, full_at_load = false;
    int uploads = 0;
  } device;
  const auto calm = make_cpu_device(1);
  Shard whole(*calm, model(), golden().weights(), growing(Point::tokens()));
  Shard grown(device, model(), golden().weights(), growing(layers()));
  grown.grow(layers() - 1);
  device.full = true;
  EXPECT_THROW(grown.grow(0), Error);
  EXPECT_EQ(grown.floor(), Point(layers() - 1));
  expect_alike(grown, whole);
  device.full = false;
  device.full_at_load = true;
  device.uploads = 0;
  EXPECT_THROW(grown.grow(0), Error);
  EXPECT_THROW(grown.grow(0), Error);
  EXPECT_EQ(device.uploads, 2 * 12);  // all weights of a block: nothing of the first try was kept
  device.full_at_load = false;
  grown.grow(Point::tokens());
  expect_alike(grown, whole);
}

// A weight that is wrong is its stage's matter.
TEST(Growing, AWrongWeightKeepsItsStageAway) {
  const auto device = make_cpu_device(1);
  WeightSource weights = golden().weights();
  bool wrong = true;
  const auto right = weights.view;
  weights.view = [&](const std::string& name) {
    TensorView view = right(name);
    if (wrong && name == "h.1.mlp.c_fc.weight") view.dims.push_back(1);
    return view;
  };
  Shard grown(*device, model(), weights, growing(layers()));
  EXPECT_THROW(grown.grow(0), Error);
  EXPECT_EQ(grown.floor(), Point(2));
  logits_from(grown, 2, hidden_rows(1));
  wrong = false;
  grown.grow(0);
  EXPECT_EQ(grown.floor(), Point(0));
}

}  // namespace
}  // namespace split
