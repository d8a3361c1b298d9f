// Gemma 4: its config.json in both forms, and each setting that is refused by its name; and what
// transformers computes, at every point, at each cut with the bits of the whole.
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "models/gemma4_config.h"
#include "models/residency.h"
#include "support/forwarding_device.h"
#include "support/golden_model.h"

namespace split::test {
namespace {

Gemma4Config read_gemma(const Json& config) { return read_gemma4_config(config.dump(), {}); }

template <typename Value>
std::vector<Value> of_blocks(const Gemma4Config& config, Value Gemma4Block::*member) {
  std::vector<Value> all;
  for (const Gemma4Block& block : config.blocks) all.push_back(block.*member);
  return all;
}

TEST(Gemma4Config, ReadsSettingsInsideTextConfig) {
  const Gemma4Config config = read_gemma(golden_json("gemma4", "config.json"));
  EXPECT_EQ(config.model_type, "gemma4");
  EXPECT_EQ(config.layers, 7);
  EXPECT_EQ(config.channels, 42);
  EXPECT_EQ(config.per_layer, 10);
  EXPECT_EQ(of_blocks(config, &Gemma4Block::source), (std::vector{0, 1, 2, 3, 3, 3, 2}));
  EXPECT_EQ(of_blocks(config, &Gemma4Block::inner), (std::vector{44, 44, 44, 44, 88, 88, 88}));
  EXPECT_EQ(of_blocks(config, &Gemma4Block::head_dim), (std::vector{12, 12, 24, 12, 12, 12, 24}));
  EXPECT_EQ(of_blocks(config, &Gemma4Block::window), (std::vector{9, 9, 0, 9, 9, 9, 0}));
  EXPECT_EQ(of_blocks(config, &Gemma4Block::values), std::vector<bool>(7, true));
  EXPECT_EQ(config.rope.type, RopeConfig::Type::kProportional);
  EXPECT_EQ(config.rope.part, 0.25);
  EXPECT_EQ(config.window_rope.theta, 10000);
  EXPECT_EQ(config.logit_cap, 6);
  EXPECT_TRUE(config.tied_head);
  EXPECT_EQ(config.stops, std::vector<int>{1});
}

TEST(Gemma4Config, ReadsFlatSettings) {
  const Gemma4Config config = read_gemma(golden_json("gemma4-dense", "config.json"));
  EXPECT_EQ(config.model_type, "gemma4_text");
  EXPECT_EQ(config.per_layer, 0);
  EXPECT_EQ(of_blocks(config, &Gemma4Block::source), (std::vector{0, 1, 2, 3}));
  EXPECT_EQ(of_blocks(config, &Gemma4Block::kv_heads), (std::vector{2, 1, 2, 1}));
  EXPECT_EQ(of_blocks(config, &Gemma4Block::values), (std::vector<bool>{true, false, true, false}));
}

TEST(Gemma4Config, TakesTransformersDefaults) {
  Json config = golden_json("gemma4-dense", "config.json");
  for (const char* key : {"layer_types", "rope_parameters", "global_head_dim", "sliding_window"}) {
    config[key] = Json();
  }
  config["num_hidden_layers"] = 8;
  const Gemma4Config got = read_gemma(config);
  EXPECT_EQ(of_blocks(got, &Gemma4Block::full),
            (std::vector<bool>{false, false, false, false, false, true, false, true}));
  EXPECT_EQ(got.blocks[5].head_dim, 512);
  EXPECT_EQ(got.blocks[0].window, 512);
  EXPECT_EQ(got.rope.theta, 1e6);
  EXPECT_EQ(got.rope.part, 0.25);
}

TEST(Gemma4Config, TurnsTheLeadingPairsByExponentsOverTheWholeHead) {
  const RopeConfig rope{.type = RopeConfig::Type::kProportional, .theta = 1e4, .part = 0.5};
  const auto got = inverse_frequencies(rope, 8);
  ASSERT_EQ(got.size(), 4u);
  EXPECT_EQ(got[0], 1);
  EXPECT_FLOAT_EQ(got[1], 0.1f);
  EXPECT_EQ(got[2], 0);
  EXPECT_EQ(got[3], 0);
}

TEST(Gemma4Config, RefusesEachUnsupportedSettingByItsName) {
  const auto message = [](const char* key, const Json& value) -> std::string {
    Json config = golden_json("gemma4", "config.json");
    (key == std::string("text_config") ? config : config["text_config"])[key] = value;
    try {
      read_gemma(config);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      return error.what();
    }
    return "nothing was thrown";
  };
  const struct {
    const char* key;
    Json value;
    const char* expected;
  } cases[] = {
      {"layer_types", parse_json(R"(["full_attention"])", 4, ""),
       "[config.json] layer_types: expected a list of 7, got one of 1"},
      {"layer_types", Json(3), "[config.json] layer_types: expected a list of 7, got 3"},
      {"layer_types",
       parse_json(R"(["full_attention", "linear_attention", "full_attention", "full_attention",
                      "full_attention", "full_attention", "full_attention"])",
                  4, ""),
       "[config.json] layer_types: expected \"full_attention\" or \"sliding_attention\", got "
       "\"linear_attention\""},
      {"num_kv_shared_layers", Json(5),
       "[config.json] num_kv_shared_layers: expected a block of full_attention among the first 2, "
       "whose keys and values block 2 shares, got none"},
      {"num_kv_shared_layers", Json(7),
       "[config.json] num_kv_shared_layers: expected a block of sliding_attention among the first "
       "0, whose keys and values block 0 shares, got none"},
      {"num_kv_shared_layers", Json(8),
       "[config.json] num_kv_shared_layers: expected a whole number in 0..7, got 8"},
      {"enable_moe_block", Json(true),
       "[config.json] enable_moe_block: expected false: blocks have no experts here"},
      {"vocab_size_per_layer_input", Json(814),
       "[config.json] vocab_size_per_layer_input: expected vocab_size 815, got 814"},
      {"attention_bias", Json(true),
       "[config.json] attention_bias: expected false: products have no bias"},
      {"use_bidirectional_attention", Json("all"),
       "[config.json] use_bidirectional_attention: expected null: rows see those before them"},
      {"num_key_value_heads", Json(3),
       "[config.json] num_key_value_heads: expected a divisor of num_attention_heads 4, got 3"},
      {"head_dim", Json(13), "[config.json] head_dim: expected pairs of channels, got 13"},
      {"global_head_dim", Json(15),
       "[config.json] global_head_dim: expected pairs of channels, got 15"},
      {"hidden_size_per_layer_input", Json(1 << 19),
       "[config.json] hidden_size_per_layer_input: expected at most 1048576 channels of all "
       "blocks, got 3670016"},
      {"per_layer_config", parse_json("{}", 4, ""),
       "[config.json] per_layer_config: expected none: full blocks' heads by global_head_dim"},
      {"hidden_activation", Json("tanh"),
       "[config.json] hidden_activation: expected gelu_new, gelu, relu or silu, got 'tanh'"},
      {"text_config", Json(3), "[config.json] text_config: expected an object, got 3"},
  };
  for (const auto& c : cases) EXPECT_EQ(message(c.key, c.value), c.expected);
}

