// Wrong files of Qwen3.5 and Gemma 4, as directories and as GGUF: each is refused in one line,
// before any of its matrices is read.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "cloud_server/state/blob_formats.h"
#include "io/write_safetensors.h"
#include "models/residency.h"
#include "support/gguf/families.h"
#include "support/temporary_folder.h"

namespace split::test {
namespace {

// Returns the cloud's words about a file, in which FILE stands for its path.
std::string refusal(const std::string& path) {
  std::string got = "nothing was thrown";
  try {
    cloud::model_of(Checkpoint(path));
  } catch (const Error& error) {
    got = error.what();
  }
  if (const size_t at = got.find(path); at != got.npos) got.replace(at, path.size(), "FILE");
  return got;
}

// A copy of a golden's directory in which one tensor has this shape, and ends with this number.
struct Changed {
  Changed(const std::string& golden, const std::string& tensor, const Dims& dims, float last) {
    const std::string from = model_dir("models/" + golden);
    const MappedFile file(from + "/model.safetensors");
    std::vector<float> values(static_cast<size_t>(*element_count(dims)), -1);
    values.back() = last;
    std::vector<NamedTensor> tensors;
    bool there = false;
    const Safetensors parsed = Safetensors::parse(file.bytes(), from);
    for (const auto& [name, view] : parsed.tensors()) {
      const bool is_it = name.ends_with(tensor);
      there |= is_it;
      tensors.push_back(
          {name, is_it ? TensorView{DType::kF32, dims, std::as_bytes(std::span(values))} : view});
    }
    EXPECT_TRUE(there) << tensor;
    write_file(dir.path / "model.safetensors", as_bytes_of(write_safetensors(tensors)));
    write_file(dir.path / "config.json", MappedFile(from + "/config.json").bytes());
  }
  TemporaryFolder dir;
};

TEST(FamilyDirectory, RefusesWrongShapesBeforeAnyWeightIsRead) {
  const struct {
    const char *golden, *tensor;
    Dims dims;
    const char* expected;
  } cases[] = {
      {"qwen35", "layers.0.linear_attn.in_proj_qkv.weight", {95, 48}, "[96, 48]"},
      {"qwen35", "layers.6.linear_attn.conv1d.weight", {96, 1, 3}, "[96, 1, 4]"},
      {"qwen35", "layers.6.linear_attn.A_log", {3}, "[4]"},
      {"qwen35", "layers.2.linear_attn.norm.weight", {13}, "[12]"},
      {"qwen35", "layers.7.self_attn.q_proj.weight", {64, 48}, "[256, 48]"},
      {"gemma4", "embed_tokens_per_layer.weight", {815, 71}, "[815, 70]"},
      {"gemma4", "layers.6.per_layer_input_gate.weight", {10, 41}, "[10, 42]"},
      {"gemma4", "layers.6.layer_scalar", {2}, "[1]"},
      {"gemma4", "layers.6.mlp.down_proj.weight", {42, 44}, "[42, 88]"},
  };
  for (const auto& c : cases) {
    const Changed changed(c.golden, c.tensor, c.dims, 1);
    EXPECT_EQ(refusal(changed.dir.path), cat("[model] FILE: weight '", c.tensor, "': expected ",
                                             c.expected, ", got ", to_string(c.dims)));
    const Checkpoint checkpoint(changed.dir.path);
    EXPECT_THROW(cloud::model_of(checkpoint), Error);
    const std::byte* end = nullptr;
    for (const std::string& name : checkpoint.names()) {
      const auto bytes = checkpoint.at(name).bytes;
      end = std::max(end, bytes.data() + bytes.size() - 1);
    }
    EXPECT_FALSE(is_resident(end)) << c.tensor;
  }
}

TEST(FamilyDirectory, RefusesDecaysThatAreNotFinite) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    for (const char* of : {"A_log", "dt_bias"}) {
      const std::string name = cat("layers.6.linear_attn.", of);
      const Changed changed("qwen35", name, {4}, bad);
      EXPECT_EQ(refusal(changed.dir.path),
                cat("[model] FILE: weight '", name, "': a value is not finite"));
    }
  }
}

