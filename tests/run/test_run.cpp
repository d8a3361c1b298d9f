// Shards: what they ask of a device, in what order they load, and the memory that they keep.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "run/text/generate.h"
#include "support/forwarding_device.h"
#include "support/golden_model.h"

namespace split {
namespace {

using test::Golden;
using test::options_for;

// A device behind a bus, as a GPU's.
class FarDevice : public test::ForwardingDevice {
 public:
  FarDevice() : ForwardingDevice(make_cpu_device(2)) {}
  bool host_copy_is_slow() const override { return true; }
  void run(Workspace& workspace, std::span<Executable* const> programs,
           const RowBatch& batch) override {
    ForwardingDevice::run(workspace, programs, batch);
    most_bytes = std::max(most_bytes, batch.out_bytes.size());
  }
  size_t most_bytes = 0;  // that came back from a step
};

TEST(FarDevice, GivesTheSameTextWithoutAllLogits) {
  const Golden golden("rand-a");
  const ModelConfig& config = golden.model->config();
  const auto near = make_cpu_device(2);
  const auto generated = [&](Device& device, const GenerateOptions& options) {
    Shard shard(device, *golden.model, golden.weights(), options_for(*golden.model));
    Batcher batcher(shard);
    LocalForward forward(batcher);
    return generate(forward, config, nullptr, std::vector<int32_t>{3, 1, 2}, options, {}).tokens;
  };
  struct Row {
    float temperature;
    int top_k;
    float penalty;
    bool all;  // logits are wanted
  };
  for (const Row& row : {Row{0, 0, 1, false}, Row{0.9f, 5, 1, false}, Row{0.9f, 0, 1, true},
                         Row{0, 0, 1.3f, true}, Row{0.9f, 1000, 1, true}}) {
    GenerateOptions options;
    options.max_tokens = 12;
    options.ignore_end = true;
    options.sampling = {row.temperature, row.top_k, 0.95f, row.penalty, 3};
    FarDevice far;
    EXPECT_EQ(generated(far, options), generated(*near, options));
    const size_t all = static_cast<size_t>(config.vocab) * sizeof(float);
    const size_t few =
        2 * std::min<size_t>(kTopLogits, static_cast<size_t>(config.vocab)) * sizeof(float);
    EXPECT_EQ(far.most_bytes, row.all ? all : few) << row.temperature << " " << row.top_k;
  }
}

// A device that is held up in one of the programs that it runs alone.
class HeldUpDevice : public test::ForwardingDevice {
 public:
  explicit HeldUpDevice(int at) : ForwardingDevice(make_cpu_device(1)), at_(at) {}
  void run(Workspace& workspace, std::span<Executable* const> programs,
           const RowBatch& batch) override {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
    while (programs.size() == 1 && alone == at_ && std::chrono::steady_clock::now() < end) {
    }
    if (programs.size() == 1) ++alone;
    ForwardingDevice::run(workspace, programs, batch);
  }
  int alone = 0;

