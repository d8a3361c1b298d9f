#include "bench/support/random_model.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "io/safetensors.h"

namespace split::bench {
namespace {

// The settings of a published config.json that its weights' shapes follow from.
using Config = nlohmann::ordered_json;

Config gpt2(int layers, int channels, int heads, int context = 1024, int vocab = 50257) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"activation_function", "gelu_new"},
          {"n_layer", layers},
          {"n_embd", channels},
          {"n_head", heads},
          {"n_ctx", context},
          {"n_positions", context},
          {"vocab_size", vocab},
          {"layer_norm_epsilon", 1e-5},
          {"tie_word_embeddings", true},
          {"bos_token_id", vocab - 1},
          {"eos_token_id", vocab - 1}};
}

// `more` has what the model has beyond the sizes that all of its kind have.
Config llama(const char* type, int layers, int channels, int heads, int kv_heads, int inner,
             int vocab, int positions, double theta, const Config& more) {
  Config config = {{"model_type", type},
                   {"num_hidden_layers", layers},
                   {"hidden_size", channels},
                   {"num_attention_heads", heads},
                   {"num_key_value_heads", kv_heads},
                   {"intermediate_size", inner},
                   {"vocab_size", vocab},
                   {"max_position_embeddings", positions},
                   {"rope_theta", theta},
                   {"rms_norm_eps", type == std::string("qwen2") ? 1e-6 : 1e-5},
                   {"hidden_act", "silu"},
                   {"bos_token_id", vocab - 2},
                   {"eos_token_id", vocab - 1}};
  config.update(more);
  return config;
}

// Three of four blocks are gated DeltaNet.
Config qwen35(int layers, int channels, int inner, int vocab) {
  return {{"model_type", "qwen3_5_text"},
          {"num_hidden_layers", layers},
          {"hidden_size", channels},
          {"num_attention_heads", 8},
          {"num_key_value_heads", 2},
          {"head_dim", 256},
          {"intermediate_size", inner},
          {"linear_num_key_heads", 16},
          {"linear_num_value_heads", 16},
          {"linear_key_head_dim", 128},
          {"linear_value_head_dim", 128},
          {"linear_conv_kernel_dim", 4},
          {"full_attention_interval", 4},
          {"partial_rotary_factor", 0.25},
          {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e7}}},
          {"vocab_size", vocab},
          {"max_position_embeddings", 262144},
          {"rms_norm_eps", 1e-6},
          {"hidden_act", "silu"},
          {"tie_word_embeddings", true},
          {"eos_token_id", vocab - 1}};
}

Config bert(int layers, int channels, int heads) {
  return {{"model_type", "bert"},
          {"num_hidden_layers", layers},
          {"hidden_size", channels},
          {"num_attention_heads", heads},
          {"intermediate_size", 4 * channels},
          {"vocab_size", 30522},
          {"max_position_embeddings", 512},
          {"type_vocab_size", 2},
          {"layer_norm_eps", 1e-12},
          {"hidden_act", "gelu"}};
}

std::vector<std::pair<const char*, Config>> sizes() {
  const Config tied = {{"tie_word_embeddings", true}};
  const Config stretched = {{"tie_word_embeddings", true},
                            {"head_dim", 64},
                            {"rope_scaling",
                             {{"rope_type", "llama3"},
                              {"factor", 32.0},
                              {"low_freq_factor", 1.0},
                              {"high_freq_factor", 4.0},
                              {"original_max_position_embeddings", 8192}}}};
  return {{"demo", gpt2(8, 320, 5, 512, 8192)},
          {"gpt2", gpt2(12, 768, 12)},
          {"gpt2-medium", gpt2(24, 1024, 16)},
          {"gpt2-large", gpt2(36, 1280, 20)},
          {"gpt2-xl", gpt2(48, 1600, 25)},
          {"tiny", gpt2(2, 128, 2, 1024, 5000)},
          {"minilm-l6", bert(6, 384, 12)},
          {"bge-base", bert(12, 768, 12)},
          {"smollm2-135m", llama("llama", 30, 576, 9, 3, 1536, 49152, 8192, 1e5, tied)},
          {"qwen2.5-0.5b", llama("qwen2", 24, 896, 14, 2, 4864, 151936, 32768, 1e6, tied)},
          {"tinyllama-1.1b", llama("llama", 22, 2048, 32, 4, 5632, 32000, 2048, 1e4,
                                   {{"tie_word_embeddings", false}})},
          {"llama-3.2-1b", llama("llama", 16, 2048, 32, 8, 8192, 128256, 131072, 5e5, stretched)},
          {"qwen3.5-0.8b", qwen35(24, 1024, 3584, 248320)}};
}

