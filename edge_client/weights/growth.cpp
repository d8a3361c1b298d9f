#include "edge_client/weights/growth.h"

#include <algorithm>
#include <new>

#include "base/plain_words.h"
#include "edge_client/weights/local_tail.h"
#include "step/range.h"

namespace split::edge {
namespace {

enum class Taken : uint8_t { kYes, kNoRoom, kNever };

// Waits for the step's blobs; false if one does not come.
bool comes(LocalTail& tail, const GrowthStep& step) {
  return std::ranges::all_of(
      step.blobs, [&](const wire::BlobInfo& blob) { return tail.load().comes(blob.sha256); });
}

Taken take(LocalTail& tail, const GrowthStep& step, std::string& why) {
  why.clear();
  try {
    if (!comes(tail, step)) return Taken::kNever;
    tail.grow(step.floor);
    return Taken::kYes;
  } catch (const Error& error) {
    why = error.what();
    return error.kind() == ErrorKind::kDevice ? Taken::kNoRoom : Taken::kNever;
  } catch (const std::bad_alloc&) {
    why = "[weights] this machine has no memory for it";
    return Taken::kNoRoom;
  }
}

}  // namespace

uint64_t GrowthStep::bytes() const { return bytes_of(blobs); }

std::vector<GrowthStep> growth_steps(const Model& model, const wire::ModelInfo& info,
                                     const StageFormats& formats, bool head) {
  const int layers = model.config().layers;
  std::vector<GrowthStep> steps(1);
  steps[0].floor = layers;
  const Point to = head ? Point::head() : Point::norm();
  steps[0].stages = StageRange{layers, to}.stage_names(layers);
  for (int block = layers - 1; block >= (head ? 0 : 1); --block) {
    const std::vector<std::string> stages = StageRange{block, block + 1}.stage_names(layers);
    steps.push_back({block, stages, {}});
  }
  if (head) {
    steps.push_back({Point::tokens(), StageRange{Point::tokens(), 0}.stage_names(layers), {}});
  }

  std::vector<std::string> order;
  for (const GrowthStep& step : steps) {
    order.insert(order.end(), step.stages.begin(), step.stages.end());
  }
  const std::vector<StageBlobs> blobs = stage_blobs(model, info, order, formats);
  auto next = blobs.begin();
  for (GrowthStep& step : steps) {
    for (size_t i = 0; i < step.stages.size(); ++i, ++next) {
      step.blobs.insert(step.blobs.end(), next->blobs.begin(), next->blobs.end());
    }
  }
  return steps;
}

std::string GrowthNote::line() const {
  return cat(layers_here, "/", layers, " layers here", why.empty() ? "" : "; ", plain_words(why));
}

void grow(LocalTail& tail, std::span<const GrowthStep> steps, int layers, const Waiter& ends,
          const std::function<void(const GrowthNote&)>& told) {
  GrowthNote last{.floor = tail.floor(), .layers = layers};
  std::string why;
  const auto tell = [&](bool done) {
    GrowthNote note{.floor = tail.floor(), .layers = layers, .done = done, .why = why};
    note.layers_here = layers - std::min(note.floor, Point(layers)).blocks_before(layers);
    if (note == last) return;
    last = note;
    told(note);
  };
  size_t come = 0;  // steps that are done, or will never come
  for (size_t next = 0; next < steps.size() && !ends.interrupted();) {
    come = std::max(come, next + 1);
    const Taken taken = take(tail, steps[next], why);
    if (taken == Taken::kNever) break;
    if (taken == Taken::kYes) {
      tell(++next == steps.size());
      continue;
    }
    tell(false);
    const auto arrives = [&](const GrowthStep& step) {
      try {
        return comes(tail, step);
      } catch (const Error&) {  // reported when the stage is taken
        return false;
      }
    };
    while (come < steps.size() && !arrives(steps[come])) ++come;
    if (come++ >= steps.size()) break;
  }
  tell(true);
}

}  // namespace split::edge
