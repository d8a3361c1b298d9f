#include "io/gguf_model.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/json.h"
#include "io/gguf_architectures.h"
#include "io/gguf_tokenizer.h"
#include "io/safetensors.h"
#include "models/model.h"
#include "models/rope.h"

namespace split {
namespace {

constexpr std::string_view kEmbedding = "token_embd.weight", kOutput = "output.weight";
constexpr std::string_view kHead = "lm_head.weight";

// Returns our type with the same bytes, if any.
std::optional<DType> our_type(GgmlType type, const GgufArchitecture& architecture) {
  // GPT-2's become floats.
  const bool super_blocks =
      type == GgmlType::kQ4_K || type == GgmlType::kQ5_K || type == GgmlType::kQ6_K;
  if (super_blocks && architecture.linear_in_out) return std::nullopt;
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
    case GgmlType::kQ4_K:
      return DType::kQ4_K;
    case GgmlType::kQ6_K:
      return DType::kQ6_K;
    case GgmlType::kQ5_K:  // for tables alone
      return DType::kQ5_K;
    default:
      return std::nullopt;
  }
}

OwnedTensor owned_tensor(DType dtype, Dims dims) {
  OwnedTensor out;
  // All elements are in the file, so this is at most 8 times its size.
  out.storage.resize(static_cast<size_t>(*element_count(dims)) * dtype_size(dtype));
  out.view = {dtype, std::move(dims), out.storage};
  return out;
}

// Transposes [rows, inner] to [inner, rows], in squares that stay in the cache.
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

// Converts a whole tensor to F32 or, a row at a time, to F16.
OwnedTensor floats_of(const GgufTensor& tensor, DType dtype) {
  OwnedTensor out = owned_tensor(dtype, tensor.dims);
  std::vector<float> row(static_cast<size_t>(tensor.dims.back()));
  const size_t size = dtype_size(dtype), count = out.storage.size() / size;
  for (size_t at = 0; at < count; at += row.size()) {
    gguf_floats(tensor, at, row.size(), row.data());
    const TensorView floats{DType::kF32, {tensor.dims.back()}, std::as_bytes(std::span(row))};
    convert(floats, dtype, std::span(out.storage).subspan(at * size, row.size() * size));
  }
  return out;
}

// Moves the rows of each head from pairs into halves: row 2 i + j to i + j D / 2.
OwnedTensor unpaired(const TensorView& view, uint64_t heads) {
  OwnedTensor out;
  out.storage.resize(view.bytes.size());
  out.view = {view.dtype, view.dims, out.storage};
  const auto rows = static_cast<size_t>(view.dims[0]);
  const size_t size = rows / heads, row_bytes = view.bytes.size() / rows;
  for (size_t row = 0; row < rows; ++row) {
    const size_t head = row / size, in_head = row % size;
    const size_t to = head * size + in_head / 2 + in_head % 2 * (size / 2);
    std::memcpy(out.storage.data() + to * row_bytes, view.bytes.data() + row * row_bytes,
                row_bytes);
  }
  return out;
}

// Turns what a state decays by, -exp(A_log), back: logarithms whose exp is this.
OwnedTensor logarithms(const Gguf& file, const std::string& name, const GgufTensor& tensor) {
  OwnedTensor out = floats_of(tensor, DType::kF32);
  for (size_t at = 0; at < out.storage.size(); at += sizeof(float)) {
    float decay = 0;
    std::memcpy(&decay, out.storage.data() + at, sizeof decay);
    if (!(decay < 0) || std::isinf(decay)) {
      file.refuse(cat("tensor of ", name, ": expected numbers below 0, got ", decay));
    }
    const auto log = static_cast<float>(natural_log(-double{decay}));
    std::memcpy(out.storage.data() + at, &log, sizeof log);
  }
  return out;
}

// Adds tensors under their names in Hugging Face's files.
class TensorAdder {
 public:
  TensorAdder(const Gguf& file, const GgufArchitecture& architecture, GgufModel& model)
      : file_(file),
        architecture_(architecture),
        of_(make_model(model.config_json, 1)),
        model_(model) {}