// --- Goldens

class Gemma4 : public testing::TestWithParam<std::tuple<const char*, const char*>> {
 protected:
  void SetUp() override {
    try {
      device = make_device({std::get<1>(GetParam()), 2});
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kDevice) throw;
      GTEST_SKIP() << error.what();
    }
  }
  Shard shard(const StageRange& range = {}) const {
    return {*device, *golden.model, golden.weights(), options_for(*golden.model, range)};
  }
  // Not the CPU in its place.
  void TearDown() override {
    if (device != nullptr) {
      EXPECT_EQ(shard().device().name(), device->name());
    }
  }
  double bound(int prompt, const char* of) const {
    return 10 * notes["prompts"][static_cast<size_t>(prompt)]["float32_error"][of].get<double>();
  }
  std::vector<int32_t> ids_of(size_t count) const {
    int prompt = 0;
    while (golden.ids(prompt).size() != count) ++prompt;
    return golden.ids(prompt);
  }

  const std::string name = std::get<0>(GetParam());
  const Golden golden{cat("models/", name)};
  const Json notes = golden_json(name, "golden.json");
  std::unique_ptr<Device> device;
  const int layers = golden.model->config().layers;
  const uint32_t channels = static_cast<uint32_t>(golden.model->config().channels);
};

TEST_P(Gemma4, EveryPointIsTransformers) {
  Shard whole = shard();
  expect_every_point(whole, golden, golden.model->config(),
                     [&](int p) { return bound(p, "hidden"); });
  for (int p = 0; p < golden.prompts(); ++p) {
    Line line(whole);
    const auto normed = line.run({.range = {.to = Point::norm()}, .tokens = golden.ids(p)});
    EXPECT_LE(largest_gap(normed, golden.values<float>(cat("p", p, ".normed_last"))),
              bound(p, "normed"))
        << p;
  }
}

