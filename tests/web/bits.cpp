// Logits of a small model with weights of each format, as one line of SHA-256 a format: the
// same source natively and in a tab, whose lines must be equal.
#include "bits.h"

#include <cstring>
#include <map>

#include "device/device.h"
#include "run/self_test.h"
#include "run/shard/shard.h"
#include "tensor/blocks.h"

namespace split::test {
namespace {

constexpr std::string_view kLlama = R"({"model_type":"llama","hidden_size":256,
  "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"intermediate_size":512,
  "vocab_size":320,"max_position_embeddings":64,"rms_norm_eps":1e-5,"rope_theta":10000.0,
  "hidden_act":"silu","tie_word_embeddings":false,"bos_token_id":0,"eos_token_id":1})";

// Its matrices lie the other way round.
constexpr std::string_view kGpt2 = R"({"model_type":"gpt2","n_embd":256,"n_layer":2,"n_head":4,
  "n_positions":64,"n_ctx":64,"vocab_size":320,"activation_function":"gelu_new",
  "layer_norm_epsilon":1e-5,"bos_token_id":0,"eos_token_id":1})";

// Numerical Recipes' generator: the same on every machine.
class Random {
 public:
  explicit Random(uint32_t seed) : state_(seed) {}
  uint32_t next() { return state_ = state_ * 1664525u + 1013904223u; }
  float number(float most) { return (static_cast<float>(next() >> 8) * 0x1p-23f - 1.0f) * most; }

 private:
  uint32_t state_;
};

OwnedTensor floats(const Dims& dims, DType dtype, Random& random) {
  const size_t count = tensor_bytes(DType::kF32, dims).value() / sizeof(float);
  std::vector<float> values(count);
  const bool norm = dims.size() == 1;
  for (float& value : values) value = norm ? 1 + random.number(0.1f) : random.number(0.1f);
  return converted({DType::kF32, dims, std::as_bytes(std::span(values))}, dtype);
}

// Any numbers, with scales that keep the products small.
OwnedTensor blocks(const Dims& dims, DType dtype, Random& random) {
  OwnedTensor made;
  made.storage.resize(tensor_bytes(dtype, dims).value());
  for (std::byte& byte : made.storage) byte = static_cast<std::byte>(random.next() >> 24);
  const auto put_scale = [&](size_t at) {
    const auto d =
        static_cast<uint16_t>((random.next() >> 31) << 15 | (0x0800 + (random.next() >> 20)));
    std::memcpy(made.storage.data() + at, &d, sizeof d);
  };
  for (size_t at = 0; at < made.storage.size(); at += block_bytes(dtype)) {
    put_scale(at + (dtype == DType::kQ6_K ? 208 : 0));
    if (dtype == DType::kQ4_K) put_scale(at + 2);
    for (size_t i = 2; dtype == DType::kQ8_0 && i < 34; ++i) {  // no number is -128
      if (made.storage[at + i] == std::byte{0x80}) made.storage[at + i] = std::byte{0};
    }
  }
  made.view = {dtype, dims, made.storage};
  return made;
}

struct Case {
  const char* name;
  std::string_view config;
  DType stored;  // of the products' matrices
  Profile profile;
};
constexpr Case kCases[] = {{"f32", kLlama, DType::kF32, Profile::kF32},
                           {"f16", kLlama, DType::kF16, Profile::kF16},
                           {"f32, the other way round", kGpt2, DType::kF32, Profile::kF32},
                           {"f16, the other way round", kGpt2, DType::kF16, Profile::kF16},
                           {"bf16", kLlama, DType::kBF16, Profile::kBF16},
                           {"q8_0", kLlama, DType::kQ8_0, Profile::kQ8_0},
                           {"q4_0", kLlama, DType::kQ4_0, Profile::kQ4_0},
                           {"q8_0 int8", kLlama, DType::kQ8_0, Profile::kInt8},
                           {"q4_0 int8", kLlama, DType::kQ4_0, Profile::kInt8},
                           {"q4_K", kLlama, DType::kQ4_K, Profile::kInt8},
                           {"q6_K", kLlama, DType::kQ6_K, Profile::kInt8}};

std::string line_of(const Case& one) {
  const std::unique_ptr<Model> model = make_model(one.config);
  const std::unique_ptr<Device> device = make_cpu_device(1);
  std::map<std::string, OwnedTensor> tensors;
  Random random(7);
  for (const Blob& blob : model->blobs()) {
    for (const WeightDecl& decl : blob.weights) {
      const bool matrix = decl.product != Product::kNone && decl.dims.size() == 2;
      tensors[decl.name] = matrix && is_quantised(one.stored)
                               ? blocks(decl.dims, one.stored, random)
                               : floats(decl.dims, matrix ? one.stored : DType::kF32, random);
    }
  }
  const WeightSource source([&](const std::string& name) { return tensors.at(name).view; });
  ShardOptions options;
  options.profile = one.profile;
  options.kv_bytes = kv_bytes_for(*model, {}, options.profile, 2);
  options.threads = 1;
  Shard shard(*device, *model, source, options);
  const SequenceId sequence = shard.pages().open();
  const size_t width = shard.width(Point::head());
  Sha256 sum;
  const auto step = [&](std::vector<int32_t> tokens, uint32_t past, Phase phase) {
    CHECK(shard.pages().reserve(sequence, past + static_cast<uint32_t>(tokens.size())));
    const ShardRows part{sequence,
                         {.range = {.to = Point::head()},
                          .past = past,
                          .tokens = tokens,
                          .phase = phase,
                          .wanted = Wanted::kAll}};
    std::vector<float> logits(tokens.size() * width);
    shard.forward({&part, 1}, logits.data());
    sum.update(std::as_bytes(std::span(logits)));
  };
  step({3, 1, 4, 1, 5, 9, 2, 6, 5, 35, 89, 79, 32, 38, 46, 264, 33, 83, 27}, 0, Phase::kPrompt);
  for (uint32_t i = 0; i < 4; ++i) step({static_cast<int32_t>(i * 31)}, 19 + i, Phase::kGenerate);
  return cat(one.name, ": ", sum.finish_hex(), "\n");
}

}  // namespace

std::string bits_of_all_formats() {
  std::string lines;
  for (const Case& one : kCases) lines += line_of(one);
  const char* const difference = exact_difference(*make_cpu_device(1));
  return cat(lines, "exact1: ", difference == nullptr ? "kept" : difference, "\n");
}

}  // namespace split::test
