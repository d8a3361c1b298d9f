// Rows that texts take from each other: no bit of a text depends on who computed a row.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <latch>
#include <random>
#include <thread>

#include "run/random_weights.h"
#include "run/text/generate.h"
#include "support/failing_device.h"
#include "support/golden_model.h"

namespace split::test {
namespace {

constexpr uint32_t kContext = 256;

constexpr const char* kConfig = R"({"model_type":"gpt2","n_layer":2,"n_embd":64,"n_head":2,
                                   "vocab_size":64,"n_positions":256})";

// A model on a device, its batcher, and the same once more without a cache.
struct World {
  std::optional<Golden> golden;  // else random weights
  std::unique_ptr<Model> model;
  RandomWeights weights;
  std::unique_ptr<Device> own;
  Shard shard;
  Batcher batcher;
  std::unique_ptr<Device> calm = make_device({"cpu", 1});
  Shard other;
  Batcher plain{other};

  explicit World(uint64_t pages = 64, std::unique_ptr<Device> device = make_device({"cpu", 1}),
                 StageFormats formats = {}, const char* name = nullptr)
      : golden(name != nullptr ? std::optional<Golden>(name) : std::nullopt),
        model(make_model(golden ? golden->checkpoint.config_json() : kConfig)),
        weights(*model),
        own(std::move(device)),
        shard(*own, *model, source(), options(pages, formats)),
        batcher(shard),
        other(*calm, *model, source(), options(600, formats)) {
    batcher.keep_prefixes();
  }
  WeightSource source() const {
    if (golden) return golden->weights();
    return [this](const std::string& name) { return weights.view(name); };
  }
  ShardOptions options(uint64_t pages, const StageFormats& formats) const {
    ShardOptions made = options_for(*model);
    if (formats.block) made.profile = Profile::kQ8_0;
    made.formats = formats;
    made.kv_bytes = kv_bytes_for(*model, {}, made.profile, 1) * pages * kPageTokens / kContext;
    // As many states, or half as many texts where blocks keep none.
    const uint64_t states = state_bytes_for(*model, {});
    if (golden)
      made.kv_bytes = states > 0 ? pages * states : made.kv_bytes * kContext / kPageTokens / 4;
    made.max_rows = 64;
    return made;
  }
};

std::vector<int32_t> random_ids(std::mt19937& random, size_t count) {
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % 64);
  return ids;
}

// Prompts that share beginnings: of a few kinds, cut and edited anywhere.
std::vector<int32_t> prompt_of(std::mt19937& random) {
  std::mt19937 kind(static_cast<uint32_t>(random() % 4));
  std::vector<int32_t> ids = random_ids(kind, kContext - 40);
  ids.resize(1 + random() % ids.size());
  if (random() % 2 == 0) ids[random() % ids.size()] = static_cast<int32_t>(random() % 64);
  return ids;
}

// The logits of a prompt's last row and of some behind it, with cuts back between.
std::vector<float> rows_of(LocalForward& forward, const std::vector<int32_t>& prompt,
                           uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> all;
  const auto add = [&](std::span<const float> logits) {
    all.insert(all.end(), logits.begin(), logits.end());
  };
  add(forward.run({.tokens = prompt}));
  auto past = static_cast<uint32_t>(prompt.size());
  for (int step = 0; step < 6; ++step) {
    if (random() % 3 == 0) past -= std::min<uint32_t>(past - 1, random() % 20);
    const std::vector<int32_t> ids = random_ids(random, 1 + random() % 4);
    add(forward.run(
        {.past = past, .tokens = ids, .phase = Phase::kGenerate, .wanted = Wanted::kAll}));
    past += static_cast<uint32_t>(ids.size());
  }
  return all;
}

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// How many rows were taken by `count` texts; each is that of a batcher without a cache.
uint64_t expect_same(World& world, uint32_t seed, int count) {
  std::mt19937 random(seed);
  uint64_t hits = 0;
  for (int i = 0; i < count; ++i) {
    const std::vector<int32_t> prompt = prompt_of(random);
    const auto steps = static_cast<uint32_t>(random());
    const PrefixRoot root{random() % 3 == 0 ? "b" : "a", random() % 5 == 0 ? "salt" : ""};
    LocalForward taking(world.batcher, {root.owner, {}}, root), computing(world.plain);
    EXPECT_TRUE(same(rows_of(taking, prompt, steps), rows_of(computing, prompt, steps)))
        << seed << " " << i;
    if (taking.cached() > 0) ++hits;
  }
  return hits;
}

// 10,000 hits in all, or a seeded part.
int texts(int all) { return std::getenv("SPLIT_LONG") != nullptr ? all : all / 60; }

