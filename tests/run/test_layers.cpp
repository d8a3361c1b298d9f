// run/: blocks of a sequence that do not all have the same rows. Whatever order they come in, by
// steps to any point or by fills, and in whatever company, bits are those of plain steps.
#include <gtest/gtest.h>

#include <thread>

#include "layer_schedule.h"
#include "support/forwarding_device.h"

namespace split::test {
namespace {

struct LayersCase {
  const char* model;
  Profile profile;
  std::optional<DType> kv = {};
};

class LayerSchedules : public testing::TestWithParam<LayersCase> {};

TEST_P(LayerSchedules, GiveThePlainBits) {
  const LayersCase& c = GetParam();
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
    testing::Values(LayersCase{"demo", Profile::kF32}, LayersCase{"rand-a", Profile::kF32},
                    LayersCase{"rand-b", Profile::kF32}, LayersCase{"rand-c", Profile::kF32},
                    LayersCase{"demo", Profile::kF16}, LayersCase{"rand-b", Profile::kBF16},
                    LayersCase{"demo", Profile::kQ8_0, DType::kQ8_0},
                    LayersCase{"rand-b", Profile::kQ8_0}, LayersCase{"rand-c", Profile::kQ4_0},
                    LayersCase{"rand-a", Profile::kInt8}),
    [](const auto& info) {
      std::string name = cat(info.param.model, "_", profile_name(info.param.profile));
      std::erase(name, '-');
      return name;
    });

// A CPU whose step fails when it is done.
class Failing : public ForwardingDevice {
 public:
  Failing() : ForwardingDevice(make_cpu_device(1)) {}
  void run(Workspace& workspace, std::span<Executable* const> programs,
           const RowBatch& batch) override {
    ForwardingDevice::run(workspace, programs, batch);
    if (std::exchange(fails, false)) throw Error(ErrorKind::kDevice, "[test] the step failed");
  }
  bool fails = false;
};

class Layers : public testing::Test {
 protected:
  Layers() : golden_("rand-a"), ids_(golden_.values<int32_t>("eval.ids")) {
    layers_ = golden_.model->config().layers;
  }
  std::unique_ptr<Shard> shard(Device& device) {
    return std::make_unique<Shard>(device, *golden_.model, golden_.weights(),
                                   options_for(*golden_.model));
  }
  std::span<const int32_t> ids(size_t from, size_t count) const {
    return std::span(ids_).subspan(from, count);
  }
  // Rows [past, past + count) of the ids, to a point.
  std::vector<float> run(Batcher& batcher, SequenceId sequence, Point to, uint32_t past,
                         size_t count, bool fill = false) {
    const SequenceRows rows{
        .range = {.to = to}, .past = past, .tokens = ids(past, count), .wanted = Wanted::kAll};
    std::vector<float> out(count * batcher.shard().width(to));
    Job job{sequence, rows, out.data(), {}, fill};
    batcher.run(job);
    return out;
  }
  std::vector<uint32_t> filled(const Shard& shard, SequenceId id) const {
    std::vector<uint32_t> rows;
    for (int block = 0; block < layers_; ++block) rows.push_back(shard.pages().filled(id, block));
    return rows;
  }

