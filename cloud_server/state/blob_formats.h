// Makes a blob's tensors in each format that a server offers: the checkpoint's own bytes where
// they lie, or what they become. Knows nothing of files, hashes and caches.
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

// "f32,q4_0" as a list; each once. Throws Error(kInput), one line.
std::vector<DType> parse_formats(std::string_view text);

// The model that a checkpoint is of. Throws Error(kInput, kNotFound, kShape) unless it has all of
// its weights, of the right shapes, in blocks only where they can be, and nothing else inside.
std::unique_ptr<Model> model_of(const Checkpoint& checkpoint, std::optional<int> context = {});

// The format of a blob's or a stage's matrices in the checkpoint: blocks, or its own type of
// floats.
DType own_format(const Checkpoint& checkpoint, const Blob& blob);
DType own_format(const Checkpoint& checkpoint, const Model& model, const Stage& stage);

struct BlobFormat {
  const Blob* blob = nullptr;
  DType format = DType::kF32;
};
// Every blob in every format that it comes in, once: first in the checkpoint's own, which costs
// nothing, then format by format of those asked for, in the model's order. What the checkpoint has
// in blocks comes in these only: floats made of them would be none of the model's, and rounding
// them again is worse than either.
std::vector<BlobFormat> offered_blobs(const Checkpoint& checkpoint, const Model& model,
                                      std::span<const DType> asked);

// The blob whose bytes in the checkpoint's own format say all about this one in any format: itself,
// or the one that it is a copy of.
const Blob& source_of(const Model& model, const Blob& blob);

// The type that a weight has where its blob comes in `format`: floats of the checkpoint's own type
// are verbatim, also where a tensor's type is not the most common one.
DType dtype_in(const Checkpoint& checkpoint, const WeightDecl& decl, DType format);

// Tensors for io/weight_file.h, and those among them that had to be made.
struct FormattedWeights {
  std::vector<OwnedTensor> made;
  std::vector<NamedTensor> tensors;
};
// As the checkpoint has them.
FormattedWeights own_weights(const Checkpoint& checkpoint, std::span<const WeightDecl> weights);
// Each in its dtype_in(), blocks rounded by all of the pool's threads. Throws Error(kInput) for
// values that a format cannot hold, and for blocks that are of another format already.
FormattedWeights format_weights(const Checkpoint& checkpoint, std::span<const WeightDecl> weights,
                                DType format, ThreadPool& pool);

}  // namespace split::cloud
