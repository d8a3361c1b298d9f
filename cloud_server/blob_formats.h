// What a blob's tensors are in each format that a server offers: the checkpoint's own bytes where
// they lie, or what they become. Knows nothing of files, hashes and caches.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "io/checkpoint.h"
#include "io/safetensors.h"
#include "nn/model.h"

namespace split::cloud {

// "f32,q4_0" as a list; each once. Throws Error(kInput), one line.
std::vector<DType> parse_formats(std::string_view text);

// `asked` behind the checkpoint's own, which is always served: it costs nothing.
std::vector<DType> served_formats(const Checkpoint& checkpoint, std::span<const DType> asked);

struct BlobFormat {
  const Blob* blob = nullptr;
  DType format = DType::kF32;
};
// Every blob in every format that it comes in, once: format by format, in the model's order.
std::vector<BlobFormat> offered_blobs(const Model& model, std::span<const DType> formats);

// The blob whose bytes in the checkpoint's own format say all about this one in any format: itself,
// or the one that it is a copy of.
const Blob& source_of(const Model& model, const Blob& blob);

// Tensors for io/weight_file.h, and those among them that had to be made.
struct FormattedWeights {
  std::vector<OwnedTensor> made;
  std::vector<NamedTensor> tensors;
};
// In the checkpoint's own format all are verbatim, also where a tensor's type is not the most
// common one; in f32 and f16 all are of that type; in a quantised one matrices of products are
// blocks and the others verbatim. Throws Error(kInput) for values that a format cannot hold.
FormattedWeights format_weights(const Checkpoint& checkpoint, std::span<const WeightDecl> weights,
                                DType format);

}  // namespace split::cloud