  Golden golden_;
  std::vector<int32_t> ids_;
  int layers_ = 0;
};

// Neither of them changes anything.
TEST_F(Layers, ARowNeedsThoseBeforeItInEachOfItsBlocks) {
  const auto device = make_cpu_device(1);
  const auto whole = shard(*device);
  Batcher batcher(*whole);
  Sequence sequence(*whole);
  run(batcher, sequence.id, 1, 0, 20);
  std::vector<uint32_t> expected(static_cast<size_t>(layers_), 0);
  expected[0] = 20;
  EXPECT_THROW(run(batcher, sequence.id, layers_, 20, 1), SequenceLost);
  EXPECT_THROW(run(batcher, sequence.id, layers_, 4, 4), SequenceLost);
  EXPECT_THROW(run(batcher, sequence.id, 1, 21, 1), SequenceLost);
  EXPECT_THROW(run(batcher, sequence.id, layers_, 1, 4, true),
               SequenceLost);  // block 1 lacks row 0
  EXPECT_THROW(run(batcher, sequence.id, layers_, 0, 21, true), SequenceLost);  // no row to fill
  EXPECT_THROW(run(batcher, sequence.id, 1, 21, 1, true), SequenceLost);
  EXPECT_EQ(filled(*whole, sequence.id), expected);
  EXPECT_EQ(whole->pages().length(sequence.id), 20u);
  // Piece by piece the others have them too.
  run(batcher, sequence.id, layers_, 0, 8, true);
  run(batcher, sequence.id, layers_, 5, 15, true);
  EXPECT_EQ(filled(*whole, sequence.id), std::vector<uint32_t>(size_t(layers_), 20));
  run(batcher, sequence.id, layers_, 20, 1);
  EXPECT_EQ(whole->pages().length(sequence.id), 21u);
}

// Sessions of edges with different cuts, and their fills, have every result as if alone.
TEST_F(Layers, ManyDepthsAndFillsShareSteps) {
  const auto device = make_cpu_device(2);
  const auto whole = shard(*device);
  const std::vector<Point> points = {0, 1, layers_, Point::norm(), Point::head(), Point::top()};
  const auto answer = [&](Batcher& batcher, size_t i) {
    Sequence sequence(*whole);
    const Point to = points[i % points.size()];
    std::vector<std::vector<float>> all;
    all.push_back(run(batcher, sequence.id, to, 0, 9));
    for (uint32_t t = 0; t < 6; ++t) {
      all.push_back(run(batcher, sequence.id, to, 9 + t, 1));
      const Point deeper = points[(i + t) % points.size()];
      all.push_back(run(batcher, sequence.id, deeper, 0, 10 + t, true));
    }
    return all;
  };
  std::vector<std::vector<std::vector<float>>> alone, together(12);
  std::atomic<uint32_t> most_depths = 0;
  for (size_t i = 0; i < together.size(); ++i) {
    Batcher batcher(*whole);
    alone.push_back(answer(batcher, i));
  }
  Batcher batcher(*whole, 4);
  batcher.on_step(
      [&](const StepSeen& seen) { most_depths = std::max(most_depths.load(), seen.depths); });
  std::vector<std::thread> threads;
  for (size_t i = 0; i < together.size(); ++i) {
    threads.emplace_back([&, i] { together[i] = answer(batcher, i); });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < together.size(); ++i) {
    expect_same(together[i], alone[i], cat("sequence ", i));
  }
  EXPECT_GT(most_depths, 1u);
  EXPECT_EQ(whole->pages().in_use(), 0u);
}

// A fill that failed had begun to write what was there: steps and fills go on as if it had not
// been.
TEST_F(Layers, AFillThatFailsLeavesItsSequence) {
  const auto plain_device = make_cpu_device(1);
  const auto plain = shard(*plain_device);
  Batcher plain_batcher(*plain);
  Sequence reference(*plain);
  run(plain_batcher, reference.id, layers_, 0, 20);
  const auto expected = run(plain_batcher, reference.id, layers_, 20, 3);

  Failing device;
  const auto whole = shard(device);
  Batcher batcher(*whole);
  Sequence sequence(*whole);
  run(batcher, sequence.id, 1, 0, 20);
  device.fails = true;
  EXPECT_THROW(run(batcher, sequence.id, layers_, 0, 20, true), Error);
  EXPECT_EQ(whole->pages().filled(sequence.id, 0), 20u);
  EXPECT_EQ(whole->pages().filled(sequence.id, 1), 0u);
  run(batcher, sequence.id, 1, 20, 1);
  run(batcher, sequence.id, layers_, 0, 20, true);
  EXPECT_EQ(first_difference(run(batcher, sequence.id, layers_, 20, 3), expected), -1);
}

}  // namespace
}  // namespace split::test
