// The edge's part of the model: which blobs a range of stages needs, and these blobs as a Shard on
// this machine's device, each stage loaded when its blobs are there and the others still on their
// way; or as one that begins with nothing and grows. Knows no server.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "edge_client/split/placement.h"
#include "edge_client/weights/weight_blobs.h"
#include "run/batcher.h"
#include "run/room.h"
#include "wire/protocol.h"

namespace split::edge {

// The blobs that a stage needs and none before it has.
struct StageBlobs {
  std::string stage;
  std::vector<wire::BlobInfo> blobs;
};
// Each blob once, in the format of its stage; those of the stages named, in this order, or of a
// range. Throws Error(kInput) for a format that the server does not have.
std::vector<StageBlobs> stage_blobs(const Model& model, const wire::ModelInfo& info,
                                    const std::vector<std::string>& stages,
                                    const StageFormats& formats);
std::vector<StageBlobs> stage_blobs(const Model& model, const wire::ModelInfo& info,
                                    const StageRange& range, const StageFormats& formats);
// The same in one list.
std::vector<wire::BlobInfo> blobs_of(const Model& model, const wire::ModelInfo& info,
                                     const StageRange& range, const StageFormats& formats);
uint64_t bytes_of(std::span<const wire::BlobInfo> blobs);
// The room that a text of the model has here, whatever of the model comes here.
TextRoom text_room(const EngineOptions& options, const wire::ModelInfo& info);

// One thread at a time; what the batcher is asked for, any, and beside these grow().
class LocalTail {
 public:
  enum class Begins : uint8_t { kWhole, kEmpty };

  // `load` brings `blobs`; the device takes the profile. `kv_budget`: bytes of keys and values, at
  // least those of one whole context, and these by default. `threads`: of the CPU that takes a
  // failed device's place. `over`: a tail of one's own, whose weights lie over the blobs'. One that
  // begins empty has no stage before grow(). Throws what `load` throws, Error(kIntegrity) for blobs
  // that do not hold the model's weights, Error(kDevice).
  LocalTail(std::unique_ptr<Device> device, const Model& model, const StageRange& range,
            const StageFormats& formats, Profile profile, std::span<const wire::BlobInfo> blobs,
            std::unique_ptr<BlobLoad> load, uint64_t kv_budget = 0, unsigned threads = 0,
            Begins begins = Begins::kWhole, std::shared_ptr<const TailWeights> over = {});

  // Returns when the blobs are also kept; throws as the constructor does. Once.
  FetchCounts finish() { return weights_.load().finish(); }
  FetchCounts counts() const { return weights_.load().counts(); }  // so far
  BlobLoad& load() { return weights_.load(); }
  // The lowest point that rows can be fed at now. Any thread.
  Point floor() const { return shard_->floor(); }
  // Makes the floor this point, once the blobs for that are there; throws as the constructor does,
  // and has grown as far as it could.
  void grow(Point floor);
  Batcher& batcher() { return *batcher_; }
  const Device& device() const { return shard_->device(); }

 private:
  template <typename Work>
  static void checked(const Work& work);

  WeightBlobs weights_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Shard> shard_;
  std::unique_ptr<Batcher> batcher_;
};

}  // namespace split::edge
