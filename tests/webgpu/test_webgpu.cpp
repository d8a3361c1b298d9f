// How many dispatches a token costs on a tab's GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "device/webgpu/row_attention.h"
#include "models/model.h"

namespace split::webgpu {
namespace {

// Counts those of a step of one row by block 0; `merge`: as the device runs it.
size_t dispatches(const std::string& config, const std::function<DType(const std::string&)>& types,
                  bool merge) {
  const auto model = make_model(config);
  const Program program =
      compile("block", {model->stage("block.0").trace({types, DType::kF16})}, kFuseRules);
  MergedProgram merged{program, {}};
  std::vector<RowAttention> by_rows;
  if (merge) {
    merged = merge_products(program);
    by_rows = row_attentions(merged);
  }
  size_t count = 0;
  for (const Step& step : merged.program.steps) {
    const auto turned = [&](const RowAttention& one) {
      return &step == one.q_rotation || &step == one.k_rotation;
    };
    const auto stores = [&](const RowAttention& one) { return &step == one.attention; };
    if (std::ranges::any_of(by_rows, turned)) continue;
    const bool stored_apart = step.op == Op::k_attention && std::ranges::none_of(by_rows, stores);
    count += stored_apart ? 2 : 1;
  }
  return count;
}

const auto kHalves = [](const std::string&) { return DType::kF16; };
constexpr const char* kGpt2 = R"({"model_type": "gpt2", "n_layer": 12, "n_head": 12, "n_embd": 768,
  "n_positions": 1024, "n_ctx": 1024, "vocab_size": 50257})";
std::string llama(const std::string& type) {
  return cat(R"({"model_type": ")", type, R"(", "hidden_size": 2048, "intermediate_size": 8192,
    "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64,
    "vocab_size": 128256, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
    "hidden_act": "silu", "rope_theta": 500000.0})");
}

TEST(WebGpuDispatches, ABlockOfGpt2HasSevenInPlaceOfEight) {
  EXPECT_EQ(dispatches(kGpt2, kHalves, false), 8u);
  EXPECT_EQ(dispatches(kGpt2, kHalves, true), 7u);
}

TEST(WebGpuDispatches, ABlockOfLlamaHasSevenInPlaceOfThirteen) {
  for (const char* const type : {"llama", "qwen2", "qwen3"}) {
    EXPECT_EQ(dispatches(llama(type), kHalves, false), 13u) << type;
    EXPECT_EQ(dispatches(llama(type), kHalves, true), 7u) << type;
  }
}

TEST(WebGpuDispatches, ValuesOfAnotherTypeAreAProductOfTheirOwn) {
  const auto mixed = [](const std::string& name) {
    return name.find("v_proj") != std::string::npos ? DType::kQ6_K
           : name.find("proj") != std::string::npos ? DType::kQ4_K
                                                    : DType::kF32;
  };
  EXPECT_EQ(dispatches(llama("llama"), mixed, true), 8u);
  // Keys and values are stored apart where a kernel would have nine buffers.
  EXPECT_EQ(dispatches(llama("qwen3"), mixed, true), 11u);
}

}  // namespace
}  // namespace split::webgpu
