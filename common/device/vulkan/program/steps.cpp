// The first half of loading an Executable: which dispatches each step of its Program becomes.
#include <algorithm>
#include <utility>

#include "device/vulkan/program/dispatches.h"
#include "device/vulkan/tuning/layouts.h"
#include "tensor/tensor.h"

namespace split::vulkan {
namespace {

// Whether the row that a matmul stages fits beside what else its kernel shares.
bool stages(const Capabilities& device, int64_t inner, bool in_int8) {
  const size_t row = static_cast<size_t>(inner + 8) * sizeof(float);
  return in_int8 ? row + int8_row_bytes(inner) + exchange_bytes() <= device.shared_bytes()
                 : row + exchange_bytes() <= kSharedBytes;
}

}  // namespace

bool VulkanExecutable::joins_matmul(size_t i, size_t variant) const {
  const Step& step = program_.steps[i];
  const Capabilities& device = core_->context.capabilities();
  const bool group = step.op == Op::k_group;
  if (!device.neighbours || step.joins == 0 || (!group && in_bf16(step))) return false;
  const Step& next = program_.steps[i + 1];
  return (variant == kOneRow || (variant == kLongRow && group)) &&
         stages(device, next.inner, in_int8(next));
}

bool VulkanExecutable::puts(size_t i, size_t variant) {
  const Step& step = program_.steps[i];
  if (!step.attention || !core_->context.capabilities().neighbours) return false;
  const Step& attends = program_.steps[*step.attention];
  // A block of 32 channels has one scale, which the kernel of the store finds; and kernels of
  // matrix units make halves.
  const bool blocks = is_quantised(slot(attends.in(inputs::attention::k_cache)).dtype) ||
                      (variant > kWide && in_bf16(attends));
  const bool rotates_elsewhere = step.rotation && !takes_pairs(step, variant);
  return !blocks && !rotates_elsewhere && attention(attends).pieces == 1;
}

bool VulkanExecutable::is_taken(size_t i, size_t variant) const {
  return std::ranges::any_of(program_.steps, [&](const Step& step) {
    const bool pair = step.twin == i || step.rotation == i;
    const bool sibling = std::ranges::find(step.siblings, i) != step.siblings.end();
    return (pair && takes_pairs(step, variant)) || (sibling && takes_siblings(step));
  });
}

void VulkanExecutable::add_group(size_t i, size_t variant, std::vector<Dispatch>& out) {
  if (joins_matmul(i, variant)) return;
  const Step& step = program_.steps[i];
  const Capabilities& device = core_->context.capabilities();
  const KeptKernel& kernel = core_->kernels.get(
      {.what = Kernels::What::kGroup, .like = like_, .step = i, .halves = halves(variant)}, [&] {
        return group_kernel(program_, step, device.subgroup > 1, device.max_range, halves(variant));
      });
  const uint32_t piece = piece_rows(rowwise_slots(kernel), workspace_.capacity());
  for (uint32_t base = 0; base < workspace_.capacity(); base += piece) {
    Dispatch dispatch;
    dispatch.key = key_of(kernel, step, row_lanes(device));
    add_counted(variant, dispatch.key);
    add_constants(dispatch.key, {{Constant::COLUMNS, static_cast<uint32_t>(step.columns)}});
    add_tape_constants(kernel, dispatch.key);
    dispatch.ranges.push_back(symbols());
    for (const Bind& bind : kernel.binds) {
      dispatch.ranges.push_back(ranges_of(bind, base, piece, halves(variant)));
    }
    dispatch.push = {base, piece, 0, 0};
    dispatch.out_rows = step.rows == kOutRows;
    dispatch.waits = base == 0;
    dispatch.what = "group";
    out.push_back(std::move(dispatch));
  }
}

// The dispatch that rounds a product's rows from `base` on to int8.
VulkanExecutable::Dispatch VulkanExecutable::rounding_piece(const Step& product, size_t variant,
                                                            uint32_t base, uint32_t piece,
                                                            const Range& rounded) {
  using Matmul = inputs::matmul;
  const KeptKernel& kernel = core_->kernels.get({.what = Kernels::What::kInt8Round}, [] {
    return Kernel{int8_round_text(), {}, {}};
  });
  Dispatch dispatch;
  dispatch.key = key_of(kernel, product, row_lanes(core_->context.capabilities()));
  add_constants(dispatch.key, {{Constant::K, static_cast<uint32_t>(product.inner)},
                               {Constant::W_TYPE, matrix_code(slot(product.in(Matmul::w)).dtype)}});
  add_counted(variant, dispatch.key);
  dispatch.ranges = {symbols(), rowwise(product.in(Matmul::x), base, piece, {}), rounded};
  dispatch.push = {base, piece, 0, 0};
  dispatch.out_rows = product.rows == kOutRows;
  dispatch.scratch = true;
  dispatch.what = "int8-round";
  return dispatch;
}

const ByOp<VulkanExecutable::Add> VulkanExecutable::kAdd = [] {
  ByOp<Add> all;
  all[Op::k_group] = &VulkanExecutable::add_group;
  all[Op::k_matmul] = &VulkanExecutable::add_matmul;
  all[Op::k_attention] = &VulkanExecutable::add_attention;
  all[Op::k_rotate] = all[Op::k_norm_rotate] = &VulkanExecutable::add_rotate;
  all[Op::k_topk] = &VulkanExecutable::add_topk;
  all[Op::k_head_part] = &VulkanExecutable::add_head_part;
  all[Op::k_conv_rows] = &VulkanExecutable::add_conv_rows;
  all[Op::k_delta] = &VulkanExecutable::add_delta;
  return all;
}();

uint32_t VulkanExecutable::most_rows(size_t variant) const {
  if (variant < kWide) return kNarrowRows[variant];
  if (variant == kFewCoopMatrix) return kFewRows;
  if (variant >= kShortCoopMatrix && variant < kDecodeCoopMatrix) {
    return kShortPrompts[variant - kShortCoopMatrix];
  }
  // Prompts go to the matrix units where there are any.
  const bool prompts = variant == kPromptCoopMatrix || (variant == kWide && halves_.empty());
  return prompts ? workspace_.capacity() : workspace_.limits().rows;
}

std::vector<VulkanExecutable::Dispatch> VulkanExecutable::dispatches(size_t variant) {
  std::vector<Dispatch> all;
  bool timed = false;  // a product that is measured runs alone
  bool waits = false;  // for a step that others do
  for (size_t i = 0; i < program_.steps.size(); ++i) {
    waits = waits || program_.steps[i].waits;
    if (is_taken(i, variant)) continue;
    const size_t first = all.size();
    (this->*kAdd[program_.steps[i].op])(i, variant, all);
    if (all.size() > first) {
      const bool was_timed = std::exchange(timed, all[first].question.has_value());
      all[first].waits = std::exchange(waits, false) || all[first].scratch || timed || was_timed;
    }
    // A narrow variant's rows are all in the first piece.
    const auto beyond = [end = variant < kWide ? 1 : most_rows(variant)](const Dispatch& dispatch) {
      return dispatch.push.row_base >= end;
    };
    all.erase(std::remove_if(all.begin() + static_cast<std::ptrdiff_t>(first), all.end(), beyond),
              all.end());
  }
  const auto limit =
      core_->context.capabilities().properties.limits.maxPerStageDescriptorStorageBuffers;
  for (Dispatch& dispatch : all) {
    dispatch.key.bindings = static_cast<uint32_t>(dispatch.ranges.size());
    if (dispatch.key.bindings > limit) {
      throw Error(ErrorKind::kDevice,
                  cat("[vulkan] program '", program_.name, "': a step binds ",
                      dispatch.key.bindings, " buffers, this device has ", limit));
    }
    if (variant < kWide) {
      dispatch.groups[dispatch.row_axis] = ceil_div(kNarrowRows[variant], dispatch.rows_per_group);
    }
  }
  return all;
}

}  // namespace split::vulkan
