// The weights of a model's blobs by their names, as the blobs arrive: for loading a shard and for
// training a tail. Knows no server and no device.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>

#include "edge_client/split/lock_order.h"
#include "edge_client/weights/blobs/blob_load.h"
#include "edge_client/weights/tail_weights.h"
#include "io/weight_file.h"
#include "models/model.h"

namespace split::edge {

// Any thread.
class WeightBlobs {
 public:
  // `load` brings `blobs`. `over`: a fine-tuned tail, whose weights, in F32, replace the blobs'.
  WeightBlobs(const Model& model, std::span<const wire::BlobInfo> blobs,
              std::unique_ptr<BlobLoad> load, std::shared_ptr<const TailWeights> over = {});

  // Returns a weight as its blob has it, under its own name or, if no blob has that, under the name
  // of which it is a copy. Waits for its bytes, or without `with_bytes` for its blob's first part
  // alone. Throws Error(kIntegrity) if no blob has it, and what the load throws.
  TensorView tensor(const std::string& name, bool with_bytes);
  // Returns a weight as floats, in the checkpoint's shape.
  OwnedTensor floats(const WeightDecl& decl);
  // Says that the reader is done with the view.
  void taken(const TensorView& view);
  BlobLoad& load() { return *load_; }
  const BlobLoad& load() const { return *load_; }

 private:
  TensorView blob_tensor(const std::string& name, bool with_bytes);
  TensorView named(const std::string& name, bool with_bytes);

  const Model& model_;
  std::unique_ptr<BlobLoad> load_;                 // owns the maps
  std::map<std::string, wire::BlobInfo> blob_of_;  // keyed by weight
  struct Parsed {
    const std::byte* from = nullptr;
    Safetensors::Tensors tensors;
    bool shared = false;               // several stages use it
    std::set<const std::byte*> taken;  // tensors already read
  };
  Mutex parsing_{LockOrder::kParsing};    // a device may be reloaded while another part grows
  std::map<std::string, Parsed> parsed_;  // keyed by the blob's hash
  const std::shared_ptr<const TailWeights> over_;
  Mutex making_{LockOrder::kMaking};
  std::map<std::string, OwnedTensor> made_;  // keyed by name
};

}  // namespace split::edge