 private:
  const int at_;
};

TEST(Shard, ABadMomentIsNoTimeOfAStage) {
  const Golden golden("rand-a");
  const int programs = golden.model->config().layers + 2;
  for (const int at :
       {1, programs + 1, 3 * programs + 1}) {  // of the first, second and fourth time
    HeldUpDevice device(at);
    Shard shard(device, *golden.model, golden.weights(), options_for(*golden.model));
    Batcher batcher(shard);
    LocalForward forward(batcher);
    GenerateOptions options;
    options.max_tokens = 38;
    options.ignore_end = true;
    generate(forward, golden.model->config(), nullptr, std::vector<int32_t>{3, 1, 2}, options, {});
    EXPECT_GE(device.alone, 4 * programs);
    EXPECT_LT(shard.stage_times().at("block.0"), 100) << at;
  }
}

// A weight that is still on its way can be waited for: a block's bytes are asked for when those
// before it are on the device already, and nothing is read before all types are known.
TEST(ShardLoading, AsksForBytesInTheOrderOfTheStages) {
  const Golden golden("rand-a");
  const auto device = make_device({"cpu", 1});
  std::vector<std::string> views, taken;
  std::map<const std::byte*, std::string> names;
  WeightSource weights = golden.weights();
  const auto at = weights.view;
  weights.declared = [&](const std::string& name) {
    EXPECT_TRUE(views.empty()) << name;
    TensorView view = at(name);
    view.bytes = {};  // not there yet
    return view;
  };
  weights.view = [&](const std::string& name) {
    views.push_back(name);
    names[at(name).bytes.data()] = name;
    return at(name);
  };
  weights.taken = [&](const TensorView& view) { taken.push_back(names.at(view.bytes.data())); };
  const int layers = golden.model->config().layers;
  Shard shard(*device, *golden.model, weights, options_for(*golden.model));
  std::vector<std::string> stages;  // in the order of their first weight
  for (const std::string& name : views) {
    const std::string stage = name.substr(0, name.find('.', name.starts_with("h.") ? 2 : 0));
    if (stages.empty() || stages.back() != stage) stages.push_back(stage);
  }
  std::vector<std::string> expected = {"wte", "wpe"};
  for (int layer = 0; layer < layers; ++layer) expected.push_back(cat("h.", layer));
  expected.push_back("ln_f");
  EXPECT_EQ(stages, expected);
  // Packed matrices are copies; the embedding is read where it lies.
  const auto has = [&](const char* name) { return std::ranges::count(taken, name) == 1; };
  EXPECT_TRUE(has("h.0.attn.c_attn.weight") && has("h.1.mlp.c_proj.weight"));
  EXPECT_FALSE(has("wte.weight"));
}

// A block of this model is larger than its vocabulary.
TEST(ShardLoading, AsksForTheLargestStageFirstWhereItsBytesAreInMemory) {
  const Golden golden("rand-a");
  const auto device = make_device({"cpu", 1});
  std::vector<std::string> views;
  WeightSource weights = golden.weights();
  const auto at = weights.view;
  weights.view = [&](const std::string& name) {
    views.push_back(name);
    return at(name);
  };
  weights.largest_first = true;
  Shard shard(*device, *golden.model, weights, options_for(*golden.model));
  ASSERT_FALSE(views.empty());
  EXPECT_TRUE(views.front().starts_with("h.0.")) << views.front();
  EXPECT_EQ(std::ranges::count(views, "wte.weight"), 1);
}

// Has two heads of 32 in one block and one in the other, beside 256 channels.
struct GroupedHeads : Model {
  GroupedHeads() {
    config_.layers = 2;
    config_.channels = 256;
    config_.heads = 8;
    config_.context = 40;
    stages_ = {{.name = "embed", .blobs = {}},
               {.name = "block.0", .blobs = {}, .kv = {2, 32}},
               {.name = "block.1", .blobs = {}, .kv = {1, 32}},
               {.name = "norm", .blobs = {}},
               {.name = "head", .blobs = {}}};
  }
  bool is_inside(std::string_view) const override { return false; }
};

TEST(KvBytes, AreThoseOfTheHeadsThatStagesKeep) {
  const GroupedHeads model;
  constexpr uint64_t kPositions = 48;  // whole pages
  const auto bytes = [&](Point from, Point to, Profile profile) {
    return kv_bytes_for(model, {from, to}, profile, 1) / (2 * kPositions);
  };
  EXPECT_EQ(bytes(0, 2, Profile::kF16), 96 * 2u);
  EXPECT_EQ(bytes(0, Point::head(), Profile::kF32), 96 * 4u);
  EXPECT_EQ(bytes(1, 2, Profile::kF32), 32 * 4u);
  EXPECT_EQ(bytes(2, Point::head(), Profile::kF32), 0u);
}

class WatchedDevice : public test::ForwardingDevice {
 public:
  WatchedDevice() : ForwardingDevice(make_cpu_device(1)) {}
  std::unique_ptr<Buffer> upload(const Slot& slot, const TensorView& view) override {
    seen.push_back("a weight");
    return ForwardingDevice::upload(slot, view);
  }
  void prepare(std::span<const Program> programs, Workspace&) override {
    for (const Program& program : programs) seen.push_back(program.name);
  }
  std::vector<std::string> seen;
};

TEST(ShardLoading, TellsTheDeviceOfAllProgramsBeforeAnyWeight) {
  const Golden golden("rand-a");
  WatchedDevice device;
  const int layers = golden.model->config().layers;
  Shard shard(device, *golden.model, golden.weights(), options_for(*golden.model));
  std::vector<std::string> expected = {"embed"};
  for (int layer = 0; layer < layers; ++layer) expected.push_back(cat("block.", layer));
  for (const char* last : {"norm", "head", "topk", "a weight"}) expected.push_back(last);
  device.seen.resize(expected.size());
  EXPECT_EQ(device.seen, expected);
}

}  // namespace
}  // namespace split