TEST_P(Gemma4, LogitsAndGreedyTextAreTransformers) {
  Shard whole = shard();
  size_t owed = 0;
  for (int p = 0; p < golden.prompts(); ++p) {
    const std::string prefix = cat("p", p, ".");
    Line line(whole);
    std::vector<float> logits = line.run({.tokens = golden.ids(p)});
    EXPECT_LE(largest_gap(logits, golden.values<float>(prefix + "logits_last")), bound(p, "logits"))
        << p;
    const auto greedy = golden.values<int32_t>(prefix + "greedy_ids");
    for (size_t i = 0; i < greedy.size(); ++i, ++owed) {
      const auto next = static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
      ASSERT_EQ(next, greedy[i]) << "prompt " << p << " token " << i;
      logits = line.run({.tokens = std::span(&next, 1), .phase = Phase::kGenerate});
    }
  }
  EXPECT_EQ(owed, 48u * static_cast<size_t>(golden.prompts()));
}

// Below the cut, above it, and the head on either side: the bits of the whole, in pieces too.
TEST_P(Gemma4, EachCutHasTheBitsOfTheWhole) {
  const auto ids = ids_of(70);
  Shard all = shard();
  Line whole(all);
  const auto want = whole.run({.tokens = ids, .wanted = Wanted::kAll});
  const size_t vocab = want.size() / ids.size();
  for (int cut = 0; cut <= layers; ++cut) {
    const StageRange below{.to = cut}, above{cut, Point::head()};
    Shard cloud = shard(below), edge = shard(above);
    Line lower(cloud), upper(edge);
    size_t at = 0;
    for (const size_t rows : {7, 16, 1, 1, 30, 2, 13}) {
      const std::span<const int32_t> piece = std::span(ids).subspan(at, rows);
      const auto hidden = lower.run({.range = below, .tokens = piece, .wanted = Wanted::kAll});
      const auto width = static_cast<uint32_t>(cloud.width(cut));
      ASSERT_EQ(hidden.size(), rows * width);
      const auto got =
          upper.run({.range = above, .hidden = hidden, .width = width, .wanted = Wanted::kAll});
      ASSERT_TRUE(std::ranges::equal(got, std::span(want).subspan(at * vocab, rows * vocab)))
          << "cut " << cut << " row " << at;
      at += rows;
    }
    EXPECT_EQ(at, ids.size());
  }
}

