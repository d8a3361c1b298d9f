// GGUF files of the Llama family (T20, T21, T22) against float64 arithmetic on the files' own
// weights (tests/golden/models/gguf).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/json.h"
#include "io/gguf_architectures.h"
#include "support/gguf/file.h"
#include "support/golden_model.h"
#include "support/temporary_folder.h"

namespace split::test {
namespace {

struct File {
  std::string name;  // without .gguf
  double bound;      // of a logit,
  double kl = 1e-6;  // and of the divergence of what they say
  Profile profile = Profile::kF32;
};

class GgufModels : public testing::TestWithParam<std::tuple<std::string, File>> {};

double farthest(std::span<const float> got, std::span<const float> want) {
  double most = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double apart = std::abs(double{got[i]} - double{want[i]});
    most = std::isfinite(apart) ? std::max(most, apart) : HUGE_VAL;
  }
  return most;
}

// Kullback-Leibler, of what `got` says from what `want` says.
double divergence(std::span<const float> want, std::span<const float> got) {
  const auto p = log_softmax(want), q = log_softmax(got);
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) sum += std::exp(p[i]) * (p[i] - q[i]);
  return sum;
}

TEST_P(GgufModels, LogitsAndGreedyTextAreThoseOfTheFilesWeights) {
  const auto& [kind, file] = GetParam();
  std::unique_ptr<Device> device;
  try {
    device = make_device({kind == "vulkan" ? "vulkan:0" : kind, 2});
  } catch (const Error& error) {
    // Every machine has a CPU; one of its kernel sets, or Vulkan, may be missing.
    if (kind == "cpu" && std::getenv("SPLIT_CPU_ISA") == nullptr) throw;
    GTEST_SKIP() << error.what();
  }
  const GoldenValues golden("models/gguf");
  const Checkpoint checkpoint(source(cat("tests/golden/models/gguf/", file.name, ".gguf")));
  const auto model = make_model(checkpoint.config_json());
  ShardOptions options = options_for(*model);
  options.profile = file.profile;
  Shard shard(*device, *model, weights_of(checkpoint, *model), options);
  Batcher batcher(shard);
  // Products by blocks round their rows to bf16 on a CPU, and in int8 everywhere; else only those
  // weights are rounded that become halves.
  const bool floats = kind == "vulkan" && file.profile != Profile::kInt8;
  const double bound = floats ? std::min(file.bound, 0.03) : file.bound;
  int prompts = 0;
  for (int p = 0; p < 8; ++p) {
    const std::string prefix = cat(file.name, ".p", p, ".");
    if (!golden.has(prefix + "ids")) continue;
    ++prompts;
    const auto ids = golden.values<int32_t>(prefix + "ids");
    const auto greedy = golden.values<int32_t>(prefix + "greedy_ids");
    const auto margin = golden.values<float>(prefix + "greedy_margin");
    const SequenceId id = shard.pages().open();
    auto logits = append(batcher, id, {.tokens = ids});
    const auto want = golden.values<float>(prefix + "logits_last");
    EXPECT_LE(farthest(logits, want), bound) << prefix;
    EXPECT_LE(divergence(want, logits), file.kl) << prefix;
    for (size_t i = 0; i < greedy.size() && margin[i] > 2 * bound; ++i) {
      const auto next = static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
      ASSERT_EQ(next, greedy[i]) << prefix << " token " << i;
      logits = append(batcher, id, {.tokens = std::span(&next, 1), .phase = Phase::kGenerate});
    }
    shard.pages().close(id);
  }
  EXPECT_GE(prompts, 1);
}

