#include "io/gguf_model.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "base/json.h"

namespace split {
namespace {

constexpr uint64_t kMaxTokens = 1 << 20;      // GPT-2 has 50257
constexpr uint64_t kMaxTokenBytes = 8 << 20;  // of all of them, and of all merges; GPT-2: 0.5 MB
constexpr uint64_t kMaxSize = 1 << 20;        // as models/gpt2.cpp has it for config.json

constexpr std::string_view kEmbedding = "token_embd.weight", kOutput = "output.weight";
constexpr std::string_view kHead = "lm_head.weight";

struct Names {
  std::string_view gguf, hugging_face;
};
constexpr Names kOutside[] = {{kEmbedding, "wte.weight"},
                              {"position_embd.weight", "wpe.weight"},
                              {"output_norm.weight", "ln_f.weight"},
                              {"output_norm.bias", "ln_f.bias"},
                              {kOutput, kHead}};
constexpr Names kInBlock[] = {{"attn_norm", "ln_1"},          {"attn_qkv", "attn.c_attn"},
                              {"attn_output", "attn.c_proj"}, {"ffn_norm", "ln_2"},
                              {"ffn_up", "mlp.c_fc"},         {"ffn_down", "mlp.c_proj"}};

// "blk.3.attn_qkv.bias" -> "h.3.attn.c_attn.bias"
std::string hugging_face_name(const Gguf& file, std::string_view name) {
  for (const auto& [theirs, ours] : kOutside) {
    if (name == theirs) return std::string(ours);
  }
  if (name.starts_with("blk.")) {
    const std::string_view rest = name.substr(4);
    const size_t dot = std::min(rest.find('.'), rest.size()), end = rest.rfind('.');
    if (parse_u64(rest.substr(0, dot), 0, kMaxSize) && end != rest.npos && end > dot) {
      const std::string_view part = rest.substr(dot + 1, end - dot - 1), kind = rest.substr(end);
      for (const auto& [theirs, ours] : kInBlock) {
        if (part == theirs && (kind == ".weight" || kind == ".bias")) {
          return cat("h.", rest.substr(0, dot), ".", ours, kind);
        }
      }
    }
  }
  file.refuse(cat("tensor ", shown(name), " is none of a GPT-2's"));
}

// A linear layer's weight, which is Conv1D's [in, out] in Hugging Face's files.
bool is_linear(std::string_view name) {
  return name.ends_with(".weight") && (name.find(".c_") != name.npos);
}

// The same bytes as a type of ours, if there is one.
std::optional<DType> our_type(GgmlType type) {
  switch (type) {
    case GgmlType::kF32:
      return DType::kF32;
    case GgmlType::kF16:
      return DType::kF16;
    case GgmlType::kBF16:
      return DType::kBF16;
    case GgmlType::kQ8_0:
      return DType::kQ8_0;
    case GgmlType::kQ4_0:
      return DType::kQ4_0;
    default:
      return std::nullopt;
  }
}

OwnedTensor owned_tensor(DType dtype, Dims dims) {
  OwnedTensor out;
  // All of the elements are in the file, so this is at most 8 times its size.
  out.storage.resize(static_cast<size_t>(*element_count(dims)) * dtype_size(dtype));
  out.view = {dtype, std::move(dims), out.storage};
  return out;
}

// [rows, inner] of elements of T to [inner, rows], in squares that stay in the cache.
template <typename T>
void turn(const std::byte* from, size_t rows, size_t inner, std::byte* to) {
  constexpr size_t kSquare = 32;
  for (size_t r0 = 0; r0 < rows; r0 += kSquare) {
    const size_t r1 = std::min(rows, r0 + kSquare);
    for (size_t i0 = 0; i0 < inner; i0 += kSquare) {
      const size_t i1 = std::min(inner, i0 + kSquare);
      for (size_t i = i0; i < i1; ++i) {
        for (size_t r = r0; r < r1; ++r) {
          std::memcpy(to + (i * rows + r) * sizeof(T), from + (r * inner + i) * sizeof(T),
                      sizeof(T));
        }
      }
    }
  }
}

void add_tensor(const std::string& name, const GgufTensor& tensor, GgufModel& model) {
  const auto add = [&](const TensorView& view) { model.tensors.emplace(name, view); };
  const auto keep = [&](OwnedTensor&& owned) {
    add(owned.view);
    model.owned.push_back(std::move(owned));
  };
  const std::optional<DType> ours = our_type(tensor.type);
  const bool blocks = ours && is_quantised(*ours);
  const bool matrix = tensor.dims.size() == 2;  // else a shape that is refused later
  const bool turned = is_linear(name) && matrix;
  const bool as_it_lies = blocks ? turned || (name == kHead && matrix) : !turned;
  if (ours && as_it_lies) return add({*ours, tensor.dims, tensor.bytes});

  const bool floats_already = ours && !blocks;
  TensorView rows{floats_already ? *ours : DType::kF32, tensor.dims, tensor.bytes};
  OwnedTensor floats;
  if (!floats_already) {
    floats = owned_tensor(DType::kF32, tensor.dims);
    std::vector<float> row(static_cast<size_t>(tensor.dims.back()));
    const size_t count = floats.storage.size() / sizeof(float);
    for (size_t at = 0; at < count; at += row.size()) {
      gguf_floats(tensor, at, row.size(), row.data());
      std::memcpy(floats.storage.data() + at * sizeof(float), row.data(),
                  row.size() * sizeof(float));
    }
    if (!turned) return keep(std::move(floats));
    rows = floats.view;
  }
  OwnedTensor out = owned_tensor(rows.dtype, {rows.dims[1], rows.dims[0]});
  const auto count = static_cast<size_t>(rows.dims[0]), inner = static_cast<size_t>(rows.dims[1]);
  (dtype_size(rows.dtype) == 4 ? turn<uint32_t> : turn<uint16_t>)(rows.bytes.data(), count, inner,
                                                                  out.storage.data());
  keep(std::move(out));
}

// llama.cpp's older converters write a tied head out: the same bytes again.
bool has_own_head(const Gguf& file) {
  const auto head = file.tensors().find(kOutput);
  if (head == file.tensors().end()) return false;
  const auto embedding = file.tensors().find(kEmbedding);
  return embedding == file.tensors().end() || head->second.type != embedding->second.type ||
         !std::ranges::equal(head->second.bytes, embedding->second.bytes);
}

std::string json_text(const Gguf& file, const Json& json, const char* what) {
  try {
    return json.dump({.refuse_bytes = true});
  } catch (const Error&) {
    file.refuse(cat(what, ": is not UTF-8"));
  }
}

std::string config_json(const Gguf& file, bool own_head) {
  const auto& tensors = file.tensors();
  const auto embedding = tensors.find(kEmbedding);
  if (embedding == tensors.end()) file.refuse(cat("no tensor '", kEmbedding, "'"));
  const auto size = [&](const char* key) { return file.integer(cat("gpt2.", key), 1, kMaxSize); };
  Json config = {{"model_type", "gpt2"},
                 {"architectures", Json::array({"GPT2LMHeadModel"})},
                 {"n_layer", size("block_count")},
                 {"n_embd", size("embedding_length")},
                 {"n_head", size("attention.head_count")},
                 {"n_positions", size("context_length")},
                 {"n_ctx", size("context_length")},
                 {"n_inner", size("feed_forward_length")},
                 {"layer_norm_epsilon", file.number("gpt2.attention.layer_norm_epsilon", 1e-12, 1)},
                 {"vocab_size", embedding->second.dims[0]},
                 {"activation_function", "gelu_new"},  // the one that llama.cpp's GPT-2 has
                 {"tie_word_embeddings", !own_head}};
  // Written as 1e-5, not as the float nearest to it.
  config["layer_norm_epsilon"] =
      std::stod(cat(static_cast<float>(config["layer_norm_epsilon"].get<double>())));
  for (const auto& [key, ours] : {std::pair{"tokenizer.ggml.eos_token_id", "eos_token_id"},
                                  std::pair{"tokenizer.ggml.bos_token_id", "bos_token_id"}}) {
    if (file.has(key)) config[ours] = file.integer(key, 0, (1 << 24) - 1);
  }
  return json_text(file, config, "the metadata");
}

uint64_t total_size(std::span<const std::string_view> texts) {
  uint64_t total = 0;
  for (const std::string_view text : texts) total += text.size();
  return total;
}

std::optional<std::string> tokenizer_json(const Gguf& file) {
  const char *const kTokens = "tokenizer.ggml.tokens", *const kMerges = "tokenizer.ggml.merges",
                    *const kTypes = "tokenizer.ggml.token_type",
                    *const kModel = "tokenizer.ggml.model", *const kPre = "tokenizer.ggml.pre";
  if (!file.has(kTokens)) return std::nullopt;
  if (file.text(kModel) != "gpt2") {
    file.refuse(cat(kModel, ": expected \"gpt2\", got ", shown(file.text(kModel))));
  }
  if (file.has(kPre)) {
    const std::string_view pre = file.text(kPre);
    if (pre != "gpt-2" && pre != "gpt2" && pre != "default") {
      file.refuse(cat(kPre, ": expected \"gpt-2\", got ", shown(pre)));
    }
  }
  const auto tokens = file.texts(kTokens, kMaxTokens), merges = file.texts(kMerges, kMaxTokens);
  if (total_size(tokens) > kMaxTokenBytes || total_size(merges) > kMaxTokenBytes) {
    file.refuse(cat("the tokenizer: expected at most ", kMaxTokenBytes, " bytes of tokens"));
  }
  std::vector<int32_t> types(tokens.size(), 1);
  if (file.has(kTypes)) {
    types = file.integers(kTypes, kMaxTokens);
    if (types.size() != tokens.size()) {
      file.refuse(cat(kTypes, ": expected ", tokens.size(), " of them, got ", types.size()));
    }
  }
  constexpr int32_t kControl = 3, kUserDefined = 4;
  Json vocab = Json::object(), added = Json::array(), pairs = Json::array();
  std::unordered_set<std::string_view> names;
  for (size_t id = 0; id < tokens.size(); ++id) {
    // These stand for their own text and are never merged.
    if (types[id] == kControl || types[id] == kUserDefined) {
      added.push_back({{"id", id}, {"content", tokens[id]}, {"special", types[id] == kControl}});
    } else if (names.insert(tokens[id]).second) {
      vocab.add(std::string(tokens[id]), id);
    } else {
      file.refuse(cat(kTokens, ": token ", id, " is there twice"));
    }
  }
  for (const std::string_view merge : merges) pairs.push_back(merge);
  const Json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  Json json = {{"version", "1.0"},
               {"pre_tokenizer", bytes},
               {"decoder", {{"type", "ByteLevel"}}},
               {"model", {{"type", "BPE"}}}};
  json["added_tokens"] = std::move(added);
  json["model"]["vocab"] = std::move(vocab);
  json["model"]["merges"] = std::move(pairs);
  return json_text(file, json, "the tokenizer");
}

}  // namespace

GgufModel read_gguf_model(const Gguf& file) {
  const std::string_view architecture = file.text("general.architecture");
  if (architecture != "gpt2") {
    file.refuse(cat("general.architecture: expected \"gpt2\", got ", shown(architecture)));
  }
  GgufModel model;
  const bool own_head = has_own_head(file);
  model.config_json = config_json(file, own_head);
  model.tokenizer_json = tokenizer_json(file);
  for (const auto& [name, tensor] : file.tensors()) {
    if (name == kOutput && !own_head) continue;
    add_tensor(hugging_face_name(file, name), tensor, model);
    const std::optional<DType> type = our_type(tensor.type);
    if (name == kEmbedding && !own_head && type && is_quantised(*type)) {
      add_tensor(std::string(kHead), tensor, model);
    }
  }
  return model;
}

}  // namespace split
