// The Llama family against what transformers computes (tests/golden/models): every point, every
// logit, every greedy token, and each cut with the bits of the whole.
#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "device/drawn.h"
#include "models/rope.h"
#include "support/golden_model.h"

namespace split::test {
namespace {

const std::string kModels[] = {"llama3",   "llama2",  "qwen2",  "qwen3",
                               "st-qwen3", "mistral", "gemma2", "gemma3"};

// --- Rotary positions

int64_t ulps(float a, float b) {
  return std::abs(int64_t{std::bit_cast<int32_t>(a)} - int64_t{std::bit_cast<int32_t>(b)});
}

TEST(Rope, TablesAreTransformers) {
  std::ifstream in(source("tests/golden/models/rope.json"));
  const nlohmann::json all = nlohmann::json::parse(in);
  ASSERT_GT(all.size(), 5u);
  for (const auto& one : all) {
    const std::string name = one["name"];
    const Json config = parse_json(one["config"].dump(), 16, "rope.json");
    const int positions = one["config"]["max_position_embeddings"], dim = one["head_dim"];
    const RopeConfig rope = read_rope(ConfigReader(config), "full_attention", positions, 10000);
    const std::vector<float> frequencies = inverse_frequencies(rope, dim);
    ASSERT_EQ(frequencies.size(), one["inv_freq"].size()) << name;
    for (size_t i = 0; i < frequencies.size(); ++i) {
      EXPECT_LE(ulps(frequencies[i], one["inv_freq"][i]), 2) << name << " " << i;
    }
    EXPECT_NEAR(rope.attention_factor, one["attention_factor"].get<double>(), 1e-12) << name;
    const RopeTables tables = rope_tables(rope, dim, positions);
    for (size_t row = 0; row < one["positions"].size(); ++row) {
      const auto position = one["positions"][row].get<size_t>();
      for (size_t i = 0; i < frequencies.size(); ++i) {
        const size_t at = position * frequencies.size() + i;
        const double bound = 1e-6 + static_cast<double>(position) * double{frequencies[i]} * 2.4e-7;
        EXPECT_NEAR(tables.cos[at], one["cos"][row][i].get<double>(), bound) << name << position;
        EXPECT_NEAR(tables.sin[at], one["sin"][row][i].get<double>(), bound) << name << position;
      }
    }
  }
}

// Both spellings say the same, kinds of layers have their own, and what is there counts (T10).
TEST(Rope, IsReadInBothSpellings) {
  const auto read = [](const char* text, const char* kind = "full_attention") {
    const Json json = parse_json(text, 8, "test");
    return read_rope(ConfigReader(json), kind, 4096, 10000);
  };
  const RopeConfig older = read(R"({"rope_theta": 5e5, "rope_scaling": {"type": "linear",
      "factor": 4}})");
  EXPECT_EQ(older, read(R"({"rope_parameters": {"rope_theta": 5e5, "rope_type": "linear",
      "factor": 4}})"));
  EXPECT_EQ(older, read(R"({"rope_theta": 5e5, "rope_parameters": {"rope_type": "linear",
      "factor": 4}})"));
  EXPECT_EQ(older.theta, 5e5);
  EXPECT_EQ(older.factor, 4);
  const char* kinds = R"({"rope_parameters": {"full_attention": {"rope_theta": 3.0},
      "sliding_attention": {"rope_theta": 7.0}}})";
  EXPECT_EQ(read(kinds).theta, 3);
  EXPECT_EQ(read(kinds, "sliding_attention").theta, 7);
  const auto refusal = [&](const char* text) {
    try {
      read(text);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  for (const char* type : {"longrope", "dynamic", "su"}) {
    const std::string text = cat(R"({"rope_scaling": {"rope_type": ")", type, R"("}})");
    EXPECT_EQ(refusal(text.c_str()),
              cat("[config.json] rope_scaling.rope_type: expected default, linear, llama3 or yarn, "
                  "got '",
                  type, "'"));
  }
  EXPECT_EQ(refusal(R"({"rope_scaling": {"rope_type": "llama3", "factor": 8}})"),
            "[config.json] original_max_position_embeddings: expected a number in 1..1e+12, got "
            "none");
}

// --- Goldens

class Family : public testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  void SetUp() override {
    const auto& [kind, model] = GetParam();
    try {
      device_ = make_device({kind == "vulkan" ? "vulkan:0" : kind, 2});
    } catch (const Error& error) {
      // Every machine has a CPU; one of its kernel sets, or Vulkan, may be missing.
      if (kind == "cpu" && std::getenv("SPLIT_CPU_ISA") == nullptr) throw;
      GTEST_SKIP() << error.what();
    }
    golden_ = std::make_unique<Golden>("models/" + model);
  }
  int layers() const { return golden_->model->config().layers; }
  size_t channels() const { return static_cast<size_t>(golden_->model->config().channels); }
  Shard shard(const StageRange& range = {}) const {
    return {*device_, *golden_->model, golden_->weights(), options_for(*golden_->model, range)};
  }
  std::vector<int> prompts() const {
    std::vector<int> all;
    for (int p = 0; p < golden_->prompts(); ++p) {
      if (!golden_->ids(p).empty()) all.push_back(p);
    }
    return all;
  }
  std::unique_ptr<Device> device_;
  std::unique_ptr<Golden> golden_;
};

double most_apart(std::span<const float> got, std::span<const float> want) {
  double most = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double apart = std::abs(double{got[i]} - double{want[i]});
    most = std::isfinite(apart) ? std::max(most, apart) : HUGE_VAL;
  }
  return most;
}