// SplitMix64 (Steele et al., 2014), as a counter generator.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

OwnedTensor filled(const Dims& dims, float value) {
  OwnedTensor tensor;
  const auto count = static_cast<size_t>(*element_count(dims));
  tensor.storage.resize(count * sizeof(float));
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(tensor.storage.data() + i * sizeof(float), &value, sizeof value);
  }
  tensor.view = {DType::kF32, dims, tensor.storage};
  return tensor;
}

}  // namespace

std::vector<std::string> random_model_sizes() {
  std::vector<std::string> names;
  for (const auto& [name, config] : sizes()) names.emplace_back(name);
  return names;
}

namespace {

// Any numbers, and a scale that gives them about `deviation`.
OwnedTensor random_blocks(const Dims& dims, DType dtype, uint64_t seed, float deviation) {
  OwnedTensor tensor;
  tensor.storage.resize(tensor_bytes(dtype, dims).value());
  for (size_t i = 0; i < tensor.storage.size(); ++i) {
    tensor.storage[i] = static_cast<std::byte>(mix(seed * 0x9e3779b97f4a7c15ull + i + 1));
  }
  // Uniform whole numbers from -128 to 127, or from -8 to 7.
  const uint16_t d = f32_to_f16(deviation / (dtype == DType::kQ8_0 ? 73.9f : 4.6f));
  for (size_t at = 0; at < tensor.storage.size(); at += block_bytes(dtype)) {
    std::memcpy(tensor.storage.data() + at, &d, sizeof d);
  }
  tensor.view = {dtype, dims, tensor.storage};
  return tensor;
}

}  // namespace

OwnedTensor random_tensor(const Dims& dims, DType dtype, uint64_t seed, float deviation) {
  if (is_quantised(dtype)) return random_blocks(dims, dtype, seed, deviation);
  CHECK(dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16);
  const auto count = static_cast<size_t>(*element_count(dims));
  OwnedTensor tensor;
  tensor.storage.resize(count * dtype_size(dtype));
  // Four uniform numbers of 16 bits have the variance of 4 * 65536^2 / 12.
  const float scale = deviation / (65536.0f * 0.57735027f);
  constexpr size_t kBlock = 4096;
  float block[kBlock];
  for (size_t start = 0; start < count; start += kBlock) {
    const size_t n = std::min(kBlock, count - start);
    for (size_t i = 0; i < n; ++i) {
      const uint64_t bits = mix(seed * 0x9e3779b97f4a7c15ull + start + i + 1);
      const auto sum = static_cast<int32_t>((bits & 0xffff) + ((bits >> 16) & 0xffff) +
                                            ((bits >> 32) & 0xffff) + (bits >> 48));
      block[i] = static_cast<float>(sum - 131070) * scale;
    }
    const Dims flat = {static_cast<int64_t>(n)};
    convert({DType::kF32, flat, std::as_bytes(std::span(block, n))}, dtype,
            std::span(tensor.storage).subspan(start * dtype_size(dtype), n * dtype_size(dtype)));
  }
  tensor.view = {dtype, dims, tensor.storage};
  return tensor;
}