TEST(PrefixHits, HaveTheBitsOfRowsThatWereComputed) {
  World world(40);
  EXPECT_GT(expect_same(world, 1, texts(18000)), static_cast<uint64_t>(texts(6000)));
  EXPECT_GT(world.batcher.prefixes()->evicted(), 0u);
}

TEST(PrefixHits, HaveThemWhereThePhasesDiffer) {
  World world(64, make_device({"cpu", 1}), profile_formats(Profile::kQ8_0));
  ASSERT_FALSE(world.shard.same_bits_in_both_phases());
  EXPECT_GT(expect_same(world, 2, texts(3000)), static_cast<uint64_t>(texts(900)));
}

void expect_same_on_eight_threads(World& world, int most, int least) {
  std::atomic<uint64_t> hits = 0;
  {
    std::vector<std::jthread> threads;
    for (uint32_t seed = 10; seed < 18; ++seed) {
      threads.emplace_back([&, seed] { hits += expect_same(world, seed, texts(most)); });
    }
  }
  EXPECT_GT(hits, static_cast<uint64_t>(texts(least)));
}

TEST(PrefixHits, HaveThemOnEightThreads) {
  World world(200);
  expect_same_on_eight_threads(world, 1200, 3100);
}

// Blocks that keep a state, where hits end at snapshots, which come and go; and blocks that share
// the keys and values of others, with rows that have parts.
class PrefixHitsOf : public testing::TestWithParam<const char*> {
 protected:
  static std::unique_ptr<Device> cpu() { return make_device({"cpu", 1}); }
};

TEST_P(PrefixHitsOf, HaveTheBitsOfRowsThatWereComputed) {
  World world(12, cpu(), {}, GetParam());
  EXPECT_GT(expect_same(world, 1, texts(18000)), static_cast<uint64_t>(texts(5000)));
}

TEST_P(PrefixHitsOf, HaveThemOnEightThreads) {
  World world(60, cpu(), {}, GetParam());
  expect_same_on_eight_threads(world, 600, 1500);
}

TEST_P(PrefixHitsOf, HaveThemWhenTheDeviceIsLost) {
  testing::internal::CaptureStderr();
  uint64_t hits = 0;
  for (int at = 0; at < texts(600); ++at) {
    World world(20, std::make_unique<FailingDevice>(at + 3), {}, GetParam());
    hits += expect_same(world, 100 + static_cast<uint32_t>(at), 6);
  }
  testing::internal::GetCapturedStderr();
  EXPECT_GT(hits, 0u);
}

INSTANTIATE_TEST_SUITE_P(Models, PrefixHitsOf,
                         testing::Values("models/qwen35", "models/qwen35-text", "models/gemma4"));

// As the cloud's texts do: a result that is none is computed once more, without rows of others.
class Retrying : public LocalForward {
 public:
  explicit Retrying(Batcher& batcher) : LocalForward(batcher, {}, PrefixRoot{"a", ""}) {}
  std::vector<float> logits(const std::vector<int32_t>& prompt) {
    const SequenceRows rows{.tokens = prompt};
    const auto all = [](std::span<const float> logits) {
      return std::ranges::all_of(logits, [](float value) { return std::isfinite(value); });
    };
    std::span<const float> made = run(rows);
    if (!all(made) && forget_cached()) made = run(rows);
    return {made.begin(), made.end()};
  }
};

TEST(PrefixHits, OfRowsThatWentBadLeaveNone) {
  World world(64, std::make_unique<BadMemory>());
  auto& memory = dynamic_cast<BadMemory&>(*world.own);
  PrefixCache& cache = *world.batcher.prefixes();
  std::mt19937 random(3);
  const std::vector<int32_t> prompt = random_ids(random, 100);
  const std::vector<float> expected = [&] {
    LocalForward forward(world.plain);
    const auto logits = forward.run({.tokens = prompt});
    return std::vector<float>(logits.begin(), logits.end());
  }();
  const auto made = [&] { return Retrying(world.batcher).logits(prompt); };
  EXPECT_TRUE(same(made(), expected));
  EXPECT_TRUE(same(made(), expected));
  EXPECT_EQ(cache.taken_rows(), 96u);
  memory.spoil();
  EXPECT_TRUE(same(made(), expected));
  EXPECT_EQ(cache.pages(), 0u);
  EXPECT_TRUE(same(made(), expected));
  EXPECT_EQ(cache.taken_rows(), 192u);  // those that were bad, and none since
  cache.forget({"a", ""});
  // Its second step finds the rows of its first one spoilt: these are not kept for others either.
  memory.bad_steps = 2;
  EXPECT_TRUE(std::isnan(made()[0]));
  EXPECT_EQ(cache.pages(), 0u);
  EXPECT_TRUE(same(made(), expected));
}

