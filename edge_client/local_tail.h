// The edge's part of the model: which blobs a range of stages needs, and these blobs as a Shard on
// this machine's device. Knows no server.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "io/weight_file.h"
#include "run/batcher.h"
#include "wire/protocol.h"

namespace split::edge {

// The stages between two points (run/shard.h): from tokens when `first` is 0 and `embed`.
struct TailRange {
  bool embed = false;
  int first = 0, last = 0;

  bool empty(const ModelConfig& config) const;  // nothing to compute here
  // "blocks 2-3, norm, head"
  std::string describe(const ModelConfig& config) const;
};

// Each blob once, in the format of its stage. Throws Error(kInput) for a format that the server
// does not have.
std::vector<wire::BlobInfo> blobs_of(const Model& model, const wire::ModelInfo& info,
                                     const TailRange& range, const StageFormats& formats);

// One thread at a time.
class LocalTail {
 public:
  // `files` belong to `blobs`. Throws Error(kIntegrity) for files that do not hold the model's
  // weights, Error(kDevice).
  LocalTail(std::unique_ptr<Device> device, const Model& model, const TailRange& range,
            const StageFormats& formats, std::span<const wire::BlobInfo> blobs,
            std::vector<MappedFile> files);

  Batcher& batcher() { return *batcher_; }
  std::string device_name() const { return device_->name(); }

 private:
  std::vector<MappedFile> files_;
  Safetensors::Tensors tensors_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Shard> shard_;
  std::unique_ptr<Batcher> batcher_;
};

}  // namespace split::edge
