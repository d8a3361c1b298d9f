#include "train/tail_file.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "tensor/blocks.h"

namespace split::train {
namespace {

void write(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
           const Safetensors::Metadata& metadata) {
  const std::string header = safetensors_header(tensors, metadata);
  AtomicFile file(path);
  file.append(std::as_bytes(std::span(header)));
  for (const NamedTensor& tensor : tensors) file.append(tensor.view.bytes);
  file.commit();
}

TensorView view_of(const array::Store::Entry& entry) {
  return {DType::kF32, entry.dims, std::as_bytes(std::span(entry.floats))};
}

}  // namespace

void write_tail(const std::filesystem::path& path, const Tail& tail, array::Store& store,
                const std::string& prefix, const Safetensors::Metadata& metadata) {
  std::vector<NamedTensor> tensors;
  const bool lora = tail.shape().lora > 0;
  for (const optim::State& one : tail.trained()) {
    tensors.push_back(
        {lora ? cat("base_model.model.", prefix, one.name, ".weight") : cat(prefix, one.name),
         view_of(store.at(one.name))});
  }
  write(path, tensors, metadata);
}

std::string adapter_config(const Tail& tail, const std::string& base) {
  std::set<std::string> modules;
  for (const optim::State& one : tail.trained()) {
    const size_t end = one.name.rfind(".lora_"), begin = one.name.rfind('.', end - 1) + 1;
    modules.insert(one.name.substr(begin, end - begin));
  }
  Json layers = Json::array();
  for (int layer = tail.shape().first; layer < tail.model().config().layers; ++layer) {
    layers.push_back(layer);
  }
  const int rank = tail.shape().lora;
  const bool in_out = std::ranges::any_of(tail.model().blobs(), [](const Blob& blob) {
    return std::ranges::any_of(
        blob.weights, [](const WeightDecl& decl) { return decl.product == Product::kInOut; });
  });
  return Json{{"base_model_name_or_path", base},
              {"bias", "none"},
              {"fan_in_fan_out", in_out},
              {"inference_mode", true},
              {"layers_to_transform", std::move(layers)},
              {"lora_alpha", static_cast<double>(static_cast<float>(rank) * tail.shape().scale)},
              {"lora_dropout", 0.0},
              {"peft_type", "LORA"},
              {"r", rank},
              {"target_modules", std::vector<std::string>(modules.begin(), modules.end())},
              {"task_type", "CAUSAL_LM"}}
             .dump({.indent = 2}) +
         "\n";
}

void write_state(const std::filesystem::path& path, const array::Store& store,
                 const Safetensors::Metadata& metadata) {
  std::vector<NamedTensor> tensors;
  for (const auto& [name, entry] : store.entries()) {
    if (entry.state) tensors.push_back({name, view_of(entry)});
  }
  write(path, tensors, metadata);
}

Safetensors::Metadata read_state(const std::filesystem::path& path, array::Store* store) {
  const MappedFile file(path);
  const Safetensors parsed = Safetensors::parse(file.bytes(), path.string());
  if (store == nullptr) return parsed.metadata();
  for (const auto& [name, entry] : store->entries()) {
    if (!entry.state) continue;
    const auto at = parsed.tensors().find(name);
    if (at == parsed.tensors().end() || at->second.dims != entry.dims ||
        at->second.dtype != DType::kF32) {
      throw Error(ErrorKind::kInput, cat("[train] ", path.string(), ": expected '", name, "' ",
                                         to_string(entry.dims), " in F32"));
    }
    if (!values_are_finite(at->second)) {
      throw Error(ErrorKind::kInput,
                  cat("[train] ", path.string(), ": '", name, "' has numbers that are not finite"));
    }
    // Written in place: plans read it there.
    std::memcpy(store->at(name).floats.data(), at->second.bytes.data(), at->second.bytes.size());
  }
  return parsed.metadata();
}

}  // namespace split::train
