#include "edge_client/weights/tail_weights.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "io/safetensors.h"
#include "tensor/blocks.h"

namespace split::edge {
namespace {

constexpr std::string_view kPeft = "base_model.model.";
constexpr uint64_t kMostConfig = 1 << 20;
// Members of PEFT's description that change the sum. `fan_in_fan_out` does not: PEFT too goes by
// the matrix.
constexpr std::array kOtherSums{"alora_invocation_tokens", "alpha_pattern", "rank_pattern",
                                "use_dora"};
// Values of `init_lora_weights` that leave the base unchanged.
constexpr std::array kBaseStays{"gaussian", "eva", "orthogonal"};

[[noreturn]] void refuse(const std::string& where, const std::string& why) {
  throw Error(ErrorKind::kInput, cat("[tail] ", where, ": ", why));
}

double number_of(const std::string& where, std::string_view name, const std::string& text) {
  double value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = parse_real(text.data(), last, value);
  if (error != std::errc() || end != last || !std::isfinite(value)) {
    refuse(where, cat(shown(name), ": expected a number, got ", shown(text)));
  }
  return value;
}

struct Scale {
  double rank = 0, alpha = 0;
  bool by_root = false;  // rsLoRA: alpha / sqrt(rank)
};

Scale scale_of(const std::string& where, const Json& config) {
  const auto said = [&](std::string_view name) {
    const Json* const member = config.find(name);
    return member == nullptr ? Json() : *member;
  };
  const auto expect = [&](bool good, const char* name, const char* expected) {
    if (good) return;
    refuse(where, cat(shown(name), ": expected ", expected, ", got ", shown(said(name).dump())));
  };
  for (const char* name : kOtherSums) {
    expect(said(name).empty() || said(name) == Json(false), name, "none");
  }
  const Json begins = said("init_lora_weights"), by_root = said("use_rslora");
  expect(!begins.is_string() || std::ranges::find(kBaseStays, begins.text()) != kBaseStays.end(),
         "init_lora_weights", "one that leaves the base as it is");
  expect(by_root.is_null() || by_root.is_boolean(), "use_rslora", "true or false");
  return {number_of(where, "r", said("r").dump()),
          number_of(where, "lora_alpha", said("lora_alpha").dump()), by_root == Json(true)};
}

}  // namespace

TailWeights::TailWeights(const std::filesystem::path& path, const Model& model,
                         const TensorNames& names)
    : first_(model.config().layers), where_(path.string()) {
  const MappedFile file(path);
  const Safetensors parsed = Safetensors::parse(file.bytes(), where_);
  for (const auto& [name, view] : parsed.tensors()) add(name, view, model, names);
  if (first_ == model.config().layers) refuse(where_, "expected tensors of the model's blocks");
  for (const auto& [matrix, lora] : lora_) {
    if (lora.a.view.dims.empty() || lora.b.view.dims.empty() ||
        lora.a.view.dims[0] != lora.b.view.dims[1]) {
      refuse(where_, cat("expected lora_A and lora_B of one rank for ", shown(matrix)));
    }
  }
  const auto said = [&](const char* key) {
    const auto at = parsed.metadata().find(key);
    return at == parsed.metadata().end() ? std::string() : at->second;
  };
  base_ = said("split_base");
  model_ = said("split_model");
  if (!lora_.empty()) read_scale(path, parsed.metadata());
}

void TailWeights::add(const std::string& full, const TensorView& view, const Model& model,
                      const TensorNames& names) {
  std::string_view own = full;
  if (own.starts_with(kPeft)) own.remove_prefix(kPeft.size());
  std::string name = names.name_of(own);
  char which = 0;
  for (const char one : {'A', 'B'}) {
    const std::string end = cat(".lora_", one, ".weight");
    if (!name.ends_with(end)) continue;
    which = one;
    name = name.substr(0, name.size() - end.size()) + ".weight";
  }
  for (int layer = 0; layer <= model.config().layers; ++layer) {
    const bool norm = layer == model.config().layers;
    for (const std::string& blob : model.stage(norm ? "norm" : cat("block.", layer)).blobs) {
      for (const WeightDecl& decl : model.blob(blob).weights) {
        if (decl.name != name) continue;
        const bool in_out = decl.product == Product::kInOut;
        const size_t side = (which == 'A') == in_out ? 0 : 1;
        const bool fits = which == 0 ? view.dims == decl.dims
                                     : decl.product != Product::kNone && view.dims.size() == 2 &&
                                           view.dims[which == 'A' ? 1 : 0] == decl.dims[side];
        if (!fits || is_quantised(view.dtype) || view.dtype == DType::kI32) {
          refuse(where_, cat(shown(full), " ", to_string(view.dims), " does not fit ",
                             to_string(decl.dims)));
        }
        OwnedTensor floats;
        try {
          floats = converted(view, DType::kF32);
        } catch (const Error& error) {
          refuse(where_, cat(shown(full), ": ", error.what()));
        }
        if (!values_are_finite(floats.view)) {
          refuse(where_, cat(shown(full), " has numbers that are not finite"));
        }
        if (!norm) first_ = std::min(first_, layer);
        (which == 0     ? whole_[name]
         : which == 'A' ? lora_[name].a
                        : lora_[name].b) = std::move(floats);
        return;
      }
    }
  }
  refuse(where_, cat("the model's blocks have no ", shown(full)));
}

void TailWeights::read_scale(const std::filesystem::path& path,
                             const std::map<std::string, std::string>& said) {
  const auto beside = path.parent_path() / "adapter_config.json";
  const bool own = said.contains("lora_rank") && said.contains("lora_alpha");
  const std::string where = own ? where_ : beside.string();
  const Scale scale =
      own ? Scale{number_of(where, "lora_rank", said.at("lora_rank")),
                  number_of(where, "lora_alpha", said.at("lora_alpha"))}
          : scale_of(where, parse_json(read_file(beside, kMostConfig), 16, cat("[tail] ", where)));
  for (const auto& [matrix, lora] : lora_) {
    if (static_cast<double>(lora.a.view.dims[0]) == scale.rank) continue;
    refuse(where_,
           cat("expected rank ", scale.rank, " of ", shown(matrix), ", got ", lora.a.view.dims[0]));
  }
  scale_ = static_cast<float>(scale.alpha / (scale.by_root ? std::sqrt(scale.rank) : scale.rank));
  if (!(scale.rank > 0) || !std::isfinite(scale_)) {
    refuse(where, cat("expected a rank and an alpha, got ", scale.rank, " and ", scale.alpha));
  }
}

bool TailWeights::has(const std::string& weight) const {
  return whole_.count(weight) > 0 || lora_.count(weight) > 0;
}

OwnedTensor TailWeights::weight(const WeightDecl& decl,
                                const std::function<OwnedTensor(const WeightDecl&)>& base) const {
  if (const auto at = whole_.find(decl.name); at != whole_.end()) {
    return converted(at->second.view, DType::kF32);
  }
  OwnedTensor result = base(decl);
  const Lora& lora = lora_.at(decl.name);
  const auto rank = static_cast<size_t>(lora.a.view.dims[0]);
  const auto inputs = static_cast<size_t>(lora.a.view.dims[1]);
  const auto outputs = static_cast<size_t>(lora.b.view.dims[0]);
  const auto* const a = reinterpret_cast<const float*>(lora.a.storage.data());
  const auto* const b = reinterpret_cast<const float*>(lora.b.storage.data());
  auto* const w = reinterpret_cast<float*>(result.storage.data());
  const bool in_out = decl.product == Product::kInOut;
  std::vector<float> row(inputs);
  for (size_t o = 0; o < outputs; ++o) {
    std::ranges::fill(row, 0.0f);
    for (size_t k = 0; k < rank; ++k) {
      const float factor = scale_ * b[o * rank + k];
      for (size_t i = 0; i < inputs; ++i) row[i] += factor * a[k * inputs + i];
    }
    for (size_t i = 0; i < inputs; ++i) w[in_out ? i * outputs + o : o * inputs + i] += row[i];
  }
  return result;
}

}  // namespace split::edge
