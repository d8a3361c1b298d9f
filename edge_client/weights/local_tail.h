// The edge's part of the model: which blobs a range of stages needs, and these blobs as a Shard on
// this machine's device. Each stage is loaded once its blobs are there, while the others still
// download; or the shard begins empty and grows. Knows no server.
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

// The blobs that a stage needs and no earlier one has.
struct StageBlobs {
  std::string stage;
  std::vector<wire::BlobInfo> blobs;
};
// Returns each blob once, in the format of its stage, for the named stages in this order, or for a
// range. Throws Error(kInput) for a format that the server does not have.
std::vector<StageBlobs> stage_blobs(const Model& model, const wire::ModelInfo& info,
                                    const std::vector<std::string>& stages,
                                    const StageFormats& formats);
std::vector<StageBlobs> stage_blobs(const Model& model, const wire::ModelInfo& info,
                                    const StageRange& range, const StageFormats& formats);
// Returns these blobs in one list.
std::vector<wire::BlobInfo> blobs_of(const Model& model, const wire::ModelInfo& info,
                                     const StageRange& range, const StageFormats& formats);
uint64_t bytes_of(std::span<const wire::BlobInfo> blobs);
// The memory for texts of the model here, whatever part of the model comes here.
TextRoom text_room(const EngineOptions& options, const PlacementRequest& request,
                   const wire::ModelInfo& info);

// One thread at a time, beside grow() on another; batcher() by any.
class LocalTail {
 public:
  enum class Begins : uint8_t { kWhole, kEmpty };

  // `load` brings `blobs`; the device supports the profile. `kv_budget`: bytes of keys and values,
  // at least one whole context's, the default. `threads`: of the CPU that replaces a failed device.
  // `over`: a fine-tuned tail, whose weights replace the blobs'. With kEmpty there is no stage
  // before grow(). Throws what `load` throws, Error(kIntegrity) for blobs without the model's
  // weights, Error(kDevice).
  LocalTail(std::unique_ptr<Device> device, const Model& model, const StageRange& range,
            const StageFormats& formats, Profile profile, std::span<const wire::BlobInfo> blobs,
            std::unique_ptr<BlobLoad> load, uint64_t kv_budget = 0, unsigned threads = 0,
            Begins begins = Begins::kWhole, std::shared_ptr<const TailWeights> over = {});

  // Waits until the blobs are in the cache, too; throws as the constructor does. Once.
  FetchCounts finish() { return weights_.load().finish(); }
  FetchCounts counts() const { return weights_.load().counts(); }  // so far
  BlobLoad& load() { return weights_.load(); }
  // The lowest point at which rows can be fed now. Any thread.
  Point floor() const { return shard_->floor(); }
  // Lowers the floor to this point, once its blobs are there. Throws as the constructor does,
  // having grown as far as it could.
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
