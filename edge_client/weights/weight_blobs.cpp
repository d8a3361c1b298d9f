#include "edge_client/weights/weight_blobs.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/json.h"
#include "tensor/blocks.h"
#include "wire/protocol.h"

namespace split::edge {

WeightBlobs::WeightBlobs(const Model& model, std::span<const wire::BlobInfo> blobs,
                         std::unique_ptr<BlobLoad> load, std::shared_ptr<const TailWeights> over)
    : model_(model), load_(std::move(load)), over_(std::move(over)) {
  for (const wire::BlobInfo& blob : blobs) {
    for (const WeightDecl& decl : model.blob(blob.name).weights) blob_of_[decl.name] = blob;
  }
}

TensorView WeightBlobs::tensor(const std::string& name, bool with_bytes) {
  if (!over_ || !over_->has(name)) return blob_tensor(name, with_bytes);
  const WeightDecl& decl = model_.weight(name);
  if (!with_bytes) return {DType::kF32, decl.dims, {}};
  const std::lock_guard lock(making_);
  auto at = made_.find(name);
  if (at == made_.end()) {
    at =
        made_
            .emplace(name, over_->weight(decl, [this](const WeightDecl& of) { return floats(of); }))
            .first;
  }
  return at->second.view;
}

// Frees memory of ours; the kernel reclaims a map's pages.
void WeightBlobs::taken(const TensorView& view) {
  const auto is = [&](const TensorView& one) { return one.bytes.data() == view.bytes.data(); };
  {
    const std::lock_guard lock(making_);
    for (const auto& [name, made] : made_) {
      if (is(made.view)) return;
    }
  }
  if (MappedFile::let_go(view.bytes)) return;
  const std::lock_guard lock(parsing_);
  for (auto& [hash, parsed] : parsed_) {
    if (parsed.shared ||
        std::ranges::none_of(parsed.tensors, is, [](auto& of) { return of.second; }))
      continue;
    parsed.taken.insert(view.bytes.data());
    if (parsed.taken.size() < parsed.tensors.size()) return;
    load_->let_go(hash);
    parsed_.erase(hash);
    return;
  }
}

TensorView WeightBlobs::blob_tensor(const std::string& name, bool with_bytes) {
  const std::string& from = model_.weight(name).from;
  return named(from.empty() || blob_of_.contains(name) ? name : from, with_bytes);
}

OwnedTensor WeightBlobs::floats(const WeightDecl& decl) {
  const TensorView stored = blob_tensor(decl.name, true);
  if (!is_quantised(stored.dtype)) return converted(stored, DType::kF32);
  OwnedTensor rows = dequantised(stored);
  if (decl.product != Product::kInOut) return rows;
  // Blocks have the outputs as rows, the checkpoint as columns.
  const auto outputs = static_cast<size_t>(rows.view.dims[0]),
             inputs = static_cast<size_t>(rows.view.dims[1]);
  OwnedTensor turned = converted(rows.view, DType::kF32);
  for (size_t r = 0; r < outputs; ++r) {
    for (size_t c = 0; c < inputs; ++c) {
      std::memcpy(turned.storage.data() + (c * outputs + r) * sizeof(float),
                  rows.storage.data() + (r * inputs + c) * sizeof(float), sizeof(float));
    }
  }
  turned.view.dims = {rows.view.dims[1], rows.view.dims[0]};
  return turned;
}

TensorView WeightBlobs::named(const std::string& name, bool with_bytes) {
  const auto missing = [&] {
    return Error(ErrorKind::kIntegrity, cat("[weights] no downloaded blob holds ", shown(name)));
  };
  const auto blob = blob_of_.find(name);
  if (blob == blob_of_.end()) throw missing();
  const std::string& hash = blob->second.sha256;
  Bytes bytes = with_bytes ? load_->whole(hash) : load_->begun(hash);
  // Waits for a header that is longer than the available part.
  if (!with_bytes && bytes.size() >= 8 && load_le64(bytes.data()) > wire::kChunkBytes - 8) {
    bytes = load_->whole(hash);
  }
  const std::lock_guard lock(parsing_);
  Parsed& parsed = parsed_[hash];
  if (parsed.from != bytes.data()) {  // a damaged blob goes on in another file
    const std::string& of = blob->second.name;
    const auto stages = std::ranges::count_if(model_.stages(), [&](const Stage& stage) {
      return std::ranges::count(stage.blobs, of) + std::ranges::count(stage.quantised, of) > 0;
    });
    parsed = {bytes.data(), parse_weight_file(bytes, cat("blob ", shown(of))), stages > 1, {}};
  }
  const auto at = parsed.tensors.find(name);
  if (at == parsed.tensors.end()) throw missing();
  return at->second;
}

}  // namespace split::edge
