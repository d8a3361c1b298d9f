#include "device/vulkan/executable.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "tensor/tensor.h"

namespace split::vulkan {
namespace {

constexpr uint32_t kAttentionLanes = 128;           // one a key of a split
constexpr size_t kScratchBytes = size_t{64} << 20;  // of attention's partial results
constexpr size_t kSharedBytes = 16 * 1024;
constexpr uint32_t kWideBlock = 8;  // rows of a workgroup of the wide matmul

uint32_t ceil_div(uint64_t a, uint64_t b) { return static_cast<uint32_t>((a + b - 1) / b); }

// How a matmul's work is laid on lanes. `lanes` fixes the order of the sum, so it depends on K and
// the device alone; the others only move work.
struct MatmulShape {
  uint32_t workgroup = 0, lanes = 0, columns_per_lane = 0, unroll = 0;
  uint32_t columns() const { return workgroup / lanes * columns_per_lane; }
};

MatmulShape matmul_shape(const Capabilities& device, int64_t inner, uint32_t block) {
  const auto chunks = static_cast<uint32_t>((inner + 7) / 8);
  MatmulShape shape;
  if (device.small_tiles) {
    // Larger tiles run 1.4 times faster there and take twice as long to compile.
    shape = {64, 8, block >= 4 ? 1u : 2u, 1};
  } else {
    // 16 lanes hide a row's latency up to K = 2048, more are needed past it (notes: GEMV shape).
    shape = {128, inner <= 2048 ? 16u : 64u, block >= 4 ? 4u : 1u, 4};
    shape.unroll = std::clamp(ceil_div(chunks, shape.lanes), 1u, block >= 4 ? 1u : 4u);
  }
  // Lanes that shuffles do not reach exchange sums through shared memory.
  while (shape.lanes > device.subgroup && shape.columns_per_lane > 1 &&
         size_t{block} * shape.columns_per_lane * shape.workgroup * 4 > kSharedBytes) {
    shape.columns_per_lane /= 2;
  }
  return shape;
}

}  // namespace

VulkanExecutable::VulkanExecutable(CorePtr core, const Program& program, VulkanWorkspace& workspace,
                                   std::span<const Binding> bindings)
    : core_(std::move(core)), workspace_(workspace), program_(program) {
  buffers_.resize(program_.slots.size(), nullptr);
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
  if (program_.arena_row_bytes > workspace_.limits().arena_row_bytes) {
    throw Error(
        ErrorKind::kDevice,
        cat("[vulkan] program '", program_.name, "' needs ", program_.arena_row_bytes,
            " bytes of arena a row, the workspace has ", workspace_.limits().arena_row_bytes));
  }
  max_rows_ = workspace_.limits().rows;
  max_out_rows_ = workspace_.limits().rows;
  for (const Step& step : program_.steps) {
    (step.rows == kOutRows ? uses_out_rows_ : uses_rows_) = true;
    for (const Operand& operand : step.tape.operands) {
      if (operand.access != Access::kGather || slot(operand.slot).dims[0] < 0) continue;
      int64_t& limit = slot(operand.index).name == "tokens" ? token_limit_ : position_limit_;
      const int64_t rows = slot(operand.slot).dims[0];
      limit = limit < 0 ? rows : std::min(limit, rows);
    }
  }
  std::vector<std::vector<Dispatch>> all(kWide + 1);
  const bool mixed = uses_rows_ && uses_out_rows_;
  for (size_t variant = mixed ? kWide : 0; variant <= kWide; ++variant) {
    all[variant] = dispatches(variant);
  }
  std::vector<PipelineKey> keys;
  for (const auto& variant : all) {
    for (const Dispatch& dispatch : variant) keys.push_back(dispatch.pipeline);
  }
  core_->pipelines.prepare(keys);
  make_sets(all);
  counts_ = Allocation(core_->memory,
                       std::max<size_t>(all[kWide].size(), 1) * sizeof(VkDispatchIndirectCommand),
                       MemoryUse::kUpload);
  CHECK(counts_.mapped() != nullptr);
  for (size_t variant = 0; variant <= kWide; ++variant) {
    if (variant == kWide || !mixed) record(variant, all[variant]);
  }
  for (Dispatch& dispatch : all[kWide]) {
    dispatch.pipeline = {};  // only the counts are needed from here on
    wide_.push_back(std::move(dispatch));
  }
}

VulkanExecutable::~VulkanExecutable() {
  for (const auto& variant : recorded_) {
    for (const Recorded& recorded : variant) {
      vkFreeCommandBuffers(core_->context.device(), core_->context.pool(), 1, &recorded.commands);
    }
  }
}

VulkanBuffer& VulkanExecutable::bound(int index) const {
  VulkanBuffer* buffer = buffers_[static_cast<size_t>(index)];
  if (buffer == nullptr) {
    throw Error(ErrorKind::kDevice, cat("[vulkan] program '", program_.name, "': slot '",
                                        slot(index).name, "' is not bound"));
  }
  return *buffer;
}

VulkanExecutable::Place VulkanExecutable::place(int index, WeightLayout layout) const {
  const Slot& s = slot(index);
  const bool rowwise = s.dims.size() == 2 && s.dims[0] < 0;
  const size_t row_bytes = rowwise ? static_cast<size_t>(s.dims[1]) * dtype_size(s.dtype) : 0;
  if (s.kind == SlotKind::kTemp) {
    return {&workspace_.arena(), s.offset * workspace_.capacity(), workspace_.capacity()};
  }
  VulkanBuffer& buffer = bound(index);
  if (buffer.is_weight()) {
    if (buffer.view().dims != s.dims || buffer.view().dtype != s.dtype) {
      throw Error(ErrorKind::kDevice,
                  cat("[vulkan] weight '", s.name, "': expected ", dtype_name(s.dtype), " ",
                      to_string(s.dims), ", got ", dtype_name(buffer.view().dtype), " ",
                      to_string(buffer.view().dims)));
    }
    return {&buffer.weight(layout), 0, 0};
  }
  const size_t rows = rowwise ? buffer.size() / row_bytes : 0;
  if (rowwise && rows == 0) {
    throw Error(ErrorKind::kDevice, cat("[vulkan] slot '", s.name, "': a buffer of ", buffer.size(),
                                        " bytes has no row of ", row_bytes));
  }
  return {&buffer.plain(), 0, rows};
}

VulkanExecutable::Range VulkanExecutable::whole(int index) const {
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
  return {at.allocation->buffer(), at.offset, bytes};
}

VulkanExecutable::Range VulkanExecutable::rowwise(int index, uint32_t row_base,
                                                  uint32_t row_piece) const {
  const Slot& s = slot(index);
  const Place at = place(index);
  const size_t row_bytes = static_cast<size_t>(s.dims[1]) * dtype_size(s.dtype);
  // A piece past the buffer's rows is never run: bind its first rows, so that the set is whole.
  const size_t base = row_base < at.rows ? row_base : 0;
  const size_t rows = std::min<size_t>(row_piece, at.rows - base);
  return {at.allocation->buffer(), at.offset + base * row_bytes, rows * row_bytes};
}

VulkanExecutable::Range VulkanExecutable::ranges_of(const Bind& bind, uint32_t row_base,
                                                    uint32_t row_piece) const {
  if (bind.kind == Bind::Kind::kRowwise) return rowwise(bind.slot, row_base, row_piece);
  if (bind.kind == Bind::Kind::kWhole) return whole(bind.slot);
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
  return {at.allocation->buffer(), base * row_bytes, (bytes + 3) / 4 * 4};
}

VulkanExecutable::Range VulkanExecutable::symbols() const {
  return {workspace_.symbols().buffer(), 0, workspace_.symbols().size()};
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
  return static_cast<uint32_t>(std::max<size_t>(rows / kPieceAlign, 1) * kPieceAlign);
}

PipelineKey VulkanExecutable::key(std::string text, const Step& step, uint32_t workgroup) const {
  PipelineKey result;
  result.text = std::move(text);
  result.constants = {{0, workgroup},
                      {1, core_->context.capabilities().subgroup},
                      {2, workspace_.capacity()},
                      {3, step.rows == kOutRows ? 1u : 0u}};
  return result;
}

namespace {

std::vector<int> rowwise_slots(const Kernel& kernel) {
  std::vector<int> result;
  for (const Bind& bind : kernel.binds) {
    if (bind.kind == Bind::Kind::kRowwise) result.push_back(bind.slot);
  }
  return result;
}

void add_tape_constants(const Kernel& kernel, PipelineKey& key) {
  for (size_t i = 0; i < kernel.constants.size(); ++i) {
    key.constants.emplace_back(kTapeConstants + static_cast<uint32_t>(i), kernel.constants[i]);
  }
}

}  // namespace

void VulkanExecutable::add_group(const Step& step, std::vector<Dispatch>& out) const {
  const Capabilities& device = core_->context.capabilities();
  const Kernel kernel = group_kernel(program_, step, device.subgroup > 1, device.max_range);
  const uint32_t piece = piece_rows(rowwise_slots(kernel), workspace_.capacity());
  for (uint32_t base = 0; base < workspace_.capacity(); base += piece) {
    Dispatch dispatch;
    dispatch.pipeline = key(kernel.text, step, device.small_tiles ? 64 : 256);
    dispatch.pipeline.constants.emplace_back(4, static_cast<uint32_t>(step.columns));
    add_tape_constants(kernel, dispatch.pipeline);
    dispatch.ranges.push_back(symbols());
    for (const Bind& bind : kernel.binds) dispatch.ranges.push_back(ranges_of(bind, base, piece));
    dispatch.push = {base, piece, 0, 0};
    dispatch.out_rows = step.rows == kOutRows;
    dispatch.waits = base == 0;
    out.push_back(std::move(dispatch));
  }
}

void VulkanExecutable::add_matmul(const Step& step, size_t variant,
                                  std::vector<Dispatch>& out) const {
  const Capabilities& device = core_->context.capabilities();
  const Slot& w = slot(step.w);
  if (w.kind != SlotKind::kWeight || step.x < 0) {
    throw Error(ErrorKind::kDevice, cat("[vulkan] program '", program_.name, "': matmul by '",
                                        w.name, "': expected a weight and no prologue"));
  }
  const Kernel kernel = matmul_kernel(program_, step, device.subgroup > 1, device.max_range);
  std::vector<int> rows_of = rowwise_slots(kernel);
  rows_of.push_back(step.x);
  const uint32_t piece = piece_rows(rows_of, workspace_.capacity());

  const uint32_t block = variant == kWide ? kWideBlock : kNarrowRows[variant];
  const MatmulShape shape = matmul_shape(device, step.inner, block);
  const size_t w_row = static_cast<size_t>((step.inner + 7) / 8 * 8) * dtype_size(w.dtype);
  const auto all_columns = static_cast<size_t>(step.columns);
  size_t columns =
      std::min(device.max_range / w_row,
               size_t{shape.columns()} * device.properties.limits.maxComputeWorkGroupCount[0]);
  if (columns < all_columns) columns = columns / kPieceAlign * kPieceAlign;
  if (columns == 0) {
    throw Error(ErrorKind::kDevice,
                cat("[vulkan] matrix '", w.name, "': rows of ", w_row,
                    " bytes, a binding of this device has at most ", device.max_range));
  }
  const Allocation& matrix =
      *place(step.w, w.transposed ? WeightLayout::kRows : WeightLayout::kColumns).allocation;
  bool first = true;
  for (uint32_t base = 0; base < (variant == kWide ? workspace_.capacity() : 1u); base += piece) {
    for (size_t column = 0; column < all_columns; column += columns) {
      const size_t count = std::min(columns, all_columns - column);
      Dispatch dispatch;
      dispatch.pipeline = key(kernel.text, step, shape.workgroup);
      const uint32_t exact = variant < 2 ? kNarrowRows[variant] : 0;
      for (const auto& [id, value] : std::initializer_list<std::pair<uint32_t, uint32_t>>{
               {4, static_cast<uint32_t>(step.columns)},
               {5, static_cast<uint32_t>(step.inner)},
               {6, shape.lanes},
               {7, block},
               {8, shape.columns_per_lane},
               {9, shape.unroll},
               {10, type_code(w.dtype)},
               {11, exact}}) {
        dispatch.pipeline.constants.emplace_back(id, value);
      }
      add_tape_constants(kernel, dispatch.pipeline);
      dispatch.ranges = {symbols(),
                         rowwise(step.x, base, piece),
                         {matrix.buffer(), column * w_row, count * w_row}};
      for (const Bind& bind : kernel.binds) dispatch.ranges.push_back(ranges_of(bind, base, piece));
      dispatch.push = {base, piece, static_cast<uint32_t>(column), static_cast<uint32_t>(count)};
      dispatch.groups[0] = ceil_div(count, shape.columns());
      dispatch.row_axis = 1;
      dispatch.rows_per_group = block;
      dispatch.out_rows = step.rows == kOutRows;
      dispatch.waits = first;
      dispatch.weights = static_cast<uint64_t>(step.inner) * count;
      first = false;
      out.push_back(std::move(dispatch));
    }
  }
}

void VulkanExecutable::add_cache_ranges(int cache, std::vector<Range>& out,
                                        uint32_t& piece_pages) const {
  const Slot& s = slot(cache);
  const size_t limit = core_->context.capabilities().max_range;
  const size_t page_bytes = kPageTokens * static_cast<size_t>(s.dims.back()) * dtype_size(s.dtype);
  const Allocation& buffer = bound(cache).plain();
  const size_t pages = buffer.size() / page_bytes;
  constexpr size_t kAlignedPages = 8;  // 32 bytes each at least: offsets are multiples of 256
  size_t piece = limit / page_bytes;
  if (piece < pages) piece = piece / kAlignedPages * kAlignedPages;
  if (pages == 0 || piece * kCachePieces < pages) {
    throw Error(ErrorKind::kDevice,
                cat("[vulkan] cache '", s.name, "': ", buffer.size(), " bytes, ", kCachePieces,
                    " bindings of this device have at most ", limit, " bytes each"));
  }
  piece = std::min(piece, pages);
  for (uint32_t p = 0; p < kCachePieces; ++p) {
    const size_t base = p * piece < pages ? p * piece : 0;
    out.push_back({buffer.buffer(), base * page_bytes, std::min(piece, pages - base) * page_bytes});
  }
  piece_pages = static_cast<uint32_t>(piece);
}

void VulkanExecutable::add_attention(const Step& step, std::vector<Dispatch>& out) {
  const Capabilities& device = core_->context.capabilities();
  const bool shuffle = device.subgroup > 1;
  const auto heads = static_cast<uint32_t>(step.heads);
  const auto size = static_cast<uint32_t>(step.columns / step.heads);
  const uint32_t splits = workspace_.splits();
  const DType kv = slot(step.k_cache).dtype;
  if (slot(step.v_cache).dtype != kv || type_code(kv) > 1) {
    throw Error(ErrorKind::kDevice,
                cat("[vulkan] caches of ", dtype_name(kv), " and ",
                    dtype_name(slot(step.v_cache).dtype), ": expected both F32 or both F16"));
  }
  if (size * sizeof(float) + 2 * kAttentionLanes * sizeof(float) + 64 > kSharedBytes) {
    throw Error(ErrorKind::kDevice, cat("[vulkan] attention: heads of ", size,
                                        " elements exceed 16 KiB of shared memory"));
  }
  const size_t partial_row = size_t{heads} * splits * (size + 2) * sizeof(float);
  const size_t budget = std::min(device.max_range, kScratchBytes) / partial_row;
  const uint32_t piece = piece_rows({step.qkv, step.out}, std::max<size_t>(budget, 1));
  if (piece > std::max<size_t>(budget, kPieceAlign) || piece * partial_row > device.max_range) {
    throw Error(ErrorKind::kDevice,
                cat("[vulkan] attention: partial results of ", partial_row,
                    " bytes a row, a binding of this device has at most ", device.max_range));
  }
  scratch_.push_back(workspace_.scratch(piece * partial_row));
  const Range partial{scratch_.back()->buffer(), 0, piece * partial_row};
  std::vector<Range> caches;
  uint32_t piece_pages = 0;
  add_cache_ranges(step.k_cache, caches, piece_pages);
  uint32_t v_pages = 0;
  add_cache_ranges(step.v_cache, caches, v_pages);
  if (v_pages != piece_pages) {
    throw Error(ErrorKind::kDevice, "[vulkan] attention: caches of K and V of different sizes");
  }
  const auto with_pages = [&](PipelineKey key) {
    for (const auto& [id, value] : std::initializer_list<std::pair<uint32_t, uint32_t>>{
             {5, heads},
             {6, size},
             {7, workspace_.limits().pages_per_sequence},
             {8, piece_pages},
             {9, type_code(kv)}}) {
      key.constants.emplace_back(id, value);
    }
    return key;
  };
  for (uint32_t base = 0; base < workspace_.capacity(); base += piece) {
    Dispatch store;
    store.pipeline = with_pages(key(kv_store_text(shuffle), step, device.small_tiles ? 64 : 256));
    store.ranges = {symbols(), rowwise(step.qkv, base, piece), partial};
    store.ranges.insert(store.ranges.end(), caches.begin(), caches.end());
    store.push = {base, piece, 0, 0};
    store.waits = base == 0;
    out.push_back(std::move(store));
  }
  for (uint32_t base = 0; base < workspace_.capacity(); base += piece) {
    Dispatch split;
    split.pipeline = with_pages(key(attention_text(shuffle), step, kAttentionLanes));
    split.pipeline.constants.emplace_back(10, splits);
    split.pipeline.constants.emplace_back(11, std::bit_cast<uint32_t>(step.scale));
    split.ranges = {symbols(), rowwise(step.qkv, base, piece), partial};
    split.ranges.insert(split.ranges.end(), caches.begin(), caches.end());
    split.push = {base, piece, 0, 0};
    split.groups = {heads, splits, 1};
    split.row_axis = 2;
    out.push_back(std::move(split));

    Dispatch merge;
    merge.pipeline = key(merge_text(shuffle), step, device.small_tiles ? 64 : 256);
    merge.pipeline.constants.emplace_back(5, heads);
    merge.pipeline.constants.emplace_back(6, size);
    merge.pipeline.constants.emplace_back(7, splits);
    merge.ranges = {symbols(), partial, rowwise(step.out, base, piece)};
    merge.push = {base, piece, 0, 0};
    out.push_back(std::move(merge));
  }
}

std::vector<VulkanExecutable::Dispatch> VulkanExecutable::dispatches(size_t variant) {
  std::vector<Dispatch> all;
  for (const Step& step : program_.steps) {
    const size_t first = all.size();
    switch (step.kind) {
      case StepKind::kGroup:
        add_group(step, all);
        break;
      case StepKind::kMatmul:
        add_matmul(step, variant, all);
        break;
      case StepKind::kAttention:
        add_attention(step, all);
        break;
    }
    // A narrow variant's rows are all in the first piece.
    if (variant != kWide) {
      all.erase(std::remove_if(all.begin() + static_cast<std::ptrdiff_t>(first), all.end(),
                               [](const Dispatch& d) { return d.push.row_base > 0; }),
                all.end());
    }
  }
  const auto limit =
      core_->context.capabilities().properties.limits.maxPerStageDescriptorStorageBuffers;
  for (Dispatch& dispatch : all) {
    dispatch.pipeline.bindings = static_cast<uint32_t>(dispatch.ranges.size());
    if (dispatch.pipeline.bindings > limit) {
      throw Error(ErrorKind::kDevice,
                  cat("[vulkan] program '", program_.name, "': a step binds ",
                      dispatch.pipeline.bindings, " buffers, this device has ", limit));
    }
    if (variant != kWide) {
      dispatch.groups[dispatch.row_axis] = ceil_div(kNarrowRows[variant], dispatch.rows_per_group);
    }
  }
  return all;
}

}  // namespace split::vulkan