int32_t argmax(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

TEST_P(Family, EveryPointIsTransformers) {
  Shard whole = shard();
  for (const int p : prompts()) {
    const auto ids = golden_->ids(p);
    const bool all = golden_->has(cat("p", p, ".hidden_all"));
    const auto states = golden_->values<float>(cat("p", p, all ? ".hidden_all" : ".hidden_last"));
    const size_t rows = all ? ids.size() : 1;
    for (int point = 0; point <= layers(); ++point) {
      Line line(whole);
      const auto got =
          line.run({.range = {.to = Point(point)}, .tokens = ids, .wanted = Wanted::kAll});
      const size_t count = rows * channels();
      const std::span last = std::span(got).last(count);
      const std::span want = std::span(states).subspan(static_cast<size_t>(point) * count, count);
      EXPECT_LE(most_apart(last, want), 2e-4) << "prompt " << p << " point " << point;
      for (size_t row = 0; row < rows; ++row) {
        EXPECT_LE(relative(last.subspan(row * channels(), channels()),
                           want.subspan(row * channels(), channels())),
                  2e-4)
            << "prompt " << p << " point " << point << " row " << row;
      }
    }
    if (!golden_->has(cat("p", p, ".normed_last"))) continue;
    Line line(whole);
    const auto normed = line.run({.range = {.to = Point::norm()}, .tokens = ids});
    EXPECT_LE(most_apart(normed, golden_->values<float>(cat("p", p, ".normed_last"))), 2e-4);
  }
}

TEST_P(Family, LogitsAndGreedyTextAreTransformers) {
  Shard whole = shard();
  for (const int p : prompts()) {
    if (!golden_->has(cat("p", p, ".logits_last"))) continue;
    Line line(whole);
    std::vector<float> logits = line.run({.tokens = golden_->ids(p)});
    EXPECT_LE(most_apart(logits, golden_->values<float>(cat("p", p, ".logits_last"))), 1e-4) << p;
    const auto greedy = golden_->values<int32_t>(cat("p", p, ".greedy_ids"));
    for (size_t i = 0; i < greedy.size(); ++i) {
      const int32_t next = argmax(logits);
      ASSERT_EQ(next, greedy[i]) << "prompt " << p << " token " << i;
      if (i + 1 < greedy.size()) {
        logits = line.run({.tokens = std::span(&next, 1), .phase = Phase::kGenerate});
      }
    }
  }
}

// Below the cut, above it, and the head on either side: the bits of the whole.
TEST_P(Family, EachCutAndHeadHasTheBitsOfTheWhole) {
  const auto ids = golden_->ids(1);
  const std::span first = std::span(ids).first(ids.size() - 3), rest = std::span(ids).last(3);
  Shard all = shard();
  Line whole(all);
  std::vector<std::vector<float>> want = {whole.run({.tokens = first})};
  for (const int32_t& token : rest) want.push_back(whole.run({.tokens = std::span(&token, 1)}));
  const auto width = static_cast<uint32_t>(channels());
  Drawn cuts(*device_, 3);
  for (int cut = 0; cut <= layers(); ++cut) {
    if (!cuts.next()) continue;
    const StageRange below{.to = cut}, above{cut, layers()}, end{layers(), Point::head()};
    Shard cloud = shard(below), edge = shard({cut, Point::head()}), head = shard(end);
    Line lower(cloud), upper(edge), upper_to_end(edge), top(head);
    const auto check = [&](std::span<const int32_t> tokens, size_t step) {
      const auto hidden = lower.run({.range = below, .tokens = tokens, .wanted = Wanted::kAll});
      EXPECT_EQ(upper.run({.range = {cut, Point::head()}, .hidden = hidden, .width = width}),
                want[step])
          << "cut " << cut << " step " << step;
      if (cut == layers()) return;
      const auto last = upper_to_end.run({.range = above, .hidden = hidden, .width = width});
      EXPECT_EQ(top.run({.range = end, .hidden = last, .width = width}), want[step])
          << "cut " << cut << " step " << step << ", the head elsewhere";
    };
    check(first, 0);
    for (size_t i = 0; i < rest.size(); ++i) check(rest.subspan(i, 1), i + 1);
  }
}

// A window of W keys is (p - W, p], the row itself among them (T13).
TEST(Windows, CountTheRowItself) {
  const Golden golden("models/mistral");
  const auto device = make_device({"cpu", 1});
  const auto last_row = [&](int window, const std::vector<int32_t>& tokens) {
    Json config = parse_json(golden.checkpoint.config_json(), 16, "config");
    config["sliding_window"] = window;
    const auto model = make_model(config.dump());
    Shard shard(*device, *model, weights_of(golden.checkpoint, *model),
                options_for(*model, {Point::tokens(), 1}));
    Line line(shard);
    return line.run({.range = {.to = 1}, .tokens = tokens});
  };
  for (int window = 1; window <= 3; ++window) {
    std::vector<int32_t> tokens = {5, 6, 7, 8, 9};
    const auto before = last_row(window, tokens);
    tokens[tokens.size() - static_cast<size_t>(window) - 1] = 20;
    EXPECT_EQ(last_row(window, tokens), before) << window << ": one that it does not see";
    tokens[tokens.size() - static_cast<size_t>(window)] = 21;
    EXPECT_NE(last_row(window, tokens), before) << window << ": the first that it sees";
  }
}

INSTANTIATE_TEST_SUITE_P(Registered, Family,
                         testing::Combine(testing::Values("cpu", "vulkan"),
                                          testing::ValuesIn(kModels)),
                         [](const auto& info) {
                           std::string name =
                               cat(std::get<0>(info.param), "_", std::get<1>(info.param));
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace split::test