TEST(GgufFamily, RefusesWhatIsWrongInOneLine) {
  using Change = std::function<void(GgufFile&)>;
  const auto size = [](const char* key, uint64_t value) -> Change {
    return [=](GgufFile& file) { file.integer(key, value); };
  };
  const auto without = [](const char* name) -> Change {
    return [=](GgufFile& file) { file.forget(name); };
  };
  const auto tensor = [](const char* name, const Dims& dims, float value = 0,
                         GgmlType type = GgmlType::kF32) -> Change {
    return [=](GgufFile& file) {
      file.tensor(name, dims, std::vector<float>(static_cast<size_t>(*element_count(dims)), value),
                  type);
    };
  };
  const struct {
    const char* golden;
    Change change;
    const char* expected;
  } cases[] = {
      {"qwen35", without("qwen35.ssm.state_size"), "[gguf] FILE: no key 'qwen35.ssm.state_size'"},
      {"qwen35", size("qwen35.block_count", 1025),
       "[gguf] FILE: qwen35.block_count: expected a whole number in 1..1024, got 1025"},
      {"qwen35", without("blk.1.ssm_a"),
       "[checkpoint] FILE: no tensor 'layers.1.linear_attn.A_log'"},
      {"qwen35", size("qwen35.ssm.inner_size", 50),
       "[gguf] FILE: qwen35.ssm.inner_size: expected a multiple of 4 heads, got 50"},
      {"qwen35", size("qwen35.ssm.group_count", 3),
       "[config.json] linear_num_key_heads: expected a divisor of linear_num_value_heads 4, got 3"},
      {"qwen35", size("qwen35.ssm.state_size", 257),
       "[config.json] linear_key_head_dim: expected a whole number in 1..256, got 257"},
      {"qwen35", size("qwen35.ssm.conv_kernel", 9),
       "[config.json] linear_conv_kernel_dim: expected a whole number in 2..8, got 9"},
      {"qwen35", size("qwen35.rope.dimension_count", 7),
       "[config.json] partial_rotary_factor: expected pairs of the 32 channels of a head, got 7 "
       "channels"},
      {"qwen35", size("qwen35.rope.dimension_count", 34),
       "[gguf] FILE: qwen35.rope.dimension_count: expected at most 32, got 34"},
      {"qwen35", [](GgufFile& file) { file.text("qwen35.rope.scaling.type", "longrope"); },
       "[config.json] rope_parameters.rope_type: expected default, linear, llama3 or yarn, got "
       "'longrope'"},
      {"qwen35", size("qwen35.attention.value_length", 16),
       "[gguf] FILE: qwen35.attention.value_length: expected 32, got 16"},
      {"qwen35", size("qwen35.nextn_predict_layers", 8),
       "[gguf] FILE: qwen35.nextn_predict_layers: expected fewer than 8 blocks, got 8"},
      {"qwen35", size("qwen35.expert_count", 4), "[gguf] FILE: qwen35.expert_count: expected none"},
      {"qwen35",
       [](GgufFile& file) {
         file.flags("qwen35.attention.recurrent_layers", std::vector<bool>(8, true));
       },
       "[gguf] FILE: qwen35.attention.recurrent_layers: expected a block of full attention among "
       "8, got none"},
      {"qwen35",
       [](GgufFile& file) {
         file.flags("qwen35.attention.recurrent_layers", std::vector<bool>(7, true));
       },
       "[gguf] FILE: qwen35.attention.recurrent_layers: expected a list of 8, got one of 7"},
      {"qwen35", tensor("blk.0.ssm_a", {4}, 0.5f),
       "[gguf] FILE: tensor of layers.0.linear_attn.A_log: expected numbers below 0, got 0.5"},
      {"qwen35", tensor("blk.0.ssm_conv1d.weight", {96, 3}),
       "[model] FILE: weight 'layers.0.linear_attn.conv1d.weight': expected [96, 1, 4], got "
       "[96, 1, 3]"},
      {"qwen35", tensor("blk.0.attn_gate.weight", {47, 48}),
       "[model] FILE: weight 'layers.0.linear_attn.in_proj_z.weight': expected [48, 48], got "
       "[47, 48]"},
      {"qwen35", tensor("blk.0.ssm_x.weight", {4}),
       "[gguf] FILE: tensor 'blk.0.ssm_x.weight' is none of a Qwen3.5's"},
      {"qwen35", tensor("blk.8.attn_norm.weight", {48}),
       "[model] FILE: tensor 'layers.8.input_layernorm.weight' is no part of a qwen3_5_text of 8 "
       "blocks; adapters and changed architectures are not supported"},
      {"gemma4", without("gemma4.attention.key_length_swa"),
       "[gguf] FILE: no key 'gemma4.attention.key_length_swa'"},
      {"gemma4", without("rope_freqs.weight"),
       "[gguf] FILE: rope_freqs.weight: expected 12 factors, ones and then 1e30"},
      {"gemma4", tensor("rope_freqs.weight", {12}, 2),
       "[gguf] FILE: rope_freqs.weight: expected 12 factors, ones and then 1e30"},
      {"gemma4", tensor("rope_freqs.weight", {6}, 1),
       "[gguf] FILE: rope_freqs.weight: expected 12 floats"},
      {"gemma4", [](GgufFile& file) { file.text("gemma4.rope.scaling.type", "yarn"); },
       "[gguf] FILE: gemma4.rope.scaling.type: expected none, got 'yarn'"},
      {"gemma4", size("gemma4.rope.dimension_count_swa", 6),
       "[gguf] FILE: gemma4.rope.dimension_count_swa: expected 12, got 6"},
      {"gemma4", size("gemma4.attention.shared_kv_layers", 7),
       "[gguf] FILE: gemma4.attention.shared_kv_layers: expected fewer than 7 blocks, got 7"},
      {"gemma4", size("gemma4.attention.shared_kv_layers", 5),
       "[gguf] FILE: gemma4.feed_forward_length: expected 44 in block 4, got 88"},
      {"gemma4", size("gemma4.feed_forward_length", 45),
       "[model] FILE: weight 'layers.0.mlp.gate_proj.weight': expected [45, 42], got [44, 42]"},
      {"gemma4",
       [](GgufFile& file) {
         file.numbers("gemma4.attention.head_count_kv", 5,
                      std::vector<int32_t>{1, 1, 2, 1, 1, 1, 2});
       },
       "[gguf] FILE: gemma4.attention.head_count_kv: expected 1 in full blocks with values of "
       "their own, got 2"},
      {"gemma4",
       [](GgufFile& file) {
         file.numbers("gemma4.attention.head_count_kv", 5, std::vector<int32_t>{1, 1, 1, 1, 1, 1});
       },
       "[gguf] FILE: gemma4.attention.head_count_kv: expected a list of 7, got one of 6"},
      {"gemma4", size("gemma4.expert_count", 128),
       "[gguf] FILE: gemma4.expert_count: expected none"},
      {"gemma4", without("blk.3.layer_output_scale.weight"),
       "[checkpoint] FILE: no tensor 'layers.3.layer_scalar'"},
      {"gemma4", tensor("per_layer_token_embd.weight", {815, 96}, 0, GgmlType::kQ5_1),
       "[gguf] FILE: tensor of embed_tokens_per_layer.weight: Q5_1 would take memory as floats, "
       "expected F32, F16, BF16, Q8_0, Q4_0, Q4_K, Q5_K or Q6_K"},
      {"gemma4", tensor("per_layer_token_embd.weight", {814, 70}),
       "[model] FILE: weight 'embed_tokens_per_layer.weight': expected [815, 70], got [814, 70]"},
      {"gemma4-dense", tensor("blk.1.attn_v.weight", {24, 40}),
       "[model] FILE: tensor 'layers.1.self_attn.v_proj.weight' is no part of a gemma4_text of 4 "
       "blocks; adapters and changed architectures are not supported"},
  };
  for (const auto& c : cases) {
    GgufFile file = file_of(c.golden);
    c.change(file);
    const TemporaryFolder dir;
    const std::string path = dir.path / "model.gguf";
    file.write(path);
    EXPECT_EQ(refusal(path), c.expected);
  }
}

}  // namespace
}  // namespace split::test
