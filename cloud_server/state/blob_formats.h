// Makes a blob's tensors in each format that a server offers: the checkpoint's own bytes in place,
// or converted ones. Knows nothing of files, hashes and caches.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/resources/thread_pool.h"
#include "io/checkpoint.h"
#include "io/safetensors.h"
#include "models/model.h"

namespace split::cloud {

// Parses "f32,q4_0"; drops duplicates. Throws Error(kInput), one line.
std::vector<DType> parse_formats(std::string_view text);

// Returns a checkpoint's model. Throws Error(kInput, kNotFound, kShape) unless it has all of its
// weights, of the right shapes, in blocks only where they can be, and no others inside the model.
std::unique_ptr<Model> model_of(const Checkpoint& checkpoint, std::optional<int> context = {});

// Returns the format of a blob's or a stage's matrices in the checkpoint: blocks, or its own type
// of floats.
DType own_format(const Checkpoint& checkpoint, const Blob& blob);
DType own_format(const Checkpoint& checkpoint, const Model& model, const Stage& stage);

struct BlobFormat {
  const Blob* blob = nullptr;
  DType format = DType::kF32;
};
// Returns every blob in each of its formats, once: first in the checkpoint's own, which costs
// nothing, then format by format of the requested ones, in the model's order. Weights in blocks
// come in these alone: floats of them would not be the model's, and requantising would add errors.
std::vector<BlobFormat> offered_blobs(const Checkpoint& checkpoint, const Model& model,
                                      std::span<const DType> asked);

// Returns the blob whose bytes in the checkpoint's own format determine this one in any format:
// itself, or the one of which it is a copy.
const Blob& source_of(const Model& model, const Blob& blob);

// Returns the type of a weight when its blob comes in `format`: the checkpoint's own floats stay
// verbatim, even where a tensor's type differs from the most common one.
DType dtype_in(const Checkpoint& checkpoint, const WeightDecl& decl, DType format);

// Tensors for io/weight_file.h, and storage of the converted ones.
struct FormattedWeights {
  std::vector<OwnedTensor> made;
  std::vector<NamedTensor> tensors;
};
// Returns the checkpoint's own tensors.
FormattedWeights own_weights(const Checkpoint& checkpoint, std::span<const WeightDecl> weights);
// Returns each weight in its dtype_in(), rounding blocks on all of the pool's threads. Throws
// Error(kInput) for values that a format cannot hold, and for blocks in another format.
FormattedWeights format_weights(const Checkpoint& checkpoint, std::span<const WeightDecl> weights,
                                DType format, ThreadPool& pool);

}  // namespace split::cloud