// A row has the bits that it has alone, whatever it is computed beside; with int8 in either phase.
class GgufRows : public testing::TestWithParam<Profile> {};
TEST_P(GgufRows, InInt8HaveTheSameBitsTogether) {
  const bool always = GetParam() == Profile::kInt8;
  const Checkpoint checkpoint(source("tests/golden/models/gguf/llama-q4_k_m.gguf"));
  const auto model = make_model(checkpoint.config_json());
  ShardOptions options = options_for(*model);
  options.profile = GetParam();
  const auto device = make_device({"cpu", 2});
  Shard shard(*device, *model, weights_of(checkpoint, *model), options);
  EXPECT_EQ(shard.same_bits_in_both_phases(), always);
  Batcher batcher(shard);
  const auto ids = GoldenValues("models/gguf").values<int32_t>("llama-q4_k_m.p1.ids");
  const auto last = [&](size_t slice, Phase phase) {
    const SequenceId id = shard.pages().open();
    std::vector<float> logits;
    for (size_t at = 0; at < ids.size(); at += slice) {
      const auto part = std::span(ids).subspan(at, std::min(slice, ids.size() - at));
      logits = append(batcher, id, {.tokens = part, .phase = phase});
    }
    shard.pages().close(id);
    return logits;
  };
  const auto generated = last(1, Phase::kGenerate), prompt = last(1, Phase::kPrompt);
  EXPECT_EQ(generated == prompt, always);
  for (const size_t slice : {2, 3, 5, 64}) {
    EXPECT_EQ(last(slice, Phase::kGenerate), generated) << slice;
    EXPECT_EQ(last(slice, Phase::kPrompt), prompt) << slice;
  }
}
INSTANTIATE_TEST_SUITE_P(Profiles, GgufRows, testing::Values(Profile::kInt8, Profile::kInt8Decode),
                         [](const auto& info) { return std::string(profile_name(info.param)); });

// A file with all blocks as the floats that they are, also those that become halves when they are
// read.
TEST(GgufBlocks, AreTheseFloats) {
  const std::string path = source("tests/golden/models/gguf/llama-q4_k_m.gguf");
  const MappedFile bytes(path);
  const Gguf file = Gguf::parse(bytes.bytes(), path);
  const GgufArchitecture& architecture = gguf_architecture(file);
  const Checkpoint checkpoint(path);
  const auto model = make_model(checkpoint.config_json());
  std::map<std::string, OwnedTensor> floats;
  for (const auto& [name, tensor] : file.tensors()) {
    const std::string ours = hugging_face_name(file, architecture, name);
    std::vector<float> values(static_cast<size_t>(*element_count(tensor.dims)));
    gguf_floats(tensor, 0, values.size(), values.data());
    // Rows of queries and keys lie in pairs.
    if (const uint64_t heads = turned_heads(file, architecture, ours); heads > 0) {
      const std::vector<float> paired = values;
      const auto rows = static_cast<size_t>(tensor.dims[0]);
      const size_t width = values.size() / rows, half = rows / heads / 2;
      for (size_t row = 0; row < rows; ++row) {
        const size_t head = row / (2 * half), i = row % half, second = row / half % 2;
        std::copy_n(&paired[(head * 2 * half + 2 * i + second) * width], width,
                    &values[row * width]);
      }
    }
    floats.emplace(
        ours, converted({DType::kF32, tensor.dims, std::as_bytes(std::span(values))}, DType::kF32));
  }
  const GoldenValues golden("models/gguf");
  const auto device = make_device({"cpu", 1});
  Shard shard(
      *device, *model, [&](const std::string& name) { return floats.at(name).view; },
      options_for(*model));
  Batcher batcher(shard);
  for (int p = 0; p < 8; ++p) {
    const std::string prefix = cat("llama-q4_k_m.p", p, ".");
    if (!golden.has(prefix + "ids")) continue;
    const auto ids = golden.values<int32_t>(prefix + "ids");
    const SequenceId id = shard.pages().open();
    const auto logits = append(batcher, id, {.tokens = ids});
    EXPECT_LE(farthest(logits, golden.values<float>(prefix + "logits_last")), 2e-4) << prefix;
    shard.pages().close(id);
  }
}

// --- Gemma, of which there is no file: one is written from Hugging Face's weights, as llama.cpp's
// converter does it (names, norms one larger), and computes what these do.