// Rows in one piece that go on from point to point, in one shard, with others beside them that end
// earlier.
TEST_P(Gemma4, RowsGoOnFromAnyPoint) {
  const auto ids = ids_of(37);
  Shard all = shard();
  Line whole(all);
  const auto want = whole.run({.tokens = ids, .wanted = Wanted::kAll});
  Line line(all);
  std::vector<float> rows = line.run({.range = {.to = 0}, .tokens = ids, .wanted = Wanted::kAll});
  for (int point = 0; point <= layers; ++point) {
    SequenceRows next{.range = {point, point < layers ? Point(point + 1) : Point::head()},
                      .hidden = rows,
                      .width = static_cast<uint32_t>(all.width(point)),
                      .wanted = Wanted::kAll};
    std::vector<float> out(ids.size() * all.width(next.range.to));
    Job job{line.id, next, out.data()};
    line.batcher.run(job);
    rows = std::move(out);
  }
  EXPECT_EQ(rows, want);
}

// Blocks that share pages come before their source, which a growing shard brings up later.
TEST_P(Gemma4, GrowsDownToItsTokens) {
  const auto ids = ids_of(37);
  Shard all = shard();
  Line whole(all);
  const auto want = whole.run({.tokens = ids, .wanted = Wanted::kAll});
  ShardOptions options = options_for(*golden.model);
  options.floor = Point(layers);
  Shard grown(*device, *golden.model, golden.weights(), options);
  for (int floor = layers; floor >= 0; --floor) {
    grown.grow(floor);
    Line below(all), above(grown);
    const auto rows = below.run({.range = {.to = floor}, .tokens = ids, .wanted = Wanted::kAll});
    EXPECT_EQ(above.run({.range = {floor, Point::head()},
                         .hidden = rows,
                         .width = static_cast<uint32_t>(all.width(floor)),
                         .wanted = Wanted::kAll}),
              want)
        << floor;
  }
  grown.grow(Point::tokens());
  Line line(grown);
  EXPECT_EQ(line.run({.tokens = ids, .wanted = Wanted::kAll}), want);
}

// A row has the inputs of the blocks from its point on, and what these read of blocks before.
TEST(Gemma4Parts, AreWhatBlocksBehindAPointRead) {
  const auto model = make_model(golden_json("gemma4", "config.json").dump());
  std::vector<int64_t> widths;
  for (int point = 0; point <= 7; ++point) widths.push_back(model->config().row_width(point));
  const int64_t full = 2 * 24, window = 2 * 12;  // a key and a value
  EXPECT_EQ(widths, (std::vector<int64_t>{42 + 70, 42 + 60, 42 + 50, 42 + 40 + full,
                                          42 + 30 + full + window, 42 + 20 + full + window,
                                          42 + 10 + full, 42}));
  const auto dense = make_model(golden_json("gemma4-dense", "config.json").dump());
  EXPECT_TRUE(dense->config().row_parts.empty());
}

TEST(Gemma4Stages, SayWhatTheyDoWithEarlierRows) {
  const auto model = make_model(golden_json("gemma4", "config.json").dump());
  EXPECT_EQ(model->stage("block.0").kind(), "attention, window 9");
  EXPECT_EQ(model->stage("block.2").kind(), "attention");
  EXPECT_EQ(model->stage("block.4").kind(), "attention, window 9, keys of block 3");
  EXPECT_EQ(model->stage("block.6").kind(), "attention, keys of block 2");
}

// Blocks that share keys and values add none.
TEST(Gemma4Pages, AreThoseOfTheSources) {
  const auto bytes = [](const StageRange& range) {
    const auto model = make_model(golden_json("gemma4", "config.json").dump());
    return kv_bytes_for(*model, range, Profile::kF32, 1);
  };
  const auto floats = [](uint64_t columns) { return 2 * 23 * kPageTokens * columns * 4; };
  EXPECT_EQ(bytes({}), floats(12 + 12 + 24 + 12));
  EXPECT_EQ(bytes({.to = 4}), bytes({}));
  EXPECT_EQ(bytes({4, Point::head()}), floats(12 + 24));  // the rows of both sources come along
}

