#include "bench/random_model.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "io/safetensors.h"

namespace split::bench {
namespace {

struct Size {
  const char* name;
  int layers, channels, heads, context, vocab;
};
constexpr Size kSizes[] = {
    {"demo", 8, 320, 5, 512, 8192},
    {"gpt2", 12, 768, 12, 1024, 50257},
    {"gpt2-medium", 24, 1024, 16, 1024, 50257},
    {"gpt2-large", 36, 1280, 20, 1024, 50257},
    {"gpt2-xl", 48, 1600, 25, 1024, 50257},
    {"tiny", 2, 128, 2, 1024, 5000},
};

std::string config_of(const Size& size, DType dtype) {
  const nlohmann::ordered_json config = {
      {"architectures", {"GPT2LMHeadModel"}},
      {"model_type", "gpt2"},
      {"activation_function", "gelu_new"},
      {"n_layer", size.layers},
      {"n_embd", size.channels},
      {"n_head", size.heads},
      {"n_ctx", size.context},
      {"n_positions", size.context},
      {"vocab_size", size.vocab},
      {"layer_norm_epsilon", 1e-5},
      {"tie_word_embeddings", true},
      {"bos_token_id", size.vocab - 1},
      {"eos_token_id", size.vocab - 1},
      {"torch_dtype", dtype == DType::kF16 ? "float16" : "float32"},
  };
  return config.dump(2);
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
  for (const Size& size : kSizes) names.emplace_back(size.name);
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

RandomModel::RandomModel(const std::string& size, DType dtype, uint64_t seed) {
  const auto* at = std::find_if(std::begin(kSizes), std::end(kSizes),
                                [&](const Size& known) { return size == known.name; });
  CHECK(at != std::end(kSizes));
  config_json_ = config_of(*at, dtype);
  model_ = make_model(config_json_);
  for (const Blob& blob : model_->blobs()) {
    for (const WeightDecl& decl : blob.weights) {
      if (!decl.from.empty()) continue;
      const bool norm = decl.name.find("ln_") != std::string::npos;
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

double RandomModel::step_bytes(const StageFormats& formats) const {
  double bytes = 0;
  for (const Stage& stage : model_->stages()) {
    if (stage.name == "embed") continue;
    const DType format = formats.of(stage.name).value_or(DType::kF32);
    for (const std::string& blob :
         stage.blobs_as(format).empty() ? stage.blobs : stage.blobs_as(format)) {
      for (const WeightDecl& decl : model_->blob(blob).weights) {
        const bool blocks = is_quantised(format) && decl.product != Product::kNone;
        bytes += static_cast<double>(
            blocks ? tensor_bytes(format, stored_dims(decl, format)).value()
                   : tensors_.at(decl.from.empty() ? decl.name : decl.from).storage.size());
      }
    }
  }
  return bytes;
}

double RandomModel::total_bytes() const {
  double bytes = 0;
  for (const auto& [name, tensor] : tensors_) bytes += static_cast<double>(tensor.storage.size());
  return bytes;
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
