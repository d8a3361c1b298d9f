// The dispatch of a rotation: a workgroup a row, or where there are norms, a head of it.
#include <bit>

#include "device/vulkan/codegen/numbers.h"
#include "device/vulkan/program/dispatches.h"

namespace split::vulkan {

void VulkanExecutable::add_rotate(size_t i, size_t variant, std::vector<Dispatch>& out) {
  constexpr uint32_t kNormLanes = 64;
  const uint32_t lanes = row_lanes(core_->context.capabilities());
  const Step& step = program_.steps[i];
  const Turn turn(step);
  const auto what = turn.normed ? Kernels::What::kNormRotate : Kernels::What::kRotate;
  const float mean = 1.0f / static_cast<float>(turn.head_dim);
  const bool puts = this->puts(i, variant);
  const KeptKernel& kernel = core_->kernels.get({.what = what, .takes = {.attention = puts}}, [&] {
    return Kernel{rotate_text(turn.normed, puts), {}, {}};
  });
  const Slot& x = slot(turn.x.slot);
  const bool turns = turn.cos >= 0;
  const auto turned = turns ? static_cast<uint32_t>(slot(turn.cos).dims[1]) : 0;
  const uint32_t piece = piece_rows({turn.x.slot, step.out()}, workspace_.capacity());
  for (uint32_t base = 0; base < workspace_.capacity(); base += piece) {
    Dispatch dispatch;
    dispatch.what = "rotate";
    dispatch.key = key_of(kernel, step, turn.normed ? kNormLanes : lanes);
    add_counted(variant, dispatch.key);
    add_constants(dispatch.key, {{Constant::HEADS, static_cast<uint32_t>(turn.heads)},
                                 {Constant::D, static_cast<uint32_t>(turn.head_dim)},
                                 {Constant::Q_FIRST, static_cast<uint32_t>(turn.x.access.first)},
                                 {Constant::Q_STRIDE, static_cast<uint32_t>(x.dims[1])},
                                 {Constant::TABLE_STRIDE, turns ? row_stride(slot(turn.cos)) : 0},
                                 {Constant::TURNED, turned},
                                 {Constant::SCALE, std::bit_cast<uint32_t>(mean)},
                                 {Constant::EPS, std::bit_cast<uint32_t>(turn.eps)},
                                 {Constant::PLUS, std::bit_cast<uint32_t>(turn.plus)}});
    const AttentionPlan* const pages = puts ? &attention(program_.steps[*step.attention]) : nullptr;
    // Values are put as keys are, into the other cache.
    const size_t cache =
        puts && program_.steps[*step.attention].in(inputs::attention::v) == step.out();
    dispatch.ranges = {symbols(), rowwise(turn.x.slot, base, piece, {}),
                       puts ? pages->caches[cache] : rowwise(step.out(), base, piece, {}),
                       whole(turns ? turn.cos : turn.weight),
                       whole(turns ? turn.sin : turn.weight)};
    if (turn.normed) {
      dispatch.ranges.push_back(whole(turn.weight));
      add_constants(dispatch.key, {{Constant::W_TYPE, type_code(slot(turn.weight).dtype)}});
    }
    if (puts) {
      const int k_cache = program_.steps[*step.attention].in(inputs::attention::k_cache);
      dispatch.ranges.push_back(pages->caches[1 - cache]);
      add_constants(dispatch.key, {{Constant::KV_HEADS, static_cast<uint32_t>(turn.heads)},
                                   {Constant::KV_TYPE, type_code(slot(k_cache).dtype)}});
    }
    dispatch.push = {base, piece, 0, 0};
    dispatch.groups[0] = turn.normed ? static_cast<uint32_t>(turn.heads) : 1;
    dispatch.row_axis = 1;
    dispatch.out_rows = step.rows == kOutRows;
    dispatch.waits = base == 0;
    out.push_back(std::move(dispatch));
  }
}

}  // namespace split::vulkan