  void add(const std::string& name, const GgufTensor& tensor) {
    if (architecture_.linear_in_out) return add_in_out(name, tensor);
    const WeightDecl* const decl = decl_of(name);
    // Files may hold more than a model reads.
    if (decl == nullptr && !of_->is_inside(name)) return;
    if (name.ends_with(".A_log")) return keep(name, logarithms(file_, name, tensor));
    const std::optional<DType> ours = our_type(tensor.type, architecture_);
    const bool matrix = tensor.dims.size() == 2, table = decl != nullptr && decl->looked_up,
               product = matrix && (decl == nullptr || decl->product != Product::kNone);
    if (table && !ours) {
      file_.refuse(cat("tensor of ", name, ": ", ggml_type_name(tensor.type),
                       " would take memory as floats, expected F32, F16, BF16, Q8_0, Q4_0, Q4_K, "
                       "Q5_K or Q6_K"));
    }
    const bool read = product ? ours != DType::kQ5_K : table || (ours && !is_quantised(*ours));
    if (!ours || !read) {
      // Small matrices that whole blocks depend on lose nothing.
      const bool halves = matrix && (product || name == architecture_.embedding);
      const DType as = halves ? DType::kF16 : DType::kF32;
      OwnedTensor made = floats_of(tensor, as);
      if (halves) tell(tensor, made.storage.size());
      return arrange(name, made.view, std::move(made));
    }
    // A convolution of single channels.
    const bool taps = decl != nullptr && decl->dims.size() == 3 && matrix;
    const Dims dims = taps ? Dims{tensor.dims[0], 1, tensor.dims[1]} : tensor.dims;
    arrange(name, {*ours, dims, tensor.bytes}, {});
  }

 private:
  const WeightDecl* decl_of(std::string_view name) const {
    for (const Blob& blob : of_->blobs()) {
      const auto at = std::ranges::find(blob.weights, name, &WeightDecl::name);
      if (at != blob.weights.end()) return &*at;
    }
    return nullptr;
  }
  void put(const std::string& name, const TensorView& view) { model_.tensors.emplace(name, view); }
  void keep(const std::string& name, OwnedTensor&& owned) {
    put(name, owned.view);
    model_.owned.push_back(std::move(owned));
  }
  void tell(const GgufTensor& tensor, uint64_t bytes) {
    model_.widened_types.emplace(ggml_type_name(tensor.type));
    model_.widened_from += tensor.bytes.size();
    model_.widened_to += bytes;
  }

  // Keeps a tensor in Hugging Face's layout, from a view of the file or of `made`.
  void arrange(const std::string& name, const TensorView& view, OwnedTensor&& made) {
    const uint64_t heads = turned_heads(file_, architecture_, name);
    if (heads > 0) {
      if (view.dims[0] % static_cast<int64_t>(2 * heads) != 0) {
        file_.refuse(cat("tensor of ", name, ": expected rows of ", heads, " heads, got ",
                         to_string(view.dims)));
      }
      return keep(name, unpaired(view, heads));
    }
    const bool plus_one = architecture_.norms_plus_one && name.find("norm") != name.npos &&
                          name.find("linear_attn.") == name.npos;
    if (plus_one && view.dtype == DType::kF32) {
      OwnedTensor out = owned_tensor(view.dtype, view.dims);
      for (size_t at = 0; at < view.bytes.size(); at += sizeof(float)) {
        float weight = 0;
        std::memcpy(&weight, view.bytes.data() + at, sizeof weight);
        weight -= 1;
        std::memcpy(out.storage.data() + at, &weight, sizeof weight);
      }
      return keep(name, std::move(out));
    }
    if (made.storage.empty()) return put(name, view);
    keep(name, std::move(made));
  }

