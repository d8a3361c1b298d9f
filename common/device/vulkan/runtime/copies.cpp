// Moves bytes between host and device for Memory: by copies of the queue, and weights through a
// ring of staging memory.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/resources/granted.h"
#include "device/vulkan/runtime/memory.h"

namespace split::vulkan {
namespace {

constexpr size_t kPieceBytes = size_t{2} << 20;
constexpr size_t kReadbackBytes = size_t{32} << 20;  // past this size copies are no faster
constexpr std::chrono::milliseconds kSpin{1};
constexpr unsigned kMaxCopiers = 16;

}  // namespace

// Makes earlier writes visible to copies.
void Memory::begin_copies(VkCommandBuffer commands) const {
  begin(commands, VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT);
  barrier(commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, VK_ACCESS_MEMORY_WRITE_BIT,
          VK_PIPELINE_STAGE_TRANSFER_BIT, VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT);
}

// Makes the copies' writes visible to whatever follows.
void Memory::end_copies(VkCommandBuffer commands) const {
  barrier(commands, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_ACCESS_MEMORY_WRITE_BIT,
          VK_PIPELINE_STAGE_ALL_COMMANDS_BIT | VK_PIPELINE_STAGE_HOST_BIT,
          VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT | VK_ACCESS_HOST_READ_BIT);
  end(commands);
}

void Memory::copy(const Allocation* from, size_t from_offset, const Allocation& to,
                  size_t to_offset, size_t bytes) {
  if (commands_ == VK_NULL_HANDLE) commands_ = context_.command_buffer();
  begin_copies(commands_);
  if (from == nullptr) {
    vkCmdFillBuffer(commands_, to.buffer(), to.offset(), part_bytes(to.size()), 0);
  } else {
    const VkBufferCopy region{from->offset() + from_offset, to.offset() + to_offset, bytes};
    vkCmdCopyBuffer(commands_, from->buffer(), to.buffer(), 1, &region);
  }
  end_copies(commands_);
  queue_.run({{commands_, {}}});
}

void Memory::move(std::span<const Move> moves) {
  if (commands_ == VK_NULL_HANDLE) commands_ = context_.command_buffer();
  begin_copies(commands_);
  for (const auto& [in, from, to, bytes] : moves) {
    CHECK(std::max(from, to) <= in->size() && bytes <= in->size() - std::max(from, to));
    const VkBufferCopy region{in->offset() + from, in->offset() + to, bytes};
    vkCmdCopyBuffer(commands_, in->buffer(), in->buffer(), 1, &region);
  }
  end_copies(commands_);
  queue_.run({{commands_, {}}});
}

void Memory::write(const Allocation& to, size_t offset, Bytes bytes) {
  CHECK(offset <= to.size() && bytes.size() <= to.size() - offset);
  if (bytes.empty()) return;
  if (to.mapped() != nullptr) {
    std::memcpy(to.mapped() + offset, bytes.data(), bytes.size());
    return;
  }
  wait_filled();
  for (size_t done = 0; done < bytes.size();) {
    const size_t part = std::min(kRingBytes, bytes.size() - done);
    std::memcpy(ring().mapped(), bytes.data() + done, part);
    copy(&ring(), 0, to, offset + done, part);
    done += part;
  }
}

Allocation& Memory::ring() {
  if (ring_block_.valid()) blocks_.push_back(ring_block_.get());
  if (!ring_) ring_ = std::make_unique<Allocation>(*this, kRingBytes, MemoryUse::kStaging);
  return *ring_;
}

uint64_t Memory::fill(const Allocation& to, size_t unit, const WeightWriter::Make& make,
                      WeightWriter::Cut cut) {
  const size_t units = to.size() / unit;
  CHECK(units * unit == to.size());
  if (to.mapped() != nullptr) return writer_.begin({make, to.mapped(), unit, 0, units, cut});
  if (unit > kPieceBytes) {
    std::vector<std::byte> one(unit);
    for (size_t i = 0; i < units; ++i) {
      make({i, 1, 0, unit}, one.data());
      write(to, i * unit, one);
    }
    return 0;
  }
  const size_t at_once = kPieceBytes / unit;
  uint64_t made = 0;
  for (size_t first = 0; first < units; first += at_once) {
    const size_t count = std::min(at_once, units - first), bytes = count * unit;
    const size_t at = ring_room(bytes);
    made = writer_.begin({make, ring().mapped() + at, unit, first, count, cut});
    pieces_.push_back({made, at, bytes, to.buffer(), to.offset() + first * unit});
    ring_end_ = at + part_bytes(bytes);
    copy_made();
  }
  return made;
}

size_t Memory::ring_room(size_t bytes) {
  const size_t at = ring_end_ + bytes <= kRingBytes ? ring_end_ : 0;
  const auto in_the_way = [&](const Piece& piece) {
    return piece.at < at + bytes && at < piece.at + piece.bytes;
  };
  while (std::any_of(pieces_.begin(), pieces_.end(), in_the_way)) retire();
  return at;
}

// Begins to copy what is made, as far as it follows one another.
void Memory::copy_made() {
  const auto begin = std::find_if(pieces_.begin(), pieces_.end(),
                                  [](const Piece& piece) { return piece.copied == 0; });
  const auto end = std::find_if(begin, pieces_.end(),
                                [&](const Piece& piece) { return !writer_.done(piece.made); });
  if (begin == end) return;
  if (copied_.empty()) copied_.push_back(context_.command_buffer());
  const VkCommandBuffer commands = copied_.back();
  begin_copies(commands);
  for (auto piece = begin; piece != end; ++piece) {
    const VkBufferCopy region{ring().offset() + piece->at, piece->offset, piece->bytes};
    vkCmdCopyBuffer(commands, ring().buffer(), piece->to, 1, &region);
  }
  end_copies(commands);
  const uint64_t number = queue_.begin(commands);
  copied_.pop_back();
  copying_[number] = commands;
  for (auto piece = begin; piece != end; ++piece) piece->copied = number;
}

// Waits until the oldest pieces have left the ring. At first without helping to make them, so that
// the device has always something to copy.
void Memory::retire() {
  const Piece& oldest = pieces_.front();
  const auto spin_end = std::chrono::steady_clock::now() + kSpin;
  while ((oldest.copied == 0 || !queue_.done(oldest.copied)) &&
         std::chrono::steady_clock::now() < spin_end) {
    copy_made();
  }
  if (oldest.copied == 0) {
    writer_.wait(oldest.made);
    copy_made();
  }
  const uint64_t number = oldest.copied;
  queue_.wait(number);
  while (!pieces_.empty() && pieces_.front().copied == number) pieces_.pop_front();
  copied_.push_back(copying_.extract(number).mapped());
}

void Memory::wait_filled(uint64_t fill) {
  if (lost_) throw Error(ErrorKind::kDevice, "[vulkan] weights did not reach the device");
  while (!pieces_.empty() && pieces_.front().made <= fill) {
    copy_made();
    retire();
  }
  writer_.wait(fill);
}

void Memory::wait_filled() { wait_filled(writer_.begun()); }

bool Memory::all_filled() {
  if (lost_) throw Error(ErrorKind::kDevice, "[vulkan] weights did not reach the device");
  copy_made();
  while (!pieces_.empty() && pieces_.front().copied != 0 && queue_.done(pieces_.front().copied)) {
    retire();
  }
  return pieces_.empty() && writer_.done(writer_.begun());
}

ThreadPool& Memory::pool() {
  if (!pool_) {
    pool_.emplace(std::min(granted_processors(), kMaxCopiers));
  }
  return *pool_;
}

void Memory::read(const Allocation& from, size_t offset, std::span<std::byte> out) {
  CHECK(offset <= from.size() && out.size() <= from.size() - offset);
  if (out.empty()) return;
  if (from.mapped() != nullptr && from.cached()) {
    std::memcpy(out.data(), from.mapped() + offset, out.size());
    return;
  }
  if (!readback_) {
    readback_ = std::make_unique<Allocation>(*this, kReadbackBytes, MemoryUse::kReadback);
  }
  for (size_t done = 0; done < out.size();) {
    const size_t part = std::min(kReadbackBytes, out.size() - done);
    copy(&from, offset + done, *readback_, 0, part);
    std::memcpy(out.data() + done, readback_->mapped(), part);
    done += part;
  }
}

void Memory::copy(const std::byte* from, std::span<std::byte> to) {
  constexpr size_t kEach = size_t{256} << 10;
  if (to.size() < 4 * kEach) {
    std::memcpy(to.data(), from, to.size());
    return;
  }
  pool().run((to.size() + kEach - 1) / kEach, [&](size_t i) {
    const size_t at = i * kEach;
    std::memcpy(to.data() + at, from + at, std::min(kEach, to.size() - at));
  });
}

void Memory::zero(const Allocation& to) { copy(nullptr, 0, to, 0, 0); }

}  // namespace split::vulkan
