#include "edge_client/weights/incremental_shard.h"

#include <algorithm>
#include <new>
#include <utility>
#include "base/plain_words.h"
#include "base/resources/threads.h"

namespace split::edge {

std::string GrowthNote::line() const {
  return cat(layers_here, "/", layers, " layers here", why.empty() ? "" : "; ", plain_words(why));
}

IncrementalShard::IncrementalShard(LocalTail& tail, std::vector<GrowthStep> steps, int layers,
                                   OnGrowth told)
    : tail_(tail), steps_(std::move(steps)), told_(std::move(told)) {
  note_.floor = tail_.floor();
  note_.layers = layers;
  thread_ = started([this] { run(); });
}

IncrementalShard::~IncrementalShard() { stop(); }

void IncrementalShard::stop() {
  if (!thread_.joinable()) return;
  ends_ = true;
  tail_.load().cancel();
  thread_.join();
  tail_.load().end();  // the model may stay, and its weights come by another load
}

GrowthNote IncrementalShard::note() const {
  const std::lock_guard lock(mutex_);
  return note_;
}

// Takes the steps in order. A step without room is tried again whenever another one has come.
void IncrementalShard::run() {
  std::string why;
  size_t come = 0;  // steps that are done, or will never come
  for (size_t next = 0; next < steps_.size() && !ends_;) {
    come = std::max(come, next + 1);
    const Taken taken = take(steps_[next], why);
    if (taken == Taken::kNever) break;
    if (taken == Taken::kYes) {
      tell("", ++next == steps_.size());
      continue;
    }
    tell(why, false);
    while (come < steps_.size() && !comes(steps_[come])) ++come;
    if (come++ >= steps_.size()) break;
  }
  tell(why, true);
}

IncrementalShard::Taken IncrementalShard::take(const GrowthStep& step, std::string& why) {
  why.clear();
  try {
    for (const wire::BlobInfo& blob : step.blobs) {
      if (!tail_.load().comes(blob.sha256)) return Taken::kNever;
    }
    tail_.grow(step.floor);
    return Taken::kYes;
  } catch (const Error& error) {
    why = error.what();
    return error.kind() == ErrorKind::kDevice ? Taken::kNoRoom : Taken::kNever;
  } catch (const std::bad_alloc&) {
    why = "[weights] this machine has no memory for it";
    return Taken::kNoRoom;
  }
}

bool IncrementalShard::comes(const GrowthStep& step) {
  try {
    return std::ranges::all_of(
        step.blobs, [&](const wire::BlobInfo& blob) { return tail_.load().comes(blob.sha256); });
  } catch (const Error&) {  // reported when the stage is taken
    return false;
  }
}

void IncrementalShard::tell(const std::string& why, bool done) {
  GrowthNote note{.floor = tail_.floor(), .layers = note_.layers, .done = done, .why = why};
  note.layers_here =
      note.layers - std::min(note.floor, Point(note.layers)).blocks_before(note.layers);
  {
    const std::lock_guard lock(mutex_);
    if (note == std::exchange(note_, note)) return;
  }
  if (told_) told_(note);
}

void IncrementalShard::texts(int more) {
  const std::lock_guard lock(mutex_);
  texts_ += more;
  tail_.load().text_runs(texts_ > 0);
}

}  // namespace split::edge
