// The dispatches of the top k: the largest of each block of a row, then the row's from those.
#include "device/vulkan/codegen/numbers.h"
#include "device/vulkan/program/dispatches.h"

namespace split::vulkan {

void VulkanExecutable::add_topk(size_t i, size_t /*variant*/, std::vector<Dispatch>& out) {
  const Step& step = program_.steps[i];
  const auto k = static_cast<uint32_t>(step.columns / 2);
  if (k > shader::TOP_BLOCKS) {  // the k may lie in more blocks
    throw Error(ErrorKind::kDevice,
                cat("[vulkan] top k: expected a k of at most ", shader::TOP_BLOCKS, ", got ", k));
  }
  const uint32_t piece = piece_rows({step.in(inputs::topk::x), step.out()}, workspace_.capacity());
  scratch_.push_back(workspace_.scratch(size_t{piece} * shader::TOP_BLOCKS * sizeof(uint32_t)));
  const Range maxima =
      part(*scratch_.back(), kCountBytes, size_t{piece} * shader::TOP_BLOCKS * sizeof(uint32_t));
  const uint32_t lanes = most_lanes(core_->context.capabilities());
  const auto add = [&](const char* what, Kernels::What which, std::string (*text)(),
                       uint32_t base) {
    Dispatch dispatch;
    dispatch.what = what;
    dispatch.key = key_of(core_->kernels.get({.what = which},
                                             [&] {
                                               return Kernel{text(), {}, {}};
                                             }),
                          step, lanes);
    add_constants(dispatch.key, {{Constant::COLUMNS, static_cast<uint32_t>(step.inner)}});
    dispatch.ranges = {symbols(), rowwise(step.in(inputs::topk::x), base, piece, {}), maxima};
    dispatch.push = {base, piece, 0, 0};
    dispatch.out_rows = step.rows == kOutRows;
    return dispatch;
  };
  for (uint32_t base = 0; base < workspace_.capacity(); base += piece) {
    Dispatch blocks = add("block-max", Kernels::What::kBlockMax, block_max_text, base);
    blocks.scratch = true;
    blocks.groups[0] = shader::TOP_BLOCKS / (lanes / shader::TOP_TEAM);
    blocks.row_axis = 1;
    out.push_back(std::move(blocks));
    Dispatch rows = add("topk", Kernels::What::kTopK, topk_text, base);
    add_constants(rows.key, {{Constant::COUNT, k}});
    rows.ranges.push_back(rowwise(step.out(), base, piece, {}));
    out.push_back(std::move(rows));
  }
}

}  // namespace split::vulkan
