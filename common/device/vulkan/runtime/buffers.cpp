#include "device/vulkan/runtime/buffers.h"

#include <algorithm>
#include <cstring>

#include "device/vulkan/codegen/numbers.h"
#include "device/vulkan/runtime/transpose.h"
#include "device/vulkan/tuning/lane_order.h"
#include "device/vulkan/tuning/layouts.h"

namespace split::vulkan {
namespace {

size_t padded(size_t elements) { return (elements + 7) / 8 * 8; }

}  // namespace

size_t cache_bytes(const Limits& limits, int64_t channels, DType dtype) {
  return tensor_bytes(dtype, {(int64_t{limits.pages} + 1) * kPageTokens, channels}).value();
}

VulkanBuffer::VulkanBuffer(CorePtr core, size_t bytes, MemoryUse use)
    : core_(std::move(core)), size_(bytes), plain_(std::in_place, core_->memory, bytes, use) {}

VulkanBuffer::VulkanBuffer(size_t bytes)
    : size_(bytes), sketch_(true), plain_(std::in_place, bytes) {}

VulkanBuffer::VulkanBuffer(CorePtr core, const TensorView& view)
    : core_(std::move(core)), size_(view.bytes.size()), view_(view) {}

VulkanBuffer::VulkanBuffer(CorePtr core, const Slot& slot, const Limits& limits)
    : core_(std::move(core)), sketch_(true) {
  if (slot.kind == SlotKind::kWeight) {
    view_ = {slot.dtype, slot.dims, {}};
    size_ = tensor_bytes(slot.dtype, slot.dims).value();
    return;
  }
  const bool cache = slot.dims.size() == 1;
  size_ = cache ? cache_bytes(limits, slot.dims[0], slot.dtype)
                : limits.most_rows() * static_cast<size_t>(slot.dims[1]) * dtype_size(slot.dtype);
  plain_.emplace(size_);
}

std::vector<size_t> VulkanBuffer::parts() const {
  std::vector<size_t> sizes;
  for (const auto* made : {&plain_, &rows_, &columns_, &scales_}) {
    if (made->has_value()) sizes.push_back((*made)->size());
  }
  return sizes;
}

Allocation VulkanBuffer::room(size_t bytes) const {
  return sketch_ ? Allocation(bytes) : Allocation(core_->memory, bytes, MemoryUse::kModel);
}

void VulkanBuffer::fill(const Allocation& to, size_t unit, const WeightWriter::Make& make,
                        WeightWriter::Cut cut) {
  if (!sketch_) last_fill_ = core_->memory.fill(to, unit, make, cut);
  for (VulkanBuffer* other : behind_) {
    other->laid_ = true;
    other->last_fill_ = last_fill_;
  }
}

void VulkanBuffer::lay_before(std::vector<VulkanBuffer*> others) {
  CHECK(behind_ == others || (!rows_.has_value() && !columns_.has_value()));
  behind_ = std::move(others);
}

void VulkanBuffer::lay_by_segments() {
  CHECK(by_segments_ || !rows_.has_value());
  by_segments_ = true;
}

const std::byte* VulkanBuffer::ViewRows::operator[](size_t row) const {
  size_t i = 0;
  while (row >= views[i].first) row -= views[i++].first;
  return views[i].second + row * bytes;
}

VulkanBuffer::ViewRows VulkanBuffer::view_rows(size_t bytes) const {
  ViewRows rows{{}, bytes, 0};
  const auto add = [&](const VulkanBuffer& weight) {
    const size_t count = weight.size_ / bytes;
    rows.views.emplace_back(count, weight.view_->bytes.data());
    rows.count += count;
  };
  add(*this);
  for (const VulkanBuffer* other : behind_) add(*other);
  return rows;
}

const Allocation& VulkanBuffer::plain() const {
  CHECK(plain_.has_value());
  return *plain_;
}

const Allocation& VulkanBuffer::weight(WeightLayout layout) {
  CHECK(view_.has_value() && !laid_);
  if (is_quantised(view_->dtype)) {
    CHECK(layout == WeightLayout::kRows);
    if (!rows_.has_value()) split_blocks();
    return *rows_;
  }
  if (view_->dims.size() != 2) layout = WeightLayout::kRows;
  std::optional<Allocation>& made = layout == WeightLayout::kRows ? rows_ : columns_;
  if (made.has_value()) return *made;
  const size_t element = dtype_size(view_->dtype);
  if (view_->dims.size() != 2) {
    const ViewRows from = view_rows(element);
    Allocation result = room(from.count * element);
    fill(result, element, [=](const WeightWriter::Part& part, std::byte* out) {
      for (size_t i = 0; i < part.count; ++i) {
        std::memcpy(out + i * element, from[part.first + i], element);
      }
    });
    made = std::move(result);
    return *made;
  }
  const auto outer = static_cast<size_t>(view_->dims[0]);
  const auto inner = static_cast<size_t>(view_->dims[1]);
  const ViewRows from = view_rows(inner * element);
  const size_t rows = layout == WeightLayout::kRows ? from.count : inner;
  const size_t columns = layout == WeightLayout::kRows ? inner : outer;
  const size_t stride = padded(columns);
  Allocation result = room(rows * stride * element);
  if (layout == WeightLayout::kColumns) {
    const auto make = [=](const WeightWriter::Part& part, std::byte* out) {
      const size_t first = part.from / element, length = part.bytes / element;
      const std::byte* const rows_of_k = from[first];
      const size_t k = std::min(length, outer - first);  // zeros follow
      (element == 2 ? transpose_rows<uint16_t> : transpose_rows<uint32_t>)(rows_of_k, k, inner,
                                                                           part.first, part.count,
                                                                           length, out);
    };
    // Takes a few cache lines of each row of the view: its page is looked up for each strip.
    constexpr size_t kStripBytes = 512, kPartBytes = 1024;
    fill(result, stride * element, make, {kStripBytes / element, kPartBytes});
  } else {
    const auto make = [=](const WeightWriter::Part& part, std::byte* out) {
      for (size_t i = 0; i < part.count; ++i) {
        std::byte* const row = out + i * stride * element;
        std::memcpy(row, from[part.first + i], columns * element);
        std::memset(row + columns * element, 0, (stride - columns) * element);
      }
    };
    fill(result, stride * element, make);
  }
  made = std::move(result);
  return *made;
}

const Allocation& VulkanBuffer::scales() const {
  CHECK(scales_.has_value());
  return *scales_;
}

void VulkanBuffer::split_blocks() {
  const DType dtype = view_->dtype;
  const int64_t inner = view_->dims[1];
  const ViewRows from = view_rows(row_bytes(dtype, static_cast<size_t>(inner)));
  const LaneOrder order(dtype, inner,
                        by_segments_
                            ? kBySegments
                            : matmul_lanes(core_->context.capabilities(), inner,
                                           static_cast<int64_t>(from.count), !behind_.empty()));
  Allocation numbers = room(from.count * order.number_bytes());
  fill(numbers, order.number_bytes(), [=](const WeightWriter::Part& part, std::byte* out) {
    for (size_t i = 0; i < part.count; ++i, out += order.number_bytes()) {
      order.write_numbers(from[part.first + i], out);
    }
  });
  scales_ = room(from.count * order.scale_bytes());
  fill(*scales_, order.scale_bytes(), [=](const WeightWriter::Part& part, std::byte* out) {
    for (size_t i = 0; i < part.count; ++i, out += order.scale_bytes()) {
      order.write_scales(from[part.first + i], out);
    }
  });
  rows_ = std::move(numbers);
}

VulkanWorkspace::VulkanWorkspace(CorePtr core, const Limits& limits)
    : core_(std::move(core)),
      limits_(limits),
      capacity_((std::max(limits.most_rows(), 1u) + 7) / 8 * 8),
      arena_(core_->memory, limits.arena_row_bytes * capacity_, MemoryUse::kDevice),
      symbols_(core_->memory,
               (shader::HEADER_WORDS + size_t{shader::SYMBOL_ARRAYS} * capacity_ +
                (size_t{limits.sequences} + shader::NARROW_ROWS) * limits.pages_per_sequence) *
                   sizeof(uint32_t),
               MemoryUse::kUpload) {
  CHECK(symbols_.mapped() != nullptr);
  std::memset(symbols_.mapped(), 0, symbols_.size());
}

VulkanWorkspace::~VulkanWorkspace() {
  for (Copy* copy : {&in_, &out_}) {
    if (copy->commands == VK_NULL_HANDLE) continue;
    vkFreeCommandBuffers(core_->context.device(), core_->context.pool(), 1, &copy->commands);
  }
}

uint32_t VulkanWorkspace::splits() const {
  const uint64_t keys = uint64_t{limits_.pages_per_sequence} * kPageTokens;
  return static_cast<uint32_t>(std::max<uint64_t>((keys + kSplitKeys - 1) / kSplitKeys, 1));
}

uint32_t VulkanWorkspace::runs() const {
  return reinterpret_cast<const uint32_t*>(symbols_.mapped())[shader::COUNT_OF_RUNS];
}

std::shared_ptr<Allocation> VulkanWorkspace::scratch(size_t bytes) {
  if (!scratch_ || scratch_->size() < kCountBytes + bytes) {
    // One size for all that ask for much, so that none is kept beside it.
    const size_t most = bytes > kScratchBytes / 2 ? std::max(bytes, kScratchBytes) : bytes;
    scratch_ = std::make_shared<Allocation>(core_->memory, kCountBytes + most, MemoryUse::kDevice);
    core_->memory.zero(*scratch_);
  }
  return scratch_;
}

void VulkanWorkspace::write_symbols(const RowBatch& batch) {
  const auto expect = [](bool good, const char* what) {
    if (!good) throw Error(ErrorKind::kDevice, cat("[vulkan] batch: ", what));
  };
  expect(batch.rows <= limits_.most_rows(), "more rows than the workspace has");
  expect(batch.tokens.empty() || batch.tokens.size() == batch.rows, "tokens: one a row");
  expect(batch.positions.empty() || batch.positions.size() == batch.rows, "positions: one a row");
  expect(batch.marks.empty() || batch.marks.size() == batch.rows, "marks: one a row");
  expect(batch.sequences.empty() || batch.sequences.size() == batch.rows, "sequences: one a row");
  expect(batch.seen.empty() || batch.seen.size() == batch.rows, "seen: one a row");
  expect(batch.page_tables.size() <= size_t{limits_.sequences} * limits_.pages_per_sequence,
         "more page tables than the workspace has");
  expect(batch.out_rows.size() <= batch.rows, "more output rows than rows");
  const uint64_t longest = uint64_t{limits_.pages_per_sequence} * kPageTokens;
  for (const int32_t position : batch.positions) {
    expect(position >= 0 && (longest == 0 || static_cast<uint64_t>(position) < longest),
           "a position past its page table");
  }
  for (const KeyRange& range : batch.seen) {
    expect(range.first < range.end && (longest == 0 || range.end <= longest),
           "a row that sees no key, or one past its page table");
  }
  for (const uint32_t sequence : batch.sequences) {
    expect(sequence < limits_.sequences, "a sequence without a page table");
  }
  for (const uint32_t page : batch.page_tables) {
    expect(page <= limits_.pages, "a page that is not there");
  }
  for (const uint32_t row : batch.out_rows) expect(row < batch.rows, "an output row past the rows");

  auto* words = reinterpret_cast<uint32_t*>(symbols_.mapped());
  words[shader::COUNT_OF_ROWS] = batch.rows;
  words[shader::COUNT_OF_OUTS] = static_cast<uint32_t>(batch.out_rows.size());
  const auto array = [&](StepArray symbol) {
    return words + shader::HEADER_WORDS + static_cast<size_t>(symbol) * capacity_;
  };
  const auto put = [&](StepArray symbol, const auto& values) {
    if (!values.empty()) std::memcpy(array(symbol), values.data(), values.size_bytes());
  };
  put(StepArray::TOKENS, batch.tokens);
  put(StepArray::POSITIONS, batch.positions);
  put(StepArray::MARKS, batch.marks);
  put(StepArray::SEQUENCES, batch.sequences);
  put(StepArray::OUT_ROWS, batch.out_rows);
  // Where each row's keys and values go, so that no kernel waits for a page to be looked up.
  uint32_t* const places = array(StepArray::PLACES);
  for (size_t row = 0; row < batch.sequences.size() && row < batch.positions.size(); ++row) {
    const auto position = static_cast<uint32_t>(batch.positions[row]);
    const size_t entry =
        size_t{batch.sequences[row]} * limits_.pages_per_sequence + position / kPageTokens;
    if (entry >= batch.page_tables.size()) break;
    places[row] = batch.page_tables[entry] * kPageTokens + position % kPageTokens;
  }
  for (size_t row = 0; row < batch.seen.size(); ++row) {
    array(StepArray::SEEN_FIRST)[row] = batch.seen[row].first;
    array(StepArray::SEEN_END)[row] = batch.seen[row].end;
  }
  uint32_t runs = 0;
  for (uint32_t row = 0; row < batch.sequences.size() && row < batch.positions.size(); ++row) {
    const bool follows = row > 0 && batch.sequences[row] == batch.sequences[row - 1] &&
                         batch.positions[row] == batch.positions[row - 1] + 1;
    if (!follows) array(StepArray::RUN_FIRST)[runs++] = row;
    array(StepArray::RUN_OF)[row] = runs - 1;
  }
  words[shader::COUNT_OF_RUNS] = runs;
  // The tables: of each row when rows are few, then of each sequence.
  uint32_t* const tables = array(StepArray::kCount);
  const size_t pages = limits_.pages_per_sequence;
  if (pages > 0 && batch.rows <= shader::NARROW_ROWS) {
    for (size_t row = 0; row < batch.sequences.size(); ++row) {
      const size_t from = size_t{batch.sequences[row]} * pages;
      if (from + pages > batch.page_tables.size()) break;
      std::memcpy(tables + row * pages, batch.page_tables.data() + from, pages * sizeof(uint32_t));
    }
  }
  if (!batch.page_tables.empty()) {
    std::memcpy(tables + shader::NARROW_ROWS * pages, batch.page_tables.data(),
                batch.page_tables.size_bytes());
  }
}

void VulkanWorkspace::begin(Copy& copy) {
  if (copy.commands == VK_NULL_HANDLE) copy.commands = core_->context.command_buffer();
  vulkan::begin(copy.commands);
}

void VulkanWorkspace::copy_in(const RowBatch& batch, std::vector<Segment>& segments) {
  if (batch.in == nullptr || batch.in_bytes.empty()) return;
  const Allocation& to = dynamic_cast<VulkanBuffer&>(*batch.in).plain();
  CHECK(batch.in_bytes.size() <= to.size());
  if (to.mapped() != nullptr) {
    std::memcpy(to.mapped(), batch.in_bytes.data(), batch.in_bytes.size());
    return;
  }
  if (!in_.staging || in_.staging->size() < batch.in_bytes.size()) {
    in_.staging.emplace(core_->memory, to.size(), MemoryUse::kUpload);
    in_.recorded = false;
  }
  std::memcpy(in_.staging->mapped(), batch.in_bytes.data(), batch.in_bytes.size());
  if (!in_.recorded || in_.buffer != to.buffer() || in_.offset != to.offset() ||
      in_.bytes != batch.in_bytes.size()) {
    begin(in_);
    barrier(in_.commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_ACCESS_SHADER_WRITE_BIT,
            VK_PIPELINE_STAGE_TRANSFER_BIT, VK_ACCESS_TRANSFER_WRITE_BIT);
    const VkBufferCopy region{in_.staging->offset(), to.offset(), batch.in_bytes.size()};
    vkCmdCopyBuffer(in_.commands, in_.staging->buffer(), to.buffer(), 1, &region);
    barrier(in_.commands, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_ACCESS_TRANSFER_WRITE_BIT,
            VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
            VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT);
    end(in_.commands);
    in_.buffer = to.buffer();
    in_.offset = to.offset();
    in_.bytes = batch.in_bytes.size();
    in_.recorded = true;
  }
  segments.push_back({in_.commands, {}});
}

CopyOut VulkanWorkspace::copy_out(const RowBatch& batch) {
  copy_ = {};
  if (batch.out == nullptr || batch.out_bytes.empty()) return copy_;
  const Allocation& out = dynamic_cast<VulkanBuffer&>(*batch.out).plain();
  CHECK(batch.out_offset <= out.size() && batch.out_bytes.size() <= out.size() - batch.out_offset);
  if (out.mapped() != nullptr && out.cached()) return copy_;
  if (!out_.staging || out_.staging->size() < batch.out_bytes.size()) {
    out_.staging.emplace(core_->memory, out.size(), MemoryUse::kReadback);
    ++stagings_;
  }
  copy_ = {out.buffer(),           out_.staging->buffer(), out.offset() + batch.out_offset,
           out_.staging->offset(), batch.out_bytes.size(), stagings_};
  return copy_;
}

void CopyOut::record(VkCommandBuffer commands) const {
  barrier(commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_ACCESS_SHADER_WRITE_BIT,
          VK_PIPELINE_STAGE_TRANSFER_BIT | VK_PIPELINE_STAGE_HOST_BIT,
          VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_HOST_READ_BIT | VK_ACCESS_HOST_WRITE_BIT);
  if (from == VK_NULL_HANDLE) return;
  const VkBufferCopy region{from_offset, to_offset, bytes};
  vkCmdCopyBuffer(commands, from, to, 1, &region);
  barrier(commands, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_ACCESS_TRANSFER_WRITE_BIT,
          VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_HOST_READ_BIT);
}

void VulkanWorkspace::copy_separately(const CopyOut& copy, std::vector<Segment>& segments) {
  if (!out_.recorded || apart_ != copy) {
    out_.recorded = false;
    begin(out_);
    copy.record(out_.commands);
    end(out_.commands);
    apart_ = copy;
    out_.recorded = true;
  }
  segments.push_back({out_.commands, {}});
}

void VulkanWorkspace::finish(const RowBatch& batch) {
  if (batch.out == nullptr || batch.out_bytes.empty()) return;
  const Allocation& out = dynamic_cast<VulkanBuffer&>(*batch.out).plain();
  const std::byte* from =
      copy_.from == VK_NULL_HANDLE ? out.mapped() + batch.out_offset : out_.staging->mapped();
  core_->memory.copy(from, batch.out_bytes);
}

}  // namespace split::vulkan
