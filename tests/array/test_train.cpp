// A model's own stages over windows, and steps on them: logits are those of the decoders' goldens,
// and neither threads nor a pause change a bit of what is trained.
#include <gtest/gtest.h>

#include <cmath>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <random>

#include "array/plan.h"
#include "base/bytes.h"
#include "base/error.h"
#include "base/json.h"
#include "io/checkpoint.h"
#include "support/golden_values.h"
#include "support/temporary_folder.h"
#include "text/tokenizer.h"
#include "train/best.h"
#include "train/operations_check.h"
#include "train/tail_file.h"
#include "train/training_schedule.h"

namespace split::train {
namespace {

OwnedTensor weight_of(const Checkpoint& checkpoint, const WeightDecl& decl) {
  return converted(checkpoint.at(decl.from.empty() ? decl.name : decl.from), DType::kF32);
}

class Decoder : public testing::TestWithParam<const char*> {};

TEST_P(Decoder, HasItsLogitsOverWindows) {
  const test::GoldenValues golden(GetParam());
  const Checkpoint checkpoint(test::model_dir(GetParam()));
  const auto model = make_model(checkpoint.config_json());
  array::Runtime runtime(2);
  int compared = 0;
  for (int p = 0; p < golden.prompts(); ++p) {
    const std::vector<int32_t> ids = golden.ids(p);
    const auto length = static_cast<int64_t>(ids.size());
    if (ids.empty() || !golden.has(cat("p", p, ".logits_last"))) continue;
    // Beside another window, which changes nothing.
    const Windows windows{2, length};
    array::Store store;
    Tail tail(*model, {.first = 1});
    add_weights(store, tail, -1,
                [&](const WeightDecl& decl) { return weight_of(checkpoint, decl); });
    auto& tokens = store.add_numbers("ids", {windows.rows()}).numbers;
    for (int64_t t = 0; t < length; ++t) {
      tokens[static_cast<size_t>(t)] = ids[static_cast<size_t>(length - 1 - t)];
      tokens[static_cast<size_t>(length + t)] = ids[static_cast<size_t>(t)];
    }
    const Tensor hidden = tail.head(windows, input("ids", DType::kI32, {windows.rows()}));
    array::Plan plan(runtime, {{{"logits", tail.logits(windows, hidden)}}, {}}, store);
    plan.run();
    const auto expected = golden.values<float>(cat("p", p, ".logits_last"));
    EXPECT_LE(test::relative(plan.output("logits").last(expected.size()), expected), 2e-5) << p;
    ++compared;
  }
  EXPECT_GT(compared, 0);
}

INSTANTIATE_TEST_SUITE_P(Train, Decoder,
                         testing::Values("rand-a", "rand-b", "rand-c", "models/llama2",
                                         "models/llama3", "models/mistral", "models/qwen2",
                                         "models/qwen3", "models/gemma2", "models/gemma3"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace_if(
                               name, [](char c) { return c == '-' || c == '/'; }, '_');
                           return name;
                         });

// Some steps on a small model; the trained tensors after them.
struct Training {
  explicit Training(unsigned threads, int lora = 0)
      : Training(std::make_shared<array::Runtime>(threads), lora) {}
  explicit Training(std::shared_ptr<array::Runtime> device, int lora = 0)
      : checkpoint(test::model_dir("models/gemma2")),
        model(make_model(checkpoint.config_json())),
        own(std::move(device)),
        runtime(*own),
        tail(*model, {.first = 2, .lora = lora}) {
    add_weights(store, tail, -1,
                [&](const WeightDecl& decl) { return weight_of(checkpoint, decl); });
    std::mt19937 random(1);
    for (const optim::State& one : tail.trained()) {
      if (lora == 0 || !one.name.ends_with("lora_A")) continue;
      for (float& a : store.at(one.name).floats) a = static_cast<float>(random() % 100) * 1e-3f;
    }
    set.length = 20;
    for (int i = 0; i < 6 * 21; ++i) set.ids.push_back(static_cast<int32_t>(random() % 300));
    add_hidden(runtime, store, tail, set);
    trainer = std::make_unique<Trainer>(runtime, store, tail, Windows{2, 20},
                                        optim::Options{.lr = 1e-3, .weight_decay = 0.01}, 1);
  }
  std::vector<float> steps(int from, int to) {
    std::vector<float> losses;
    for (int t = from; t < to; ++t) {
      const size_t which[] = {static_cast<size_t>(t) % 6, static_cast<size_t>(t * 5 + 1) % 6};
      losses.push_back(trainer->step(set, which, 1.0 / (1 + t)));
    }
    return losses;
  }
  std::vector<float> trained() {
    std::vector<float> all;
    for (const optim::State& one : tail.trained()) {
      const auto& values = store.at(one.name).floats;
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

  Checkpoint checkpoint;
  std::unique_ptr<Model> model;
  std::shared_ptr<array::Runtime> own;
  array::Runtime& runtime;
  array::Store store;
  Tail tail;
  WindowSet set;
  std::unique_ptr<Trainer> trainer;
};

TEST(OperationsCheck, FindsNothingWrong) {
  array::Runtime runtime(2);
  EXPECT_GT(check_operations(runtime), 30u);
}

TEST(Trainer, HasOneSetOfBitsForAnyThreads) {
  for (const int lora : {0, 3}) {
    Training one(1, lora);
    const double before = one.trainer->perplexity(one.set);
    const auto losses = one.steps(0, 5);
    EXPECT_LT(one.trainer->perplexity(one.set), 0.99 * before);
    for (const unsigned threads : {1u, 2u, 5u}) {
      Training other(threads, lora);
      EXPECT_EQ(other.steps(0, 5), losses) << threads;
      EXPECT_EQ(other.trained(), one.trained()) << threads;
    }
  }
}

void expect_same_bits_after_a_break(const std::shared_ptr<array::Runtime>& device) {
  Training unbroken(device), first(device), second(device);
  unbroken.steps(0, 6);
  first.steps(0, 3);
  for (const auto& [name, entry] : first.store.entries()) {
    if (entry.state) second.store.at(name).floats = entry.floats;
  }
  EXPECT_EQ(second.trainer->steps(), 3);
  second.steps(3, 6);
  EXPECT_EQ(second.trained(), unbroken.trained());
}
TEST(Trainer, GoesOnFromItsStateWithTheSameBits) {
  expect_same_bits_after_a_break(std::make_shared<array::Runtime>(2));
}

// The first Vulkan device, if there is one.
std::shared_ptr<array::Runtime> vulkan_device() {
  for (const ListedDevice& one : list_devices()) {
    if (one.usable && one.name.starts_with("vulkan")) {
      return std::make_shared<array::Runtime>(DeviceOptions{.device = one.name});
    }
  }
  return nullptr;
}

TEST(Trainer, OnVulkanHasTheLossesOfTheCpuAndOneSetOfBits) {
  const auto device = vulkan_device();
  if (!device) GTEST_SKIP() << "no Vulkan device";
  for (const int lora : {0, 3}) {
    Training one(device, lora), again(device, lora), cpu(2, lora);
    ASSERT_NE(one.runtime.gpu, nullptr);
    const auto losses = one.steps(0, 4), expected = cpu.steps(0, 4);
    for (size_t t = 0; t < losses.size(); ++t) {
      EXPECT_NEAR(losses[t], expected[t], 1e-4 * expected[t]) << t;
    }
    EXPECT_EQ(again.steps(0, 4), losses);
    EXPECT_EQ(again.trained(), one.trained());
    EXPECT_NEAR(one.trainer->perplexity(one.set), cpu.trainer->perplexity(cpu.set),
                1e-3 * cpu.trainer->perplexity(cpu.set));
  }
  expect_same_bits_after_a_break(device);
}

TEST(Trainer, LeavesWhatIsFrozenAsItWas) {
  Training training(1);
  const auto before = training.store.at("layers.1.mlp.up_proj.weight").floats;
  const auto embedding = training.store.at("embed_tokens.weight").floats;
  training.steps(0, 2);
  EXPECT_EQ(training.store.at("layers.1.mlp.up_proj.weight").floats, before);
  EXPECT_EQ(training.store.at("embed_tokens.weight").floats, embedding);
}

TEST(Tail, RefusesMoreBlocksThanThereAreAndEncoders) {
  const Checkpoint checkpoint(test::model_dir("models/gemma2")),
      encoder(test::model_dir("models/bert"));
  const auto model = make_model(checkpoint.config_json()), bert = make_model(encoder.config_json());
  EXPECT_THROW(Tail(*model, {.first = -1}), Error);
  EXPECT_THROW(Tail(*model, {.first = model->config().layers}), Error);
  EXPECT_THROW(Tail(*bert, {.first = 0}), Error);
}

// --- Courses

TEST(TrainingSchedule, CutsWindowsThatShareAnIdAndKeepsTheLastFifthApart) {
  std::vector<int32_t> ids(50);
  std::iota(ids.begin(), ids.end(), 0);
  const TextWindows plain = text_windows(ids, {}, 4);
  // 40 ids in windows of five: 0..4, 4..8, ... and the 37th is left out.
  EXPECT_EQ(plain.trained.count(), 9u);
  EXPECT_EQ(plain.trained.ids[5], 4);
  EXPECT_EQ(plain.trained.ids.back(), 36);
  EXPECT_EQ(plain.unseen.count(), 2u);
  EXPECT_EQ(plain.unseen.ids[0], 40);
  const int32_t begin[] = {99};
  const TextWindows begun = text_windows(ids, begin, 4);
  EXPECT_EQ(begun.trained.ids[0], 99);
  EXPECT_EQ(begun.trained.ids[5], 99);
  EXPECT_EQ(begun.trained.ids[6], 3);
}

TEST(TrainingSchedule, CutsTheTextOfTheGoldensAsTheyAre) {
  const std::string text = "/usr/share/common-licenses/GPL-3";
  if (!std::filesystem::exists(text)) GTEST_SKIP() << "no such text";
  const std::string bytes = read_file(text, 1 << 20);
  if (Sha256::hex_of(std::as_bytes(std::span(bytes))) !=
      "3972dc9744f6499f0f9b2dbf76696f2ae7ad8af9b23dde66d6af86c9dfb36986") {
    GTEST_SKIP() << "another text";
  }
  const auto tokenizer = load_tokenizer(std::filesystem::path(test::model_dir("demo")));
  const auto ids = tokenizer->encode(bytes, {.parse_special = false});
  const TextWindows windows = text_windows(ids, tokenizer->before(), 128);
  const MappedFile file(test::source("tests/golden/ops/finetune.safetensors"));
  const Safetensors golden = Safetensors::parse(file.bytes(), "finetune");
  const auto same = [&](const char* name, const WindowSet& set) {
    const Bytes expected = golden.tensors().at(name).bytes;
    return expected.size() == set.ids.size() * sizeof(int32_t) &&
           std::memcmp(expected.data(), set.ids.data(), expected.size()) == 0;
  };
  EXPECT_TRUE(same("train", windows.trained)) << windows.trained.count();
  EXPECT_TRUE(same("eval", windows.unseen)) << windows.unseen.count();
}

TEST(TrainingSchedule, TakesEachWindowOnceInAPassInAnOrderOfTheSeed) {
  const TrainingSchedule course{.seed = 7, .steps = 30, .windows = 10};
  std::vector<size_t> taken;
  for (int64_t step = 0; step < 5; ++step) {
    for (const size_t one : course.windows_of_step(step)) taken.push_back(one);
  }
  for (size_t pass = 0; pass < 2; ++pass) {
    std::vector<size_t> all(taken.begin() + static_cast<std::ptrdiff_t>(10 * pass),
                            taken.begin() + static_cast<std::ptrdiff_t>(10 * pass + 10));
    std::ranges::sort(all);
    for (size_t i = 0; i < 10; ++i) EXPECT_EQ(all[i], i);
  }
  EXPECT_FALSE(std::equal(taken.begin(), taken.begin() + 10, taken.begin() + 10));
  const TrainingSchedule other{.seed = 8, .steps = 30, .windows = 10};
  EXPECT_NE(other.windows_of_step(0), course.windows_of_step(0));
  EXPECT_EQ(TrainingSchedule::default_steps(10), 30);
  EXPECT_EQ(TrainingSchedule::default_steps(71), 89);
  EXPECT_EQ(TrainingSchedule::default_steps(100000), 2000);
  EXPECT_DOUBLE_EQ(course.factor(0), 0.2);
  EXPECT_DOUBLE_EQ(course.factor(4), 1);
}

TEST(TrainingSchedule, GoesOnFromAFileWithTheSameBits) {
  const test::TemporaryFolder folder;
  const auto part = folder.path / "tail.part";
  Training unbroken(2, 3), first(2, 3), second(1, 3);
  unbroken.steps(0, 5);
  first.steps(0, 2);
  write_state(part, first.store, {{"course", "this"}});
  EXPECT_EQ(read_state(part, &second.store).at("course"), "this");
  second.steps(2, 5);
  EXPECT_EQ(second.trained(), unbroken.trained());
  Training blocks(1);
  EXPECT_THROW(read_state(part, &blocks.store), Error);
}

TEST(TrainingSchedule, SaysWhereItsPassesEnd) {
  for (const size_t windows : {3u, 4u, 6u, 71u}) {
    const TrainingSchedule course{.steps = 40, .windows = windows};
    std::vector<size_t> taken(windows);
    size_t passes = 0;
    for (int64_t step = 0; step < course.steps; ++step) {
      for (const size_t one : course.windows_of_step(step)) ++taken[one];
      const size_t whole = *std::ranges::min_element(taken);
      EXPECT_EQ(course.ends_pass(step), whole > passes || step + 1 == course.steps) << step;
      passes = whole;
    }
  }
}

// Is told figures of which the fourth is the least.
TEST(Best, IsTheStepThatPredictsUnseenWindowsBest) {
  const test::TemporaryFolder folder;
  for (const int lora : {0, 3}) {
    Training training(2, lora), other(1, lora);
    WindowSet unseen;
    unseen.length = 20;
    unseen.ids.assign(training.set.ids.begin(), training.set.ids.begin() + 2 * 21);
    add_hidden(training.runtime, training.store, training.tail, unseen);
    Best best(training.store, training.tail), read(other.store, other.tail);
    double least = training.trainer->perplexity(unseen);
    const auto before = static_cast<float>(least);
    best.begin(least, 7);
    EXPECT_EQ(best.steps(), 0);
    std::vector<float> kept;
    int64_t at = 0;
    double perplexity = 0;
    for (int64_t step = 1; step <= 12; ++step) {
      const size_t which[] = {step < 5 ? 0u : 4u, step < 5 ? 1u : 5u};
      training.trainer->step(training.set, which, 4);
      const double now = (1 + 0.01 * std::abs(static_cast<double>(step - 4))) * 0.9 * before;
      best.look(now, step);
      if (now < least) {
        least = now;
        at = step;
        perplexity = training.trainer->perplexity(unseen);
        kept = training.trained();
      }
      if (step == 9) write_state(folder.path / "part", training.store, {});
    }
    ASSERT_GT(at, 0);
    ASSERT_LT(at, 9);
    EXPECT_NE(training.trained(), kept);
    const auto expect_best = [&](Training& of, Best& one) {
      EXPECT_EQ(one.steps(), at);
      EXPECT_EQ(one.before(), before);
      EXPECT_EQ(one.known_before(), 7);
      EXPECT_EQ(one.least(), static_cast<float>(least));
      EXPECT_TRUE(one.plausible(9));
      EXPECT_FALSE(one.plausible(at - 1));
      one.restore();
      EXPECT_EQ(of.trained(), kept);
    };
    expect_best(training, best);
    EXPECT_EQ(training.trainer->perplexity(unseen), perplexity);
    read_state(folder.path / "part", &other.store);
    expect_best(other, read);
  }
}

TEST(Best, RefusesFiguresThatNoCourseHas) {
  Training training(1, 3);
  Best best(training.store, training.tail);
  constexpr float kInfinite = std::numeric_limits<float>::infinity(),
                  kNan = std::numeric_limits<float>::quiet_NaN();
  const auto plausible = [&](std::vector<float> figures) {
    training.store.at("best.figures").floats = std::move(figures);
    return best.plausible(9);
  };
  EXPECT_TRUE(plausible({20, 0, 20, 0}));
  EXPECT_TRUE(plausible({20, 30, 19, 9}));
  for (const std::vector<float>& figures :
       std::vector<std::vector<float>>{{0, 0, 0, 0},
                                       {-1, 0, -1, 0},
                                       {kNan, 0, 20, 0},
                                       {20, -1, 19, 1},
                                       {20, kNan, 19, 1},
                                       {20, 0, 21, 1},
                                       {20, 0, kNan, 1},
                                       {20, 0, 0.5, 1},
                                       {20, 0, 19, 0},
                                       {20, 0, 20, 1},
                                       {20, 0, 19, 10},
                                       {20, 0, 19, -1},
                                       {20, 0, 19, kNan},
                                       {20, 0, 19, kInfinite}}) {
    EXPECT_FALSE(plausible(figures)) << figures[0] << " " << figures[2] << " " << figures[3];
  }
  best.begin(20, 0);
  best.look(kNan, 3);
  EXPECT_EQ(best.steps(), 0);
  const test::TemporaryFolder folder;
  training.store.at("optim.step").floats[0] = kNan;
  write_state(folder.path / "part", training.store, {});
  EXPECT_THROW(read_state(folder.path / "part", &training.store), Error);
}

TEST(TailFile, HasTheNamesThatPeftAndHuggingFaceHave) {
  const test::TemporaryFolder folder;
  const auto path = folder.path / "tail.safetensors";
  Training lora(1, 3), blocks(1);
  const auto names = [&](Training& of) {
    write_tail(path, of.tail, of.store, "model.", {{"split_model", "m"}});
    const MappedFile file(path);
    const Safetensors parsed = Safetensors::parse(file.bytes(), "tail");
    std::vector<std::string> all;
    for (const auto& [name, view] : parsed.tensors()) all.push_back(name);
    return all;
  };
  const auto has = [](const std::vector<std::string>& all, const std::string& name) {
    return std::ranges::find(all, name) != all.end();
  };
  const auto adapter = names(lora), own = names(blocks);
  EXPECT_TRUE(has(adapter, "base_model.model.model.layers.2.self_attn.q_proj.lora_A.weight"));
  EXPECT_TRUE(has(own, "model.layers.2.self_attn.q_proj.weight"));
  EXPECT_TRUE(has(own, "model.norm.weight"));
  EXPECT_FALSE(has(own, "model.embed_tokens.weight"));
  const Json config = parse_json(adapter_config(lora.tail, "m"), 8, "config");
  EXPECT_EQ(config.at("r").get<int>(), 3);
  EXPECT_EQ(config.at("lora_alpha").get<double>(), 6);
  EXPECT_EQ(config.at("target_modules").size(), 7u);
}

void expect_memory_as_told(Training& training) {
  const Needs told = Trainer::needs(training.runtime, training.tail, {2, 20}, {.lr = 1}, 1);
  EXPECT_EQ(told.gpu > 0, training.runtime.own_memory() > 0);
  const auto own = training.tail.weights(training.tail.shape().first);
  uint64_t held = training.trainer->plan_bytes(), frozen = 0;
  for (const auto& [name, entry] : training.store.entries()) {
    const uint64_t bytes = entry.floats.size() * sizeof(float);
    // The store has the first blocks' weights too, which made the hidden states.
    const auto all = training.tail.weights(-1);
    const bool first =
        std::ranges::find(own, name) == own.end() && std::ranges::find(all, name) != all.end();
    (first ? frozen : held) += first ? bytes : bytes * (entry.remote ? 2 : 1);
  }
  EXPECT_EQ(training.tail.frozen_bytes(), frozen);
  EXPECT_NEAR(static_cast<double>(told.host + told.gpu), static_cast<double>(held),
              0.05 * static_cast<double>(held));
}

TEST(Trainer, SaysItsMemoryBeforeThereIsAny) {
  Training cpu(1);
  expect_memory_as_told(cpu);
  const auto device = vulkan_device();
  if (!device) GTEST_SKIP() << "no Vulkan device";
  Training gpu(device);
  expect_memory_as_told(gpu);
}

}  // namespace
}  // namespace split::train