RandomModel::RandomModel(const std::string& size, DType dtype, uint64_t seed,
                         std::optional<int> context) {
  const auto known = sizes();
  const auto at =
      std::ranges::find_if(known, [&](const auto& entry) { return size == entry.first; });
  CHECK(at != known.end());
  Config config = at->second;
  config["torch_dtype"] = dtype == DType::kF16 ? "float16" : "float32";
  config_json_ = config.dump(2);
  model_ = make_model(config_json_, context);
  for (const Blob& blob : model_->blobs()) {
    for (const WeightDecl& decl : blob.weights) {
      if (!decl.from.empty()) continue;
      const bool norm = std::ranges::any_of(
          std::array{"ln_", "norm", "Norm"},
          [&](const char* part) { return decl.name.find(part) != std::string::npos; });
      tensors_[decl.name] = decl.dims.size() == 2
                                ? random_tensor(decl.dims, dtype, seed + tensors_.size() * 1000003)
                                : filled(decl.dims, norm && decl.name.ends_with("weight") ? 1 : 0);
    }
  }
}

WeightSource RandomModel::weights() const {
  return [this](const std::string& name) {
    const std::string& from = model_->weight(name).from;
    return tensors_.at(from.empty() ? name : from).view;
  };
}

double MeasuredModel::step_bytes(const StageFormats& formats) const {
  const WeightSource source = weights();
  double bytes = 0;
  for (const Stage& stage : model_->stages()) {
    if (stage.name == "embed") continue;
    const DType format = formats.of(stage.name).value_or(DType::kF32);
    for (const std::string& blob :
         stage.blobs_as(format).empty() ? stage.blobs : stage.blobs_as(format)) {
      for (const WeightDecl& decl : model_->blob(blob).weights) {
        const bool blocks = is_quantised(format) && decl.product != Product::kNone;
        bytes +=
            static_cast<double>(blocks ? tensor_bytes(format, stored_dims(decl, format)).value()
                                       : source.declared(decl.name).bytes.size());
      }
    }
  }
  return bytes;
}

double MeasuredModel::total_bytes() const {
  const WeightSource source = weights();
  double bytes = 0;
  for (const Blob& blob : model_->blobs()) {
    for (const WeightDecl& decl : blob.weights) {
      if (!decl.from.empty()) continue;
      bytes += static_cast<double>(source.declared(decl.name).bytes.size());
    }
  }
  return bytes;
}

FileModel::FileModel(const std::string& path, std::optional<int> context) : checkpoint_(path) {
  model_ = make_model(checkpoint_.config_json(), context);
}

void RandomModel::write(const std::string& dir) const {
  std::vector<NamedTensor> list;
  for (const auto& [name, tensor] : tensors_) list.push_back({name, tensor.view});
  std::ofstream config(dir + "/config.json");
  config << config_json_ << "\n";
  std::ofstream file(dir + "/model.safetensors", std::ios::binary);
  file << safetensors_header(list, {{"format", "pt"}});
  for (const NamedTensor& tensor : list) {
    file.write(reinterpret_cast<const char*>(tensor.view.bytes.data()),
               static_cast<std::streamsize>(tensor.view.bytes.size()));
  }
  if (!config.flush() || !file.flush()) {
    throw Error(ErrorKind::kIo, cat("[bench] ", dir, ": the random model cannot be written"));
  }
}

std::vector<int32_t> random_tokens(const ModelConfig& config, size_t count) {
  std::vector<int32_t> tokens(count);
  for (size_t i = 0; i < count; ++i) {
    tokens[i] = static_cast<int32_t>(mix(i + 1) % static_cast<uint64_t>(config.vocab));
  }
  return tokens;
}

ScratchDir::ScratchDir() {
  path_ = (std::filesystem::temp_directory_path() / "split-bench-XXXXXX").string();
  if (::mkdtemp(path_.data()) == nullptr) {
    throw Error(ErrorKind::kIo, cat("[bench] ", path_, ": cannot be made"));
  }
}

ScratchDir::~ScratchDir() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
}

}  // namespace split::bench
