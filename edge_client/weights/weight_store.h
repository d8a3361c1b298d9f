// The weights of the chosen model: which blobs stages need, what the cache has of them, and
// downloads of the rest.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "edge_client/weights/blobs/blob_load.h"
#include "edge_client/weights/growth.h"
#include "edge_client/weights/model_choice.h"

namespace split::edge {

// The blobs of a model in its own formats, by their hashes: a fine-tuned tail's base.
std::string base_of(const wire::ModelInfo& info);

// Has no state of its own. Any thread.
class WeightStore {
 public:
  // The choice outlives it.
  explicit WeightStore(const ModelChoice& choice) : choice_(choice) {}

  // The formats of weights to download.
  StageFormats formats(const wire::ModelInfo& info) const;
  // Returns the blobs of a range of stages. Throws Error(kInput) for a format that the server does
  // not have.
  std::vector<wire::BlobInfo> blobs(const wire::ModelInfo& info, const StageRange& range) const;
  // Begins to download blobs of this description. Throws Error(kIo) too.
  std::unique_ptr<BlobLoad> begin_load(const wire::ModelInfo& info,
                                       const std::vector<wire::BlobInfo>& blobs,
                                       LoadOptions load) const;
  // Begins to download what the cache lacks of the whole model. Throws Error(kIo).
  std::unique_ptr<BlobLoad> begin_rest(const wire::ModelInfo& whole) const;
  // Returns the description of the whole model, this one or the last one of the same weights, if
  // the cache has all of them.
  std::optional<wire::ModelInfo> whole_in_cache(const wire::ModelInfo& info) const;
  // Bytes of the blobs that the cache lacks.
  uint64_t missing_bytes(std::span<const wire::BlobInfo> blobs) const;
  // Returns a line if weights of so many bytes, which all stay in the cache, exceed --cache-limit.
  std::string over_cache_limit(uint64_t bytes) const;
  // Return what the cache holds; forget() first removes all that can go.
  struct Kept {
    uint64_t bytes = 0;
    size_t files = 0;
  };
  Kept kept() const;
  Kept forget() const;

 private:
  const ModelChoice& choice_;
};

}  // namespace split::edge
