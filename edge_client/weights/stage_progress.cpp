#include "edge_client/weights/stage_progress.h"

namespace split::edge {

void StageProgress::expect(const std::vector<StageBlobs>& stages) {
  const std::lock_guard lock(mutex_);
  hashes_.clear();
  blobs_.clear();
  for (const StageBlobs& stage : stages) {
    auto& hashes = hashes_[stage.stage];
    for (const wire::BlobInfo& blob : stage.blobs) {
      hashes.push_back(blob.sha256);
      blobs_[blob.sha256] = {blob.bytes, 0, std::vector<bool>(blob.chunks.size())};
    }
  }
}

void StageProgress::chunk(const std::string& sha256, size_t chunk) {
  const std::lock_guard lock(mutex_);
  const auto at = blobs_.find(sha256);
  if (at == blobs_.end() || chunk >= at->second.chunks.size()) return;
  Blob& blob = at->second;
  if (blob.chunks[chunk]) return;
  blob.chunks[chunk] = true;
  blob.done += wire::chunk_size(blob.bytes, chunk);
}

std::map<std::string, StageProgress::Count> StageProgress::counts() const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, Count> all;
  for (const auto& [stage, hashes] : hashes_) {
    Count& count = all[stage];
    for (const std::string& hash : hashes) {
      const Blob& blob = blobs_.at(hash);
      count.bytes += blob.bytes;
      count.done += blob.done;
    }
  }
  return all;
}

}  // namespace split::edge