TEST_P(Gemma4, EachProfileHasTheBitsOfTheWholeAtACut) {
  const auto ids = ids_of(37);
  for (const Profile profile : {Profile::kF16, Profile::kBF16, Profile::kQ8_0, Profile::kInt8}) {
    const auto shard = [&](const StageRange& range) {
      ShardOptions options = options_for(*golden.model, range);
      options.profile = profile;
      options.formats = profile_formats(profile);
      return std::make_unique<Shard>(*device, *golden.model, golden.weights(), options);
    };
    const auto all = shard({});
    Line whole(*all);
    const auto want = whole.run({.tokens = ids, .wanted = Wanted::kAll});
    EXPECT_TRUE(std::ranges::all_of(want, [](float x) { return std::isfinite(x); }));
    for (const int cut : {1, layers - 2}) {
      const StageRange below{.to = cut}, above{cut, Point::head()};
      const auto cloud = shard(below), edge = shard(above);
      Line lower(*cloud), upper(*edge);
      const auto rows = lower.run({.range = below, .tokens = ids, .wanted = Wanted::kAll});
      EXPECT_EQ(upper.run({.range = above,
                           .hidden = rows,
                           .width = static_cast<uint32_t>(cloud->width(cut)),
                           .wanted = Wanted::kAll}),
                want)
          << profile_name(profile) << " " << cut;
    }
  }
}

// Rows of the table are read from its file: none of its pages comes into memory.
TEST(Gemma4Table, NoneOfItBecomesMemory) {
  const Golden golden("models/gemma4");
  const std::string name = "embed_tokens_per_layer.weight";
  const TensorView table = stored_weight(golden.checkpoint, golden.model->weight(name));
  const MappedFile apart = MappedFile::in_memory(std::array{table.bytes});
  const auto device = make_device({"cpu", 2});
  const WeightSource stored = golden.weights();
  const WeightSource weights([&](const std::string& asked) -> TensorView {
    return asked == name ? TensorView{table.dtype, table.dims, apart.bytes()} : stored.view(asked);
  });
  Shard shard(*device, *golden.model, weights, options_for(*golden.model));
  Line line(shard);
  const auto ids = golden.ids(3);
  const auto logits = line.run({.tokens = ids});
  EXPECT_LE(largest_gap(logits, golden.values<float>("p3.logits_last")), 1e-4);
  for (const size_t row : {size_t{0}, static_cast<size_t>(ids[0]), static_cast<size_t>(ids[150])}) {
    EXPECT_FALSE(is_resident(apart.bytes().data() + row * 140)) << row;
  }
  EXPECT_NE(apart.bytes()[140], std::byte{1});  // reads a page of it
  EXPECT_TRUE(is_resident(apart.bytes().data() + 140));
}

// A GPU without kernels for it says which, and the CPU takes its place.
// A device that lacks a kernel, and may be lost as a GPU may.
struct Lacking : ForwardingDevice {
  using ForwardingDevice::ForwardingDevice;
  bool can_be_lost() const override { return true; }
  bool supports(const Program& /*program*/, const Step& step) const override {
    return step.op != Op::k_norm_rotate;
  }
};

TEST_P(Gemma4, TheCpuTakesThePlaceOfADeviceThatLacksAKernel) {
  Lacking lacking(make_device({std::get<1>(GetParam()), 1}));
  Shard shard(lacking, *golden.model, golden.weights(), options_for(*golden.model));
  EXPECT_TRUE(shard.device().name().starts_with("cpu")) << shard.device().name();
  const Stage& block = golden.model->stage("block.2");
  const Program program =
      compile(block.name, {block.trace({[](const std::string&) { return DType::kF32; }})},
              lacking.fuse_rules());
  try {
    check_supported(lacking, program);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kDevice);
    EXPECT_EQ(error.what(),
              cat("[device] ", lacking.name(), ": program 'block.2': no kernel for norm_rotate"));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Gemma4,
                         testing::Combine(testing::Values("gemma4", "gemma4-dense"),
                                          testing::Values("cpu", "vulkan")));

}  // namespace
}  // namespace split::test