  // Adds a tensor with linear weights transposed: Conv1D's [in, out].
  void add_in_out(const std::string& name, const GgufTensor& tensor) {
    const std::optional<DType> ours = our_type(tensor.type, architecture_);
    const bool blocks = ours && is_quantised(*ours);
    const bool matrix = tensor.dims.size() == 2;  // other shapes are refused later
    const bool linear = name.ends_with(".weight") && name.find(".c_") != name.npos;
    const bool turned = linear && matrix;
    const bool as_it_lies = blocks ? turned || (name == kHead && matrix) : !turned;
    if (ours && as_it_lies) return put(name, {*ours, tensor.dims, tensor.bytes});

    const bool floats_already = ours && !blocks;
    TensorView rows{floats_already ? *ours : DType::kF32, tensor.dims, tensor.bytes};
    OwnedTensor floats;
    if (!floats_already) {
      floats = floats_of(tensor, DType::kF32);
      if (!turned) return keep(name, std::move(floats));
      rows = floats.view;
    }
    OwnedTensor out = owned_tensor(rows.dtype, {rows.dims[1], rows.dims[0]});
    const auto count = static_cast<size_t>(rows.dims[0]), inner = static_cast<size_t>(rows.dims[1]);
    (dtype_size(rows.dtype) == 4 ? turn<uint32_t> : turn<uint16_t>)(rows.bytes.data(), count, inner,
                                                                    out.storage.data());
    keep(name, std::move(out));
  }

  const Gguf& file_;
  const GgufArchitecture& architecture_;
  const std::unique_ptr<Model> of_;
  GgufModel& model_;
};

// Whether the head has other bytes than the embedding: llama.cpp's older converters write a tied
// head out.
bool has_own_head(const Gguf& file) {
  const auto head = file.tensors().find(kOutput);
  if (head == file.tensors().end()) return false;
  const auto embedding = file.tensors().find(kEmbedding);
  return embedding == file.tensors().end() || head->second.type != embedding->second.type ||
         !std::ranges::equal(head->second.bytes, embedding->second.bytes);
}

// Modules as sentence-transformers writes them: pooled, multiplied where there is a Dense, and
// scaled to length 1 as llama.cpp does.
std::map<std::string, std::string> modules_of(const Gguf& file, std::string_view pooling) {
  if (pooling.empty() && !file.tensors().contains(kGgufDense[0])) return {};
  if (pooling.empty()) pooling = "mean";
  std::map<std::string, std::string> files = {
      {"1_Pooling/config.json", Json{{"pooling_mode", pooling}}.dump()}};
  Json modules = Json::array();
  const auto add = [&](const std::string& path, const char* type) {
    modules.push_back({{"path", path}, {"type", type}});
  };
  add("", "Transformer");
  add("1_Pooling", "Pooling");
  for (const std::string_view name : kGgufDense) {
    const auto at = file.tensors().find(name);
    if (at == file.tensors().end() || at->second.dims.size() != 2) continue;
    const std::string path = cat(modules.size(), "_Dense");
    const OwnedTensor weight = floats_of(at->second, DType::kF32);
    const NamedTensor linear[] = {{"linear.weight", weight.view}};
    files[path + "/model.safetensors"] = with_tensors(safetensors_header(linear), linear);
    files[path + "/config.json"] = Json{
        {"in_features", weight.view.dims[1]},
        {"out_features", weight.view.dims[0]},
        {"bias", false},
        {"activation_function",
         "Identity"}}.dump();
    add(path, "Dense");
  }
  add(cat(modules.size(), "_Normalize"), "Normalize");
  files["modules.json"] = modules.dump();
  return files;
}

}  // namespace

GgufModel read_gguf_model(const Gguf& file) {
  const GgufArchitecture& architecture = gguf_architecture(file);
  GgufModel model;
  const bool own_head = has_own_head(file);
  model.config_json =
      gguf_json_text(file, gguf_config(file, architecture, own_head), "the metadata");
  model.texts = gguf_text_files(file, architecture.name == "gpt2");
  model.texts.merge(modules_of(file, gguf_pooling(file, architecture)));
  TensorAdder adder(file, architecture, model);
  for (const auto& [name, tensor] : file.tensors()) {
    if (name == kOutput && !own_head) continue;
    const std::string ours = hugging_face_name(file, architecture, name);
    if (ours.empty()) continue;
    adder.add(ours, tensor);
    const std::optional<DType> type = our_type(tensor.type, architecture);
    if (name == kEmbedding && !own_head && type && is_quantised(*type) && *type != DType::kQ5_K) {
      adder.add(std::string(kHead), tensor);
    }
  }
  return model;
}

}  // namespace split
