// GGUF files of Qwen3.5 and Gemma 4, which tests write as llama.cpp's converter does: the numbers
// of transformers, or of a pass in double over what the file holds, at each cut with the bits of
// the whole.
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "cloud_server/state/blob_formats.h"
#include "models/residency.h"
#include "support/gguf/families.h"
#include "support/golden_model.h"
#include "support/states/qwen35_by_double.h"
#include "support/temporary_folder.h"
#include "tensor/blocks.h"

namespace split::test {
namespace {

// A file in a folder of its own, and its model.
struct Written {
  explicit Written(const GgufFile& file)
      : checkpoint((file.write(dir.path / "model.gguf"), dir.path / "model.gguf")),
        model(make_model(checkpoint.config_json())) {}
  Shard shard(Device& device, const StageRange& range = {}, Profile profile = Profile::kF32) const {
    ShardOptions options = options_for(*model, range);
    options.profile = profile;
    return {device, *model, weights_of(checkpoint, *model), options};
  }
  std::vector<float> logits(Device& device, std::span<const int32_t> ids) const {
    Shard whole = shard(device);
    Line line(whole);
    return line.run({.tokens = ids, .wanted = Wanted::kAll});
  }

  TemporaryFolder dir;
  Checkpoint checkpoint;
  std::unique_ptr<Model> model;
};

// Below the cut and above it: the bits of the whole, in pieces too.
void expect_cuts(const Written& written, Device& device, const std::vector<int32_t>& ids,
                 Profile profile = Profile::kF32) {
  Shard all = written.shard(device, {}, profile);
  Line whole(all);
  const auto want = whole.run({.tokens = ids, .wanted = Wanted::kAll});
  const size_t vocab = want.size() / ids.size();
  for (int cut = 0; cut <= written.model->config().layers; ++cut) {
    const StageRange below{.to = cut}, above{cut, Point::head()};
    Shard cloud = written.shard(device, below, profile),
          edge = written.shard(device, above, profile);
    Line lower(cloud), upper(edge);
    for (size_t at = 0, rows = 7; at < ids.size(); at += rows, rows = rows % 19 + 4) {
      const auto piece = std::span(ids).subspan(at, std::min(rows, ids.size() - at));
      const auto hidden = lower.run({.range = below, .tokens = piece, .wanted = Wanted::kAll});
      const auto width = static_cast<uint32_t>(cloud.width(cut));
      const auto got =
          upper.run({.range = above, .hidden = hidden, .width = width, .wanted = Wanted::kAll});
      ASSERT_TRUE(std::ranges::equal(got, std::span(want).subspan(at * vocab, got.size())))
          << "cut " << cut << " row " << at;
    }
  }
}

// --- Goldens, in floats

class GgufFamilies : public testing::TestWithParam<const char*> {
 protected:
  double bound(int prompt, const char* of) const {
    return 10 * notes["prompts"][static_cast<size_t>(prompt)]["float32_error"][of].get<double>();
  }
  const std::string name = GetParam();
  const GoldenValues golden{"models/" + name};
  const Json notes = golden_json(name, "golden.json");
  const Written written{file_of(name)};
  const std::unique_ptr<Device> device = make_device({"cpu", 2});
};

TEST_P(GgufFamilies, EveryPointIsTransformers) {
  Shard whole = written.shard(*device);
  expect_every_point(whole, golden, written.model->config(),
                     [&](int p) { return bound(p, "hidden"); });
}

TEST_P(GgufFamilies, LogitsAndGreedyTextAreTransformers) {
  Shard whole = written.shard(*device);
  size_t owed = 0;
  for (int p = 0; p < golden.prompts(); ++p) {
    const std::string prefix = cat("p", p, ".");
    Line line(whole);
    std::vector<float> logits = line.run({.tokens = golden.ids(p)});
    EXPECT_LE(largest_gap(logits, golden.values<float>(prefix + "logits_last")), bound(p, "logits"))
        << p;
    const auto greedy = golden.values<int32_t>(prefix + "greedy_ids");
    const auto margins = golden.values<float>(prefix + "greedy_margin");
    for (size_t i = 0; i < greedy.size() && margins[i] >= bound(p, "logits"); ++i, ++owed) {
      const auto next = static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
      ASSERT_EQ(next, greedy[i]) << "prompt " << p << " token " << i;
      logits = line.run({.tokens = std::span(&next, 1), .phase = Phase::kGenerate});
    }
  }
  EXPECT_GT(owed, 100u);
}

TEST_P(GgufFamilies, EachCutHasTheBitsOfTheWhole) {
  int prompt = 0;
  while (golden.ids(prompt).size() != 70) ++prompt;
  expect_cuts(written, *device, golden.ids(prompt));
}

// Settings and stops as the directory has them, but for what two spellings say in two ways.
TEST_P(GgufFamilies, HaveTheSettingsOfTheDirectory) {
  const auto directory = make_model(golden_json(name, "config.json").dump());
  const ModelConfig &got = written.model->config(), &want = directory->config();
  EXPECT_EQ(got.layers, want.layers);
  EXPECT_EQ(got.vocab, want.vocab);
  EXPECT_EQ(got.max_positions, want.max_positions);
  EXPECT_EQ(got.stops, want.stops);
  EXPECT_EQ(got.row_parts, want.row_parts);
  for (int layer = 0; layer < want.layers; ++layer) {
    EXPECT_EQ(written.model->kv_width(layer), directory->kv_width(layer)) << layer;
    EXPECT_EQ(written.model->window(layer), directory->window(layer)) << layer;
    StateShape state = directory->state(layer);
    state.tiled = state.keeps() && state.group() > 1;
    EXPECT_EQ(written.model->state(layer), state) << layer;
  }
  for (const Constant& constant : directory->constants()) {
    ASSERT_NE(written.model->constant(constant.name), nullptr) << constant.name;
    EXPECT_EQ(written.model->constant(constant.name)->values, constant.values) << constant.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GgufFamilies,
                         testing::Values("qwen35", "qwen35-text", "gemma4", "gemma4-dense"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

// --- Blocks of 256 columns, which goldens are too narrow for: random models

TypeOf all_in(GgmlType type) {
  return [type](const std::string&) { return type; };
}

std::vector<int32_t> random_ids(size_t count) {
  std::minstd_rand random(3);
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % 320);
  return ids;
}

// The numbers that a file holds, as a file of floats.
GgufFile in_floats(const GgufFile& file) {
  GgufFile floats = file;
  const TemporaryFolder dir;
  file.write(dir.path / "model.gguf");
  const MappedFile bytes(dir.path / "model.gguf");
  const Gguf parsed = Gguf::parse(bytes.bytes(), "model");
  for (const auto& [name, tensor] : parsed.tensors()) {
    std::vector<float> values(static_cast<size_t>(*element_count(tensor.dims)));
    gguf_floats(tensor, 0, values.size(), values.data());
    floats.tensor(name, tensor.dims, values);
  }
  return floats;
}

// A row after another, in double, with the heads of values in rounds as the file has them.
Rows tiled_mix(const Qwen35ByDouble::Linear& linear, const Rows& qkv, const Rows& a,
               const Rows& b) {
  const size_t dk = linear.key_dim, dv = linear.value_dim, keys = linear.key_heads * dk;
  std::vector<std::vector<double>> states(linear.value_heads, std::vector<double>(dk * dv));
  Rows out;
  for (size_t t = 0; t < qkv.size(); ++t) {
    std::vector<double> c(linear.width());
    for (size_t i = 0; i < c.size(); ++i) {
      for (size_t tap = 0; tap < linear.taps; ++tap) {
        const size_t back = linear.taps - 1 - tap;
        if (back <= t) c[i] += linear.conv[i * linear.taps + tap] * qkv[t - back][i];
      }
      c[i] *= Qwen35ByDouble::sigmoid(c[i]);
    }
    for (size_t i = 0; i < 2 * keys; i += dk) {
      double sum = 0;
      for (size_t d = 0; d < dk; ++d) sum += c[i + d] * c[i + d];
      const double scale = (i < keys ? 1 / std::sqrt(static_cast<double>(dk)) : 1);
      for (size_t d = 0; d < dk; ++d) c[i + d] *= scale / std::sqrt(sum + 1e-6);
    }
    std::vector<double>& row = out.emplace_back(linear.value_heads * dv);
    for (size_t h = 0; h < linear.value_heads; ++h) {
      std::vector<double>& s = states[h];
      const double* const q = &c[h % linear.key_heads * dk];
      const double *const k = q + keys, *const v = &c[2 * keys + h * dv];
      const double g = linear.decay[h] * std::log1p(std::exp(a[t][h] + linear.dt_bias[h]));
      for (double& x : s) x *= std::exp(g);
      for (size_t j = 0; j < dv; ++j) {
        double seen = 0;
        for (size_t d = 0; d < dk; ++d) seen += s[d * dv + j] * k[d];
        const double delta = Qwen35ByDouble::sigmoid(b[t][h]) * (v[j] - seen);
        for (size_t d = 0; d < dk; ++d) {
          s[d * dv + j] += k[d] * delta;
          row[h * dv + j] += s[d * dv + j] * q[d];
        }
      }
    }
  }
  return out;
}

// Logits of the last row by the file's own numbers, in its own order of heads.
std::vector<float> logits_by_double(const GgufFile& file, const std::vector<int32_t>& ids) {
  const TemporaryFolder dir;
  file.write(dir.path / "model.gguf");
  const MappedFile bytes(dir.path / "model.gguf");
  const Gguf parsed = Gguf::parse(bytes.bytes(), "model");
  const Qwen35ByDouble pass(parse_json(kWideQwen35, 16, "config"), [&](const std::string& asked) {
    const std::string name = asked.substr(6);  // "model."
    const GgufTensor& tensor = parsed.tensors().at(qwen35_gguf_name(name));
    std::vector<float> values(static_cast<size_t>(*element_count(tensor.dims)));
    gguf_floats(tensor, 0, values.size(), values.data());
    std::vector<double> wide(values.begin(), values.end());
    for (double& x : wide) {
      const bool plus_one =
          name.ends_with("norm.weight") && !name.ends_with("linear_attn.norm.weight");
      if (plus_one) x -= 1;
      if (name.ends_with("A_log")) x = std::log(-x);
    }
    return wide;
  });
  const Rows last =
      pass.run(ids, [](size_t, const Qwen35ByDouble::Linear& linear, const Rows& qkv, const Rows& a,
                       const Rows& b) { return tiled_mix(linear, qkv, a, b); })
          .back();
  const Rows normed = pass.normed({last.back()}, "model.norm.weight");
  const Rows logits = Qwen35ByDouble::product(normed, pass.weight("model.embed_tokens.weight"));
  return {logits[0].begin(), logits[0].end()};
}

double divergence_of(std::span<const float> want, std::span<const float> got) {
  const auto p = log_softmax(want), q = log_softmax(got);
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) sum += std::exp(p[i]) * (p[i] - q[i]);
  return sum;
}

struct InBlocks {
  const char* name;
  TypeOf type;
  double bound;  // limit of a logit's error: rows are rounded for products by blocks
};
class GgufQwen35 : public testing::TestWithParam<InBlocks> {
 protected:
  const GgufFile file = gguf_qwen35(parse_json(kWideQwen35, 16, "config"),
                                    random_tensors(kWideQwen35), GetParam().type);
  const std::unique_ptr<Device> device = make_device({"cpu", 2});
};

TEST_P(GgufQwen35, ComputesWhatTheFilesNumbersSay) {
  const auto ids = random_ids(75);
  const auto want = logits_by_double(file, ids);
  const auto last = [&](const Written& written) {
    Shard whole = written.shard(*device);
    Line line(whole);
    return line.run({.tokens = ids});
  };
  EXPECT_LE(largest_gap(last(Written(in_floats(file))), want), 2e-4);
  const auto got = last(Written(file));
  EXPECT_LE(largest_gap(got, want), GetParam().bound);
  EXPECT_LE(divergence_of(want, got), 1e-3);
}

TEST_P(GgufQwen35, EachCutHasTheBitsOfTheWhole) {
  const Written written(file);
  expect_cuts(written, *device, random_ids(70));
  expect_cuts(written, *device, random_ids(40), Profile::kInt8);
}

INSTANTIATE_TEST_SUITE_P(Types, GgufQwen35,
                         testing::Values(InBlocks{"F16", all_in(GgmlType::kF16), 2e-4},
                                         InBlocks{"BF16", all_in(GgmlType::kBF16), 2e-4},
                                         InBlocks{"Q8_0", all_in(GgmlType::kQ8_0), 0.05},
                                         InBlocks{"Q4_K_M", q4_k_m, 0.05}),
                         [](const auto& info) { return info.param.name; });

// --- Gemma 4 E in blocks, and its table

GgufFile gemma(const TypeOf& type) {
  return gguf_gemma4(parse_json(kWideGemma4, 16, "config"), random_tensors(kWideGemma4), type);
}
TypeOf with_table(GgmlType table, const TypeOf& others) {
  return [=](const std::string& name) {
    return name == "per_layer_token_embd.weight" ? table : others(name);
  };
}

TEST(GgufGemma4, ATableInBlocksGivesTheBitsOfItsNumbers) {
  const auto device = make_device({"cpu", 2});
  const auto ids = random_ids(40);
  for (const GgmlType type : {GgmlType::kF16, GgmlType::kBF16, GgmlType::kQ8_0, GgmlType::kQ4_K,
                              GgmlType::kQ5_K, GgmlType::kQ6_K}) {
    const GgufFile file = gemma(with_table(type, all_in(GgmlType::kF32)));
    const Written written(file);
    EXPECT_EQ(written.logits(*device, ids), Written(in_floats(file)).logits(*device, ids))
        << ggml_type_name(type);
    expect_cuts(written, *device, ids);
  }
}

TEST(GgufGemma4, ComputesWithBlocksAtEachCut) {
  const auto device = make_device({"cpu", 2});
  const auto ids = random_ids(40);
  const struct {
    TypeOf type;
    double bound;
  } cases[] = {{all_in(GgmlType::kF16), 2e-4},
               {all_in(GgmlType::kBF16), 2e-4},
               {all_in(GgmlType::kQ8_0), 0.05},
               {with_table(GgmlType::kQ5_K, q4_k_m), 0.05}};
  for (const auto& [type, bound] : cases) {
    const GgufFile file = gemma(type);
    const Written written(file);
    const auto got = written.logits(*device, ids),
               want = Written(in_floats(file)).logits(*device, ids);
    EXPECT_LE(largest_gap(got, want), bound);
    expect_cuts(written, *device, ids);
    expect_cuts(written, *device, ids, Profile::kInt8);
  }
}

// Rows of the table are read from its file: none of its pages comes into memory.
TEST(GgufGemma4, NoneOfTheTableBecomesMemory) {
  const std::string name = "embed_tokens_per_layer.weight";
  const auto device = make_device({"cpu", 2});
  for (const GgmlType type :
       {GgmlType::kF32, GgmlType::kBF16, GgmlType::kQ8_0, GgmlType::kQ4_K, GgmlType::kQ5_K}) {
    const Written written(gemma(with_table(type, all_in(GgmlType::kF16))));
    const TensorView table = stored_weight(written.checkpoint, written.model->weight(name));
    const MappedFile apart = MappedFile::in_memory(std::array{table.bytes});
    const WeightSource stored = weights_of(written.checkpoint, *written.model);
    const WeightSource weights([&](const std::string& asked) -> TensorView {
      return asked == name ? TensorView{table.dtype, table.dims, apart.bytes()}
                           : stored.view(asked);
    });
    Shard shard(*device, *written.model, weights, options_for(*written.model));
    Line line(shard);
    const auto ids = random_ids(60);
    line.run({.tokens = ids});
    for (size_t at = 0; at < apart.bytes().size(); at += 4096) {
      EXPECT_FALSE(is_resident(apart.bytes().data() + at)) << ggml_type_name(type) << " " << at;
    }
    EXPECT_NE(apart.bytes()[140], std::byte{1});  // reads a page of it
    EXPECT_TRUE(is_resident(apart.bytes().data() + 140));
  }
}

// --- What a file may hold beside the model

TEST(GgufQwen35Blocks, ThatDraftAreLeftOut) {
  GgufFile file = file_of("qwen35-text");
  const Written plain(file);
  file.integer("qwen35.block_count", 6);
  file.integer("qwen35.nextn_predict_layers", 1);
  file.flags("qwen35.attention.recurrent_layers", {true, false, true, true, false, false});
  file.tensor("blk.5.nextn.eh_proj.weight", {44, 88}, std::vector<float>(44 * 88));
  file.tensor("blk.5.attn_norm.weight", {44}, std::vector<float>(44));
  const Written written(file);
  EXPECT_EQ(written.checkpoint.names(), plain.checkpoint.names());
  EXPECT_EQ(written.checkpoint.config_json(), plain.checkpoint.config_json());
}

TEST(GgufQwen35Blocks, AreFullOnesInAnIntervalWithoutAList) {
  const GgufFile listed = file_of("qwen35");
  GgufFile file = listed;
  file.forget("qwen35.attention.recurrent_layers");
  EXPECT_EQ(Written(file).checkpoint.config_json(), Written(listed).checkpoint.config_json());
  file.integer("qwen35.full_attention_interval", 4);
  EXPECT_EQ(Written(file).checkpoint.config_json(), Written(listed).checkpoint.config_json());
}

}  // namespace
}  // namespace split::test
