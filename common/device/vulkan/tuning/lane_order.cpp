#include "device/vulkan/tuning/lane_order.h"

#include <cstring>

#include "base/error.h"
#include "tensor/blocks.h"
#include "tensor/tensor.h"

namespace split::vulkan {
namespace {

constexpr size_t kChunk = 8;  // numbers
constexpr size_t kBlockChunks = kBlock / kChunk;
constexpr size_t kGroups = kSuperBlock / kBlock;

// Chunk c of a block of Q4_0: its nibbles in order, from bits where each byte has one of the low 16
// numbers and one of the high.
uint32_t nibbles(const std::byte* block, size_t c) {
  uint64_t bytes;
  std::memcpy(&bytes, block + sizeof(uint16_t) + c % 2 * kChunk, sizeof bytes);
  bytes = bytes >> (c < 2 ? 0 : 4) & 0x0f0f0f0f0f0f0f0f;
  bytes = (bytes | bytes >> 4) & 0x00ff00ff00ff00ff;
  bytes = (bytes | bytes >> 8) & 0x0000ffff0000ffff;
  return static_cast<uint32_t>(bytes | bytes >> 16);
}

}  // namespace

LaneOrder::LaneOrder(DType dtype, int64_t inner, uint32_t lanes)
    : dtype_(dtype),
      blocks_(blocks_of(inner)),
      lanes_(lanes),
      takes_(chunks_side_by_side(dtype)),
      turns_((static_cast<size_t>(inner) + kChunk - 1) / kChunk / lanes / takes_) {
  CHECK(is_quantised(dtype) && dtype != DType::kQ4_K && lanes % kBlockChunks == 0);
}

size_t LaneOrder::view_bytes() const { return row_bytes(dtype_, blocks_ * kBlock); }
size_t LaneOrder::number_bytes() const {
  return blocks_ * (dtype_ == DType::kQ4_0 ? kBlock / 2 : kBlock);
}
size_t LaneOrder::scale_bytes() const { return (blocks_ + 3) / 4 * 4 * sizeof(float); }

template <typename Each>
void LaneOrder::for_each(size_t width, const Each& each) const {
  const size_t round = lanes_ / width, all = blocks_ * kBlockChunks / width;
  for (size_t turn = 0; turn < turns_; ++turn) {
    for (size_t t = 0; t < round; ++t) {
      for (size_t g = 0; g < takes_; ++g) each((turn * takes_ + g) * round + t);
    }
  }
  for (size_t i = turns_ * takes_ * round; i < all; ++i) each(i);
}

void LaneOrder::write_numbers(const std::byte* row, std::byte* out) const {
  const size_t each = block_bytes(dtype_);
  if (dtype_ == DType::kQ6_K) {
    for_each(1, [&](size_t chunk) {
      const size_t block = chunk / kBlockChunks;
      const GroupQ6K group = group_q6_k(row + block / kGroups * each, block % kGroups);
      std::memcpy(out, group.q + chunk % kBlockChunks * kChunk, kChunk);
      out += kChunk;
    });
    return;
  }
  if (dtype_ == DType::kQ8_0) {
    for_each(1, [&](size_t chunk) {
      const std::byte* const block = row + chunk / kBlockChunks * each;
      std::memcpy(out, block + sizeof(uint16_t) + chunk % kBlockChunks * kChunk, kChunk);
      out += kChunk;
    });
    return;
  }
  for_each(1, [&](size_t chunk) {
    const uint32_t word = nibbles(row + chunk / kBlockChunks * each, chunk % kBlockChunks);
    std::memcpy(out, &word, sizeof word);
    out += sizeof word;
  });
}

void LaneOrder::write_scales(const std::byte* row, std::byte* out) const {
  std::byte* const end = out + scale_bytes();
  for_each(kBlockChunks, [&](size_t block) {
    if (dtype_ == DType::kQ6_K) {
      const size_t each = block_bytes(dtype_);
      const GroupQ6K group = group_q6_k(row + block / kGroups * each, block % kGroups);
      std::memcpy(out, &group.d, sizeof group.d);
      std::memcpy(out + sizeof group.d, group.scales, sizeof group.scales);
      out += sizeof(uint32_t);
      return;
    }
    uint16_t half;
    std::memcpy(&half, row + block * block_bytes(dtype_), sizeof half);
    const float scale = f16_to_f32(half);
    std::memcpy(out, &scale, sizeof scale);
    out += sizeof scale;
  });
  std::memset(out, 0, static_cast<size_t>(end - out));
}

}  // namespace split::vulkan
