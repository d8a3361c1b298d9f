#include "device/vulkan/program/executable.h"

#include <algorithm>
#include <cstring>

#include "device/vulkan/codegen/numbers.h"
#include "device/vulkan/program/dispatches.h"
#include "tensor/tensor.h"

namespace split::vulkan {
namespace {

// The shape of the states that a slot is; none if it is none.
std::optional<StateShape> state_in(const Program& program, int slot) {
  for (const Reader& reader : readers(program, slot)) {
    const Step& step = program.steps[reader.step];
    const bool is_state =
        (step.op == Op::k_conv_rows && reader.input == inputs::conv_rows::state) ||
        (step.op == Op::k_delta && reader.input == inputs::delta::state);
    if (is_state) return state_of(step);
  }
  return std::nullopt;
}

}  // namespace

VulkanExecutable::VulkanExecutable(CorePtr core, const Program& program, VulkanWorkspace& workspace)
    : core_(std::move(core)),
      id_(core_->executables++),
      workspace_(workspace),
      program_(program),
      like_(core_->kernels.like(program)),
      buffers_(program_.slots.size(), nullptr) {
  if (program_.arena_row_bytes > workspace_.limits().arena_row_bytes) {
    throw Error(
        ErrorKind::kDevice,
        cat("[vulkan] program '", program_.name, "' needs ", program_.arena_row_bytes,
            " bytes of arena a row, the workspace has ", workspace_.limits().arena_row_bytes));
  }
  const auto limit_to = [&](StepInput symbol, const Slot& table) {
    int64_t& limit = limits_[static_cast<size_t>(symbol)];
    limit = limit < 0 ? table.dims[0] : std::min(limit, table.dims[0]);
  };
  for (const Step& step : program_.steps) {
    (step.rows == kOutRows ? uses_out_rows_ : uses_rows_) = true;
    const bool turns = step.op == Op::k_rotate || step.op == Op::k_norm_rotate;
    if (turns && Turn(step).cos >= 0) {
      limit_to(StepInput::kPositions, slot(Turn(step).cos));
    }
    for (const auto& value : step.tape.values) {
      const Operand& operand = value.load;
      if (operand.access.kind != Access::kGather || slot(operand.slot).dims[0] < 0) continue;
      limit_to(step_input_of(slot(operand.access.index)), slot(operand.slot));
    }
  }
  if (core_->context.capabilities().matrix && workspace_.limits().matrix) {
    halves_ = half_slots(program_, [&](const Step& step) { return units_take(step); });
    if (std::find(halves_.begin(), halves_.end(), true) == halves_.end()) halves_.clear();
  }
}

void VulkanExecutable::bind(std::span<const Binding> bindings) {
  for (const Binding& binding : bindings) {
    for (size_t i = 0; i < program_.slots.size(); ++i) {
      if (program_.slots[i].kind == SlotKind::kTemp || program_.slots[i].name != binding.name) {
        continue;
      }
      buffers_[i] = dynamic_cast<VulkanBuffer*>(binding.buffer);
      if (buffers_[i] == nullptr) {
        throw Error(ErrorKind::kDevice, cat("[vulkan] program '", program_.name, "': '",
                                            binding.name, "' is not a buffer of this device"));
      }
    }
  }
}

std::vector<std::vector<VulkanExecutable::Dispatch>> VulkanExecutable::dispatches() {
  std::vector<std::vector<Dispatch>> all(kVariants);
  const bool mixed = uses_rows_ && uses_out_rows_;
  const size_t last = halves_.empty()            ? kWide
                      : workspace_.limits().wide ? kVariants - 1
                                                 : kDecodeCoopMatrix - 1;
  for (size_t variant = mixed ? kWide : 0; variant <= last; ++variant) {
    all[variant] = dispatches(variant);
  }
  return all;
}

VulkanExecutable::Needs VulkanExecutable::needs(const CorePtr& core, const Program& program,
                                                VulkanWorkspace& workspace) {
  VulkanExecutable sketch(core, program, workspace);
  std::vector<std::unique_ptr<VulkanBuffer>> buffers(program.slots.size());
  for (size_t i = 0; i < buffers.size(); ++i) {
    const Slot& slot = program.slots[i];
    if (slot.kind == SlotKind::kTemp || slot.dtype == DType::kI32) continue;
    const auto shape = state_in(program, static_cast<int>(i));
    buffers[i] = shape ? std::make_unique<VulkanBuffer>(states_bytes(workspace.limits(), *shape))
                       : std::make_unique<VulkanBuffer>(core, slot, workspace.limits());
    sketch.buffers_[i] = buffers[i].get();
  }
  sketch.lay_weights();
  const Tuner::Preview preview(core->tuner);
  Needs needs;
  std::vector<std::vector<Dispatch>> all = sketch.dispatches();
  for (size_t variant = 0; variant < kVariants; ++variant) {
    for (Dispatch& dispatch : all[variant]) {
      needs.pipelines[variant].push_back(std::move(dispatch.key));
    }
  }
  for (size_t i = 0; i < buffers.size(); ++i) {
    const Slot& slot = program.slots[i];
    const bool stays = slot.kind == SlotKind::kWeight || slot.dims.size() == 1;
    if (buffers[i] != nullptr && stays) needs.memory.push_back({i, buffers[i]->parts()});
  }
  return needs;
}

VulkanExecutable::VulkanExecutable(CorePtr core, const Program& program, VulkanWorkspace& workspace,
                                   std::span<const Binding> bindings)
    : VulkanExecutable(std::move(core), program, workspace) {
  bind(bindings);
  lay_weights();
  const auto keeps = [](const Step& step) {
    return step.op == Op::k_conv_rows || step.op == Op::k_delta;
  };
  if (std::ranges::any_of(program_.steps, keeps)) {
    state_slots_ = Allocation(core_->memory,
                              std::max<size_t>(workspace_.limits().sequences, 1) * sizeof(uint32_t),
                              MemoryUse::kUpload);
    CHECK(state_slots_.mapped() != nullptr);
  }
  std::vector<std::vector<Dispatch>> all = dispatches();
  for (const VulkanBuffer* buffer : buffers_) {
    if (buffer != nullptr) last_fill_ = std::max(last_fill_, buffer->last_fill());
  }
  std::vector<const Ranges*> ranges;
  for (const auto& variant : all) {
    for (const Dispatch& dispatch : variant) ranges.push_back(&dispatch.ranges);
  }
  sets_.make(core_->context, core_->pipelines, ranges);
  for (size_t variant = kWide; variant < kVariants; ++variant) {
    Allocation& counts = counts_[variant - kWide];
    counts = Allocation(
        core_->memory, std::max<size_t>(all[variant].size(), 1) * sizeof(VkDispatchIndirectCommand),
        MemoryUse::kUpload);
    CHECK(counts.mapped() != nullptr);
  }
  for (size_t variant = 0; variant < kVariants; ++variant) {
    for (Dispatch& dispatch : all[variant]) {
      sets_.bind(core_->context, core_->pipelines, dispatch.key, dispatch.ranges, dispatch);
      commands_[variant].push_back(std::move(dispatch));
    }
  }
  make_stamps();
}

VulkanBuffer& VulkanExecutable::bound(int index) const {
  VulkanBuffer* buffer = buffers_[static_cast<size_t>(index)];
  if (buffer == nullptr) {
    throw Error(ErrorKind::kDevice, cat("[vulkan] program '", program_.name, "': slot '",
                                        slot(index).name, "' is not bound"));
  }
  return *buffer;
}

VulkanBuffer& VulkanExecutable::bound_weight(int index) const {
  const Slot& s = slot(index);
  VulkanBuffer& buffer = bound(index);
  if (!buffer.is_weight() || buffer.view().dims != s.dims || buffer.view().dtype != s.dtype) {
    const std::string got = buffer.is_weight() ? cat(dtype_name(buffer.view().dtype), " ",
                                                     to_string(buffer.view().dims))
                                               : "a plain buffer";
    throw Error(ErrorKind::kDevice,
                cat("[vulkan] weight '", s.name, "': expected ", dtype_name(s.dtype), " ",
                    to_string(s.dims), ", got ", got));
  }
  return buffer;
}

VulkanExecutable::Place VulkanExecutable::place(int index, WeightLayout layout) const {
  const Slot& s = slot(index);
  const bool rowwise = s.dims.size() == 2 && s.dims[0] < 0;
  const size_t row_bytes = rowwise ? static_cast<size_t>(s.dims[1]) * dtype_size(s.dtype) : 0;
  if (s.kind == SlotKind::kTemp) {
    return {&workspace_.arena(), s.offset * workspace_.capacity(), workspace_.capacity()};
  }
  VulkanBuffer& buffer = bound(index);
  if (buffer.is_weight()) return {&bound_weight(index).weight(layout), 0, 0};
  const size_t rows = rowwise ? buffer.size() / row_bytes : 0;
  if (rowwise && rows == 0) {
    throw Error(ErrorKind::kDevice, cat("[vulkan] slot '", s.name, "': a buffer of ", buffer.size(),
                                        " bytes has no row of ", row_bytes));
  }
  return {&buffer.plain(), 0, rows};
}

Range VulkanExecutable::whole(int index) const {
  const Slot& s = slot(index);
  const Place at = place(index);
  size_t bytes = at.allocation->size() - at.offset;
  if (s.kind == SlotKind::kTemp) {
    bytes = static_cast<size_t>(s.dims[1]) * dtype_size(s.dtype) * at.rows;
  }
  bytes = (bytes + 3) / 4 * 4;
  const size_t limit = core_->context.capabilities().max_range;
  if (bytes > limit) {
    throw Error(ErrorKind::kDevice, cat("[vulkan] '", s.name, "': ", bytes,
                                        " bytes, a binding of this device has at most ", limit));
  }
  return part(*at.allocation, at.offset, bytes);
}

Range VulkanExecutable::rowwise(int index, uint32_t row_base, uint32_t row_piece,
                                const Halves& halves) const {
  const Slot& s = slot(index);
  const Place at = place(index);
  const bool half = !halves.empty() && halves[static_cast<size_t>(index)];
  const size_t row_bytes = static_cast<size_t>(s.dims[1]) * (half ? 2 : dtype_size(s.dtype));
  // A piece past the buffer's rows is never run: bind its first rows, so that the set is whole.
  const size_t base = row_base < at.rows ? row_base : 0;
  const size_t rows = std::min<size_t>(row_piece, at.rows - base);
  return part(*at.allocation, at.offset + base * row_bytes, rows * row_bytes);
}

Range VulkanExecutable::ranges_of(const Bind& bind, uint32_t row_base, uint32_t row_piece,
                                  const Halves& halves) const {
  if (bind.kind == Bind::Kind::kRowwise) return rowwise(bind.slot, row_base, row_piece, halves);
  if (bind.kind == Bind::Kind::kWhole) return whole(bind.slot);
  if (bind.kind == Bind::Kind::kCache) {
    const Allocation& cache = bound(bind.slot).plain();
    return part(cache, 0, cache.size());
  }
  const Slot& s = slot(bind.slot);
  const size_t limit = core_->context.capabilities().max_range;
  const size_t row_bytes = row_stride(s) * dtype_size(s.dtype);
  const size_t rows = table_piece_rows(s, limit);
  const auto all_rows = static_cast<size_t>(s.dims[0]);
  if (rows == 0 || rows * kTablePieces < all_rows) {
    throw Error(ErrorKind::kDevice,
                cat("[vulkan] table '", s.name, "': ", all_rows * row_bytes, " bytes, ",
                    kTablePieces, " bindings of this device have at most ", limit, " bytes each"));
  }
  const Place at = place(bind.slot);
  const size_t base = bind.piece * rows < all_rows ? bind.piece * rows : 0;
  const size_t bytes = std::min(rows, all_rows - base) * row_bytes;
  return part(*at.allocation, base * row_bytes, (bytes + 3) / 4 * 4);
}

Range VulkanExecutable::symbols() const {
  return part(workspace_.symbols(), 0, workspace_.symbols().size());
}

uint32_t VulkanExecutable::piece_rows(const std::vector<int>& slots, size_t max_rows) const {
  const size_t limit = core_->context.capabilities().max_range;
  const uint32_t capacity = workspace_.capacity();
  size_t rows = std::min<size_t>(capacity, max_rows);
  for (const int index : slots) {
    const Slot& s = slot(index);
    const size_t row_bytes = static_cast<size_t>(s.dims[1]) * dtype_size(s.dtype);
    const size_t fit = limit / row_bytes;
    if (fit < std::min<size_t>(capacity, kPieceAlign)) {
      throw Error(ErrorKind::kDevice, cat("[vulkan] slot '", s.name, "': rows of ", row_bytes,
                                          " bytes, a binding of this device has at most ", limit));
    }
    rows = std::min(rows, fit);
  }
  if (rows >= capacity) return capacity;
  // Fewer where each row begins at an aligned offset.
  const bool aligned = std::ranges::all_of(slots, [&](int index) {
    constexpr size_t kOffsets = 256;  // bytes, of any device
    return static_cast<size_t>(slot(index).dims[1]) * dtype_size(slot(index).dtype) % kOffsets == 0;
  });
  if (aligned && rows > 0 && rows < kPieceAlign) return static_cast<uint32_t>(rows);
  return static_cast<uint32_t>(std::max<size_t>(rows / kPieceAlign, 1) * kPieceAlign);
}

PipelineKey VulkanExecutable::key_of(const KeptKernel& kernel, const Step& step,
                                     uint32_t workgroup) const {
  PipelineKey result;
  result.text = kernel.text;
  const Capabilities& device = core_->context.capabilities();
  add_constants(result, {{Constant::WORKGROUP, workgroup},
                         {Constant::SUBGROUP, device.subgroup},
                         {Constant::CAPACITY, workspace_.capacity()},
                         {Constant::ROW_COUNT,
                          step.rows == kOutRows ? shader::COUNT_OF_OUTS : shader::COUNT_OF_ROWS},
                         {Constant::ROW_UNROLL, device.small_tiles ? 1u : 4u},
                         {Constant::SUM_LANES, std::min(workgroup, row_lanes(device))}});
  return result;
}

}  // namespace split::vulkan