TEST(PrefixHits, HaveThemWhenTheDeviceIsLost) {
  testing::internal::CaptureStderr();
  uint64_t hits = 0;
  for (int at = 0; at < texts(600); ++at) {
    World world(64, std::make_unique<FailingDevice>(at + 3));
    hits += expect_same(world, 100 + static_cast<uint32_t>(at), 6);
  }
  testing::internal::GetCapturedStderr();
  EXPECT_GT(hits, 0u);
}

// Rows that steps computed: of prompts, and of generated tokens.
struct Counted {
  std::atomic<uint64_t> prompt = 0, generated = 0;
  explicit Counted(Batcher& batcher) {
    batcher.on_step([this](const StepSeen& seen) {
      prompt += seen.prompt_rows;
      generated += seen.generated_rows;
    });
  }
};

TEST(PrefixHits, ThirtyTwoThatComeTogetherComputeOnePrompt) {
  constexpr size_t kUsers = 32, kSystem = 192, kOwn = 20;
  World world(400);
  const Counted counted(world.batcher);
  std::mt19937 random(3);
  const std::vector<int32_t> system = random_ids(random, kSystem);
  std::latch all(kUsers);
  std::vector<std::jthread> threads;
  for (size_t user = 0; user < kUsers; ++user) {
    std::vector<int32_t> prompt = system;
    const std::vector<int32_t> own = random_ids(random, kOwn);
    prompt.insert(prompt.end(), own.begin(), own.end());
    threads.emplace_back([&, prompt] {
      LocalForward taking(world.batcher, {"a", {}}, PrefixRoot{"a", ""});
      LocalForward computing(world.plain);
      all.arrive_and_wait();
      EXPECT_TRUE(same(rows_of(taking, prompt, 1), rows_of(computing, prompt, 1)));
    });
  }
  threads.clear();
  EXPECT_LE(counted.prompt, kSystem + kUsers * 2 * kPageTokens);
}

TEST(PrefixHits, AnotherKeysTextNeitherTakesNorWaits) {
  World world;
  const Counted counted(world.batcher);
  const std::vector<int32_t> prompt(200, 7);
  for (const char* owner : {"a", "b"}) {
    LocalForward forward(world.batcher, {owner, {}}, PrefixRoot{owner, ""});
    forward.run({.tokens = prompt});
    EXPECT_EQ(forward.cached(), 0u);
  }
  EXPECT_EQ(counted.prompt, 400u);
}

TEST(PrefixHits, AScoredPromptTakesNothing) {
  World world;
  const std::vector<int32_t> prompt(100, 7);
  for (int i = 0; i < 2; ++i) {
    LocalForward forward(world.batcher, {}, PrefixRoot{});
    forward.run({.tokens = prompt, .wanted = Wanted::kAll});
    EXPECT_EQ(forward.cached(), 0u);
  }
  LocalForward from_there(world.batcher, {}, PrefixRoot{});
  from_there.run({.tokens = prompt, .wanted = Wanted({70, 99})});
  EXPECT_EQ(from_there.cached(), 64u);
}

TEST(PrefixHits, AFullCacheHoldsUpNobody) {
  World world(kContext / kPageTokens);  // one whole text
  std::mt19937 random(5);
  for (int i = 0; i < 5; ++i) {
    LocalForward forward(world.batcher, {}, PrefixRoot{});
    const std::vector<int32_t> whole = random_ids(random, kContext);
    forward.run({.tokens = whole});
    EXPECT_LE(world.shard.pages().in_use() + world.shard.pages().spare(),
              world.shard.pages().total());
  }
  EXPECT_EQ(world.shard.pages().in_use(), 0u);
}

// A client that gives up a prompt and asks again goes on where it was.
TEST(PrefixHits, APromptThatWasGivenUpIsThereAsFarAsItCame) {
  World world;
  const std::vector<int32_t> prompt(250, 7);
  int asked = 0;
  {
    LocalForward forward(world.batcher, {"a", [&] { return ++asked > 4; }}, PrefixRoot{"a", ""});
    EXPECT_THROW(forward.run({.tokens = prompt}), RequesterGone);
  }
  LocalForward again(world.batcher, {"a", {}}, PrefixRoot{"a", ""});
  again.run({.tokens = prompt});
  EXPECT_GE(again.cached(), 64u);
}

}  // namespace
}  // namespace split::test
