#include "edge_client/weights/growth.h"

#include "edge_client/weights/local_tail.h"
#include "step/range.h"

namespace split::edge {

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

}  // namespace split::edge