// "layers.3.self_attn.q_proj.weight" -> "blk.3.attn_q.weight"
std::string gguf_name(std::string name) {
  const std::pair<const char*, const char*> names[] = {
      {"embed_tokens", "token_embd"},
      {"layers.", "blk."},
      {"input_layernorm", "attn_norm"},
      {"self_attn.q_proj", "attn_q"},
      {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},
      {"self_attn.o_proj", "attn_output"},
      {"self_attn.q_norm", "attn_q_norm"},
      {"self_attn.k_norm", "attn_k_norm"},
      {"post_attention_layernorm", "post_attention_norm"},
      {"pre_feedforward_layernorm", "ffn_norm"},
      {"post_feedforward_layernorm", "post_ffw_norm"},
      {"mlp.gate_proj", "ffn_gate"},
      {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"}};
  if (name == "norm.weight") return "output_norm.weight";
  for (const auto& [theirs, ours] : names) {
    if (const size_t at = name.find(theirs); at != name.npos) {
      name.replace(at, std::string(theirs).size(), ours);
    }
  }
  return name;
}

GgufFile gemma_file(const Golden& golden, const std::string& architecture) {
  const ModelConfig& config = golden.model->config();
  GgufFile out;
  out.text("general.architecture", architecture);
  const auto number = [&](const char* key, int value) {
    out.integer(cat(architecture, ".", key), static_cast<uint64_t>(value));
  };
  number("block_count", config.layers);
  number("context_length", config.max_positions);
  number("embedding_length", config.channels);
  number("feed_forward_length", config.inner);
  number("attention.head_count", config.heads);
  number("attention.head_count_kv", config.kv_heads);
  number("attention.key_length", config.head_dim);
  number("attention.value_length", config.head_dim);
  number("attention.sliding_window", golden.model->window(0));
  out.real(architecture + ".attention.layer_norm_rms_epsilon", 1e-6f);
  if (architecture == "gemma2") {
    out.real("gemma2.attn_logit_softcapping", 6.0f);
    out.real("gemma2.final_logit_softcapping", 5.0f);
  } else {
    number("attention.sliding_window_pattern", 3);
    out.real("gemma3.rope.freq_base", 1e6f);
    out.text("gemma3.rope.scaling.type", "linear");
    out.real("gemma3.rope.scaling.factor", 8.0f);
  }
  for (const std::string& name : golden.checkpoint.names()) {
    const OwnedTensor floats = converted(golden.checkpoint.at(name), DType::kF32);
    std::vector<float> values(floats.storage.size() / sizeof(float));
    std::memcpy(values.data(), floats.storage.data(), floats.storage.size());
    for (float& value : values) value += name.find("norm") != name.npos ? 1.0f : 0.0f;
    out.tensor(gguf_name(name), floats.view.dims, values);
  }
  return out;
}

TEST(GgufGemma, ComputesWhatHuggingFacesFilesDo) {
  for (const auto& [folder, architecture] :
       {std::pair{"gemma2", "gemma2"}, std::pair{"gemma3", "gemma3"}}) {
    const Golden golden(cat("models/", folder));
    const TemporaryFolder dir;
    const auto path = dir.path / "model.gguf";
    gemma_file(golden, architecture).write(path);
    const Checkpoint file(path);
    // A GGUF file has no query_pre_attn_scalar: it is the size of a head.
    Json config = parse_json(golden.checkpoint.config_json(), 16, "config");
    config["query_pre_attn_scalar"] = golden.model->config().head_dim;
    const auto want_model = make_model(config.dump()), got_model = make_model(file.config_json());
    EXPECT_EQ(got_model->config().model_type, want_model->config().model_type);
    for (int layer = 0; layer < want_model->config().layers; ++layer) {
      EXPECT_EQ(got_model->window(layer), want_model->window(layer)) << folder << " " << layer;
    }
    const auto device = make_device({"cpu", 1});
    const auto run = [&](const Model& model, const Checkpoint& weights) {
      Shard shard(*device, model, weights_of(weights, model), options_for(model));
      Batcher batcher(shard);
      const SequenceId id = shard.pages().open();
      return append(batcher, id, {.tokens = golden.ids(1)});
    };
    // Norms one larger have lost some bits.
    EXPECT_LE(farthest(run(*got_model, file), run(*want_model, golden.checkpoint)), 1e-4) << folder;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Registered, GgufModels,
    testing::Combine(testing::Values("cpu", "vulkan"),
                     testing::Values(File{"llama3-f16", 2e-4}, File{"llama2-f16", 2e-4},
                                     File{"qwen2-f16", 2e-4}, File{"qwen3-bf16", 2e-4},
                                     // Products by blocks round their rows to bf16.
                                     File{"llama-q4_k_m", 0.3, 5e-3},
                                     // To eight bits: measured 0.47; and 8.7e-3 to 1.15e-2 with
                                     // the last bits of what is rounded.
                                     File{"llama-q4_k_m", 0.6, 1.2e-2, Profile::kInt8})),
    [](const auto& info) {
      const File& file = std::get<1>(info.param);
      std::string name = cat(std::get<0>(info.param), "_", file.name,
                             file.profile == Profile::kInt8 ? "_int8" : "");
      std::erase(name, '-');
      return name;
    });

}  // namespace
}  // namespace split::test
