// The weights of a model's blobs by their names, as the blobs come: what a shard is loaded from,
// and what a tail is trained from. Knows no server and no device.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>

#include "edge_client/weights/blobs/blob_load.h"
#include "edge_client/weights/tail_weights.h"
#include "io/weight_file.h"
#include "models/model.h"

namespace split::edge {

// Any thread.
class WeightBlobs {
 public:
  // `load` brings `blobs`. `over`: a tail of one's own, whose weights, in F32, lie over these.
  WeightBlobs(const Model& model, std::span<const wire::BlobInfo> blobs,
              std::unique_ptr<BlobLoad> load, std::shared_ptr<const TailWeights> over = {});

  // A weight as its blob has it, under its own name or, if no blob has that, as what it is a copy
  // of. Waits for its bytes, or for its blob's first part where only what it is is asked. Throws
  // Error(kIntegrity) where no blob holds it, and what the load throws.
  TensorView tensor(const std::string& name, bool with_bytes);
  // As floats, of the shape that the checkpoint has.
  OwnedTensor floats(const WeightDecl& decl);
  // Whoever read it needs it no more.
  void taken(const TensorView& view);
  BlobLoad& load() { return *load_; }
  const BlobLoad& load() const { return *load_; }

 private:
  TensorView blob_tensor(const std::string& name, bool with_bytes);
  TensorView named(const std::string& name, bool with_bytes);

  const Model& model_;
  std::unique_ptr<BlobLoad> load_;                 // holds the maps
  std::map<std::string, wire::BlobInfo> blob_of_;  // by the name of a weight
  struct Parsed {
    const std::byte* from = nullptr;
    Safetensors::Tensors tensors;
    bool shared = false;               // by several stages
    std::set<const std::byte*> taken;  // of the tensors
  };
  std::mutex parsing_;                    // a device may be loaded again while another part grows
  std::map<std::string, Parsed> parsed_;  // by the blob's hash
  const std::shared_ptr<const TailWeights> over_;
  std::mutex making_;
  std::map<std::string, OwnedTensor> made_;  // by name
};

}  // namespace split::edge
