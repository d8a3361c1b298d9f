// Every model on every registered device: a new one is tested by its examples and its goldens.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

#include "device/every_device.h"
#include "run/layer_schedule.h"
#include "support/golden_model.h"

namespace split::test {
namespace {

// All stages of a model over random weights, each a Program, on the device and in the reference.
class Stages {
 public:
  Stages(Device& device, const Model& model, DType dtype, DType cache, const Limits& limits)
      : bench_(device, limits) {
    const auto type = [&](const std::string& name) {
      return is_quantised(dtype) && model.weight(name).product == Product::kNone ? DType::kF32
                                                                                 : dtype;
    };
    const auto& stages = model.stages();
    std::string last = "hidden";  // what the stage before left
    for (size_t i = 0; i < stages.size(); ++i) {
      if (i + 1 < stages.size() && stages[i + 1].joins_last) continue;
      Program program =
          compile(stages[i].name, {stages[i].trace({type, cache})}, device.fuse_rules());
      const std::string result = cat("state.", i);
      for (Slot& slot : program.slots) {
        if (slot.kind == SlotKind::kInput && slot.name == "hidden") slot.name = last;
        if (slot.kind == SlotKind::kOutput) slot.name = result;
      }
      last = result;
      width_ = static_cast<size_t>(stages[i].width);
      bench_.add(program, cache);
    }
    result_ = last;
    uint32_t seed = 1;
    for (const Blob& blob : model.blobs()) {
      for (const WeightDecl& decl : blob.weights) {
        const Dims dims = decl.first_row ? Dims{decl.dims[1]} : decl.dims;
        std::vector<float> values(static_cast<size_t>(*element_count(dims)));
        for (float& value : values) value = noise(seed++, dims.size() == 1 ? 1.0f : 0.4f);
        bench_.set(decl.name, values);
      }
    }
    for (const Constant& constant : model.constants()) bench_.set(constant.name, constant.values);
    bench_.load();
  }
  void expect_as_reference(const RowBatch& batch, double bound, const std::string& what) {
    bench_.run(batch);
    bench_.run_reference(batch);
    const auto got = bench_.read(result_, batch.out_rows.size() * width_);
    expect_close(got, bench_.reference.values.at(result_), what, bound, bound);
  }

