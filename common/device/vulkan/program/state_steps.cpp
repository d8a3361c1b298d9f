// The dispatches of the steps that keep a state of each sequence, and of a part of each head.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "device/vulkan/codegen/numbers.h"
#include "device/vulkan/program/dispatches.h"
#include "tensor/tensor.h"

namespace split::vulkan {
namespace {

// Columns of a workgroup of delta.comp, and channels that it stages at a time: as many as fit.
std::pair<uint32_t, uint32_t> delta_tile(const StateShape& shape, const Capabilities& device) {
  const auto dim = static_cast<uint32_t>(shape.key_dim + 3) / 4 * 4;
  for (const uint32_t chunk : {dim, 32u, 16u}) {
    for (const uint32_t strip : {16u, 8u}) {
      const size_t rows = kPageTokens, vectors = 2 * rows;
      const size_t floats = vectors * (chunk + 4) + size_t{ceil_div(dim, chunk)} * chunk * strip +
                            2 * rows * rows + (vectors + rows) * strip + 6 * rows;
      if (floats * sizeof(float) <= device.shared_bytes()) return {strip, chunk};
    }
  }
  CHECK(false);  // the last fits into what every device has
  return {};
}

}  // namespace

void VulkanExecutable::add_head_part(size_t i, size_t variant, std::vector<Dispatch>& out) {
  using Attributes = attributes::head_part;
  const Step& step = program_.steps[i];
  const auto heads = step.attribute<uint32_t>(Attributes::heads);
  const int x = step.in(inputs::head_part::x);
  const KeptKernel& kernel = core_->kernels.get({.what = Kernels::What::kHeadPart}, [] {
    return Kernel{head_part_text(), {}, {}};
  });
  const uint32_t piece = piece_rows({x, step.out()}, workspace_.capacity());
  for (uint32_t base = 0; base < workspace_.capacity(); base += piece) {
    Dispatch dispatch;
    dispatch.what = "head-part";
    dispatch.key = key_of(kernel, step, most_lanes(core_->context.capabilities()));
    add_counted(variant, dispatch.key);
    add_constants(dispatch.key, {{Constant::COLUMNS, static_cast<uint32_t>(step.columns)},
                                 {Constant::COUNT, static_cast<uint32_t>(step.columns) / heads},
                                 {Constant::D, static_cast<uint32_t>(step.inner) / heads},
                                 {Constant::Q_FIRST, step.attribute<uint32_t>(Attributes::first)},
                                 {Constant::Q_STRIDE, static_cast<uint32_t>(step.inner)}});
    dispatch.ranges = {symbols(), rowwise(x, base, piece, {}),
                       rowwise(step.out(), base, piece, {})};
    dispatch.push = {base, piece, 0, 0};
    dispatch.out_rows = step.rows == kOutRows;
    dispatch.waits = base == 0;
    out.push_back(std::move(dispatch));
  }
}

// A step's kernel with its symbols, its states and the first of its inputs.
VulkanExecutable::Dispatch VulkanExecutable::state_piece(const Step& step, Kernels::What what,
                                                         uint32_t lanes, uint32_t base,
                                                         uint32_t rows) {
  const StateShape shape = state_of(step);
  const bool convolves = what == Kernels::What::kConvRows;
  const KeptKernel& kernel = core_->kernels.get({.what = what}, [&] {
    return Kernel{convolves ? conv_rows_text() : delta_text(), {}, {}};
  });
  Dispatch dispatch;
  dispatch.what = convolves ? "conv-rows" : "delta";
  dispatch.key = key_of(kernel, step, lanes);
  const auto number = [](size_t of) { return static_cast<uint32_t>(of); };
  add_constants(dispatch.key, {{Constant::KEY_HEADS, number(shape.key_heads)},
                               {Constant::HEAD_GROUP, number(shape.group())},
                               {Constant::KEY_DIM, number(shape.key_dim)},
                               {Constant::VALUE_DIM, number(shape.value_dim)},
                               {Constant::STATE_FLOATS, number(shape.floats())}});
  const int state = step.in(convolves ? size_t{inputs::conv_rows::state} : inputs::delta::state);
  dispatch.ranges = {symbols(), part(state_slots_, 0, state_slots_.size()), whole(state),
                     rowwise(step.in(0), base, rows, {})};
  dispatch.push = {base, rows, 0, 0};
  dispatch.row_axis = 1;
  return dispatch;
}

void VulkanExecutable::add_conv_rows(size_t i, size_t /*variant*/, std::vector<Dispatch>& out) {
  const Step& step = program_.steps[i];
  const StateShape shape = state_of(step);
  const int w = step.in(inputs::conv_rows::w);
  const uint32_t lanes = row_lanes(core_->context.capabilities());
  const uint32_t piece = piece_rows({step.in(0), step.out()}, workspace_.capacity());
  for (uint32_t base = 0; base < workspace_.capacity(); base += piece) {
    Dispatch dispatch = state_piece(step, Kernels::What::kConvRows, lanes, base, piece);
    add_constants(dispatch.key, {{Constant::TAPS, static_cast<uint32_t>(shape.taps)},
                                 {Constant::TAKEN_ROWS, static_cast<uint32_t>(shape.taken_rows())},
                                 {Constant::TAKEN_AT, static_cast<uint32_t>(shape.taken())},
                                 {Constant::W_TYPE, type_code(slot(w).dtype)}});
    dispatch.ranges.push_back(whole(w));
    dispatch.ranges.push_back(rowwise(step.out(), base, piece, {}));
    dispatch.groups[0] = ceil_div(shape.width(), lanes);
    out.push_back(std::move(dispatch));
  }
}

void VulkanExecutable::add_delta(size_t i, size_t variant, std::vector<Dispatch>& out) {
  using Delta = inputs::delta;
  const Step& step = program_.steps[i];
  const StateShape shape = state_of(step);
  const uint32_t lanes = std::min(256u, core_->context.capabilities().most_lanes);
  const auto [strip, chunk] = delta_tile(shape, core_->context.capabilities());
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(shape.key_dim)));
  const uint32_t piece = piece_rows(
      {step.in(Delta::x), step.in(Delta::a), step.in(Delta::b), step.out()}, workspace_.capacity());
  for (uint32_t base = 0; base < workspace_.capacity(); base += piece) {
    Dispatch dispatch = state_piece(step, Kernels::What::kDelta, lanes, base, piece);
    add_constants(dispatch.key,
                  {{Constant::ROOM, static_cast<uint32_t>(shape.value_room())},
                   {Constant::KEYS_AT, static_cast<uint32_t>(shape.keys(0))},
                   {Constant::DELTAS_AT, static_cast<uint32_t>(shape.deltas(0))},
                   {Constant::DECAYS_AT, static_cast<uint32_t>(shape.decays(0))},
                   {Constant::TAKEN_AT, static_cast<uint32_t>(shape.taken())},
                   {Constant::SCALE, std::bit_cast<uint32_t>(scale)},
                   {Constant::W_TYPE, type_code(slot(step.in(Delta::a_log)).dtype)},
                   {Constant::BIAS_TYPE, type_code(slot(step.in(Delta::dt_bias)).dtype)},
                   {Constant::TILED, shape.tiled ? 1u : 0u},
                   {Constant::STRIP, strip},
                   {Constant::CHUNK, chunk}});
    for (const size_t input : {Delta::a, Delta::b}) {
      dispatch.ranges.push_back(rowwise(step.in(input), base, piece, {}));
    }
    for (const size_t input : {Delta::a_log, Delta::dt_bias}) {
      dispatch.ranges.push_back(whole(step.in(input)));
    }
    dispatch.ranges.push_back(rowwise(step.out(), base, piece, {}));
    dispatch.groups[0] = static_cast<uint32_t>(shape.value_heads * shape.value_room() / strip);
    dispatch.runs = true;
    // The few rows of a narrow variant are of two pages at most.
    for (const uint32_t rows_of : {1u, 2u}) {
      dispatch.push.column_base = variant < kWide ? 0 : rows_of;
      out.push_back(dispatch);
      if (variant < kWide) break;
    }
  }
}

void VulkanExecutable::write_state_slots(const RowBatch& batch, size_t program) {
  if (state_slots_.mapped() == nullptr) return;
  std::vector<uint32_t> none(workspace_.limits().sequences);
  const std::span<const uint32_t> states = batch.states.empty() ? none : batch.states[program];
  std::memcpy(state_slots_.mapped(), states.data(), states.size_bytes());
}

}  // namespace split::vulkan
