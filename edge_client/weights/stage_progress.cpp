#include "edge_client/weights/stage_progress.h"

namespace split::edge {
namespace {

// Window of the rate, and the least time before it is known.
constexpr std::chrono::seconds kWindow{5};
constexpr std::chrono::milliseconds kKnown{250}, kBetweenMarks{50};

}  // namespace

void StageProgress::expect(const std::vector<StageBlobs>& stages) {
  const std::lock_guard lock(mutex_);
  stages_.clear();
  blobs_.clear();
  marks_.clear();
  for (const StageBlobs& stage : stages) {
    auto& hashes = stages_.emplace_back(stage.stage, std::vector<std::string>()).second;
    for (const wire::BlobInfo& blob : stage.blobs) {
      hashes.push_back(blob.sha256);
      blobs_[blob.sha256] = {blob.bytes, 0, std::vector<uint64_t>(blob.chunks.size())};
    }
  }
}

void StageProgress::came(const std::string& sha256, size_t chunk, uint64_t have, bool fetched,
                         Time now) {
  const std::lock_guard lock(mutex_);
  const auto at = blobs_.find(sha256);
  if (at == blobs_.end() || chunk >= at->second.chunks.size()) return;
  Blob& blob = at->second;
  const uint64_t before = std::exchange(blob.chunks[chunk], have);
  blob.done += have - before;  // negative when a chunk begins again
  if (!fetched || have <= before) return;
  fetched_ += have - before;
  while (!marks_.empty() && now - marks_.front().first > kWindow) marks_.pop_front();
  if (marks_.empty() || now - marks_.back().first >= kBetweenMarks) {
    marks_.emplace_back(now, fetched_);
  }
}

OnBytes StageProgress::on_bytes() {
  return [this](const std::string& sha256, size_t chunk, uint64_t have, bool fetched) {
    came(sha256, chunk, have, fetched, Clock::now());
  };
}

// Call with the lock held.
std::optional<double> StageProgress::bytes_per_second(Time now) const {
  for (const auto& [time, bytes] : marks_) {
    if (now - time > kWindow) continue;
    if (now - time < kKnown || bytes == fetched_) break;
    return static_cast<double>(fetched_ - bytes) /
           std::chrono::duration<double>(now - time).count();
  }
  return std::nullopt;
}

std::map<std::string, StageProgress::Count> StageProgress::counts(Time now) const {
  const std::lock_guard lock(mutex_);
  const std::optional<double> rate = bytes_per_second(now);
  std::map<std::string, Count> all;
  uint64_t left = 0;
  for (const auto& [stage, hashes] : stages_) {
    Count& count = all[stage];
    for (const std::string& hash : hashes) {
      const Blob& blob = blobs_.at(hash);
      count.bytes += blob.bytes;
      count.done += blob.done;
    }
    left += count.bytes - count.done;
    if (rate) count.seconds_left = static_cast<double>(left) / *rate;
  }
  return all;
}

}  // namespace split::edge