 private:
  Bench bench_;
  std::string result_;
  size_t width_ = 0;
};

// The examples that every model of the registry gives of itself; in half precision some of them
// where a software GPU compiles the kernels.
TEST_P(EveryDevice, ModelsComputeTheirGraphs) {
  const bool few = device_->can_be_lost() && !device_->is_gpu() && !std::getenv("SPLIT_LONG");
  size_t examples = 0;
  const std::set<std::string> apart = {"qwen3_5_text", "gemma4_text"};
  for (const std::string& config : example_configs()) {
    const auto model = make_model(config);
    // The reference has no states and no parts of rows: goldens hold these (tests/models).
    if (apart.contains(model->config().model_type)) continue;
    const bool halves = !few || examples++ % 3 == 0;
    for (const DType dtype : {DType::kF32, DType::kF16}) {
      if (dtype == DType::kF16 && !halves) continue;
      const DType cache = dtype;
      const std::string what = cat(dtype_name(dtype), " ", config);
      Limits limits = Steps::limits(8);
      Stages stages(*device_, *model, dtype, cache, limits);
      Steps steps;
      RowBatch batch = steps.batch(0, 0, 5);
      std::vector<int32_t> tokens = {1, 5, 0, 7, 2}, marks;
      batch.tokens = tokens;
      model->config().add_marks(tokens, 3, marks);
      batch.marks = marks;
      if (model->config().encodes()) {
        for (KeyRange& range : steps.seen) range.end = batch.rows;
      }
      stages.expect_as_reference(batch, 2e-5, what);
      if (model->config().encodes()) continue;  // keeps no rows to go on from
      tokens = {3};
      batch = steps.batch(0, 5, 1);
      batch.phase = Phase::kGenerate;
      batch.tokens = tokens;
      stages.expect_as_reference(batch, 2e-5, what);
    }
  }
}

// Heads of whole blocks, whose keys are turned, and normed before. A number near the middle of two
// may be rounded to either.
TEST_P(EveryDevice, ModelsKeepKeysAndValuesInBlocks) {
  if (!device_->supports_kv(DType::kQ8_0)) GTEST_SKIP() << device_->name() << " keeps no blocks";
  for (const char* type : {"llama", "qwen3"}) {
    const auto model = make_model(cat(R"({"model_type":")", type, R"(","num_hidden_layers":2,)",
                                      R"("hidden_size":32,"intermediate_size":24,"head_dim":32,)",
                                      R"("num_attention_heads":4,"num_key_value_heads":2,)",
                                      R"("vocab_size":16,"max_position_embeddings":16})"));
    Stages stages(*device_, *model, DType::kF32, DType::kQ8_0, Steps::limits(8));
    Steps steps;
    RowBatch batch = steps.batch(0, 0, 5);
    std::vector<int32_t> tokens = {1, 5, 0, 7, 2};
    batch.tokens = tokens;
    stages.expect_as_reference(batch, 2e-2, type);
    tokens = {3};
    batch = steps.batch(0, 5, 1);
    batch.phase = Phase::kGenerate;
    batch.tokens = tokens;
    stages.expect_as_reference(batch, 2e-2, type);
  }
}

const std::string kGoldens[] = {"demo", "rand-a", "rand-b", "rand-c"};
// Those of tests/models and tests/run/test_encoders.
const std::string kFamilies[] = {"bert",   "roberta",     "xlmr",        "mpnet",   "modernbert",
                                 "llama3", "qwen2",       "qwen3",       "mistral", "gemma2",
                                 "gemma3", "qwen35-text", "gemma4-dense"};

TEST(EveryModel, HasGoldens) {
  std::set<std::string> golden;
  for (const std::string& name : kGoldens) golden.insert(Golden(name).model->config().model_type);
  for (const std::string& name : kFamilies) {
    golden.insert(Golden("models/" + name).model->config().model_type);
  }
  for (const std::string& config : example_configs()) {
    const std::string type = make_model(config)->config().model_type;
    EXPECT_TRUE(golden.count(type) != 0) << "no golden is of " << type;
  }
}

// Shards against what PyTorch computes (tests/golden), for every point and every cut.
class Goldens : public testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  void SetUp() override {
    const std::string kind = std::get<0>(GetParam()), model = std::get<1>(GetParam());
    std::string why_not;
    device_ = device_of(kind, why_not);
    if (!device_) GTEST_SKIP() << why_not;
    const bool gpus = std::ranges::any_of(
        device_kinds(), [&](const DeviceKind& one) { return one.name == kind && one.gpus; });
    if (gpus && !device_->is_gpu() && model == "demo" && std::getenv("SPLIT_LONG") == nullptr) {
      GTEST_SKIP() << device_->name() << " takes minutes for the demo model: SPLIT_LONG=1 runs it";
    }
    golden_ = std::make_unique<Golden>(model);
  }
  int layers() const { return golden_->model->config().layers; }
  size_t channels() const { return static_cast<size_t>(golden_->model->config().channels); }
  Shard shard(const StageRange& range = {}) const {
    return {*device_, *golden_->model, golden_->weights(), options_for(*golden_->model, range)};
  }
  std::unique_ptr<Device> device_;
  std::unique_ptr<Golden> golden_;
};

int32_t argmax(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

TEST_P(Goldens, HiddenStatesAtEveryPointAgree) {
  Shard whole = shard();
  for (int p = 0; p < golden_->prompts(); ++p) {
    const auto ids = golden_->values<int32_t>(cat("p", p, ".ids"));
    const auto last = golden_->values<float>(cat("p", p, ".hidden_last"));
    for (int point = 0; point <= Point::norm().stage(layers()); ++point) {
      Line line(whole);
      const Point to = point > layers() ? Point::norm() : Point(point);
      const auto all = line.run({.range = {.to = to}, .tokens = ids, .wanted = Wanted::kAll});
      const std::span got = std::span(all).last(channels());
      EXPECT_LT(relative(got, std::span(last).subspan(point * channels(), channels())), 2e-5)
          << "prompt " << p << " point " << to.name();
      if (!golden_->has(cat("p", p, ".hidden_all"))) continue;
      const auto expected = golden_->values<float>(cat("p", p, ".hidden_all"));
      for (size_t t = 0; t < ids.size(); ++t) {
        const size_t at = (point * ids.size() + t) * channels();
        EXPECT_LT(relative(std::span(all).subspan(t * channels(), channels()),
                           std::span(expected).subspan(at, channels())),
                  2e-4);
      }
    }
  }
}

TEST_P(Goldens, LogProbabilitiesAndGreedyTextAgreeForEveryCut) {
  for (int cut = 0; cut <= layers(); ++cut) {
    const StageRange below{.to = cut}, above{cut, Point::head()};
    Shard cloud = shard(below), edge = shard(above);
    for (int p = 0; p < golden_->prompts(); ++p) {
      auto ids = golden_->values<int32_t>(cat("p", p, ".ids"));
      Line head(cloud), tail(edge);
      const auto step = [&](std::span<const int32_t> tokens) {
        const auto hidden = head.run({.range = below, .tokens = tokens, .wanted = Wanted::kAll});
        return tail.run(
            {.range = above, .hidden = hidden, .width = static_cast<uint32_t>(channels())});
      };
      std::vector<float> logits = step(ids);
      const auto expected = golden_->values<float>(cat("p", p, ".logprobs_last"));
      const auto got = log_softmax(logits);
      for (size_t v = 0; v < expected.size(); ++v) ASSERT_NEAR(got[v], expected[v], 2e-3);
      const auto greedy = golden_->values<int32_t>(cat("p", p, ".greedy_ids"));
      const auto margin = golden_->values<float>(cat("p", p, ".greedy_margin"));
      for (size_t i = 0; i < greedy.size() && margin[i] > 2e-4; ++i) {
        const int32_t next = argmax(logits);
        ASSERT_EQ(next, greedy[i]) << "cut " << cut << " prompt " << p << " token " << i;
        if (i + 1 < greedy.size()) logits = step(std::span(&next, 1));
      }
    }
  }
}

// Steps to any point together, cuts, and fills: the bits of plain steps.
TEST_P(Goldens, BlocksGetTheirRowsInAnyOrder) {
  for (const Profile profile : {Profile::kF32, Profile::kF16}) {
    ShardOptions options = options_for(*golden_->model);
    options.profile = profile;
    Shard shard(*device_, *golden_->model, golden_->weights(), options);
    LayerSchedule(shard, 7).run(device_->can_be_lost() && !device_->is_gpu() ? 12 : 40);
  }
}

INSTANTIATE_TEST_SUITE_P(Registered, Goldens,
                         testing::Combine(testing::ValuesIn(device_kind_names()),
                                          testing::ValuesIn(kGoldens)),
                         [](const auto& info) {
                           std::string name =
                               cat(std::get<0>(info.param), "_", std::get<1>(info.param));
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace split::test
