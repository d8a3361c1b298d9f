// A model's own stages over windows, and steps on them: logits are those of the decoders' goldens,
// and neither threads nor a pause change a bit of what is trained.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "array/plan.h"
#include "base/error.h"
#include "io/checkpoint.h"
#include "support/golden_values.h"
#include "train/trainer.h"

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
      : checkpoint(test::model_dir("models/gemma2")),
        model(make_model(checkpoint.config_json())),
        runtime(threads),
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
  array::Runtime runtime;
  array::Store store;
  Tail tail;
  WindowSet set;
  std::unique_ptr<Trainer> trainer;
};

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

TEST(Trainer, GoesOnFromItsStateWithTheSameBits) {
  Training unbroken(2), first(2), second(2);
  unbroken.steps(0, 6);
  first.steps(0, 3);
  for (const auto& [name, entry] : first.store.entries()) {
    if (entry.state) second.store.at(name).floats = entry.floats;
  }
  EXPECT_EQ(second.trainer->steps(), 3);
  second.steps(3, 6);
  EXPECT_EQ(second.trained(), unbroken.trained());
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

}  // namespace
}  // namespace split::train
