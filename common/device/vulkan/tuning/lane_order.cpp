#include "device/vulkan/tuning/lane_order.h"

#include <bit>
#include <cstring>

#include "base/error.h"
#include "tensor/blocks.h"
#include "tensor/tensor.h"

namespace split::vulkan {
namespace {

constexpr size_t kChunk = 8;  // numbers
constexpr size_t kBlockChunks = kBlock / kChunk;
constexpr size_t kGroups = kSuperBlock / kBlock;

// Chunk c of a block of Q4_0, a number a byte: each byte has one of the low 16 numbers and one of
// the high.
uint64_t eight_of_q4_0(const std::byte* block, size_t c) {
  uint64_t bytes;
  std::memcpy(&bytes, block + sizeof(uint16_t) + c % 2 * kChunk, sizeof bytes);
  return bytes >> (c < 2 ? 0 : 4) & 0x0f0f0f0f0f0f0f0f;
}

// Bytes as nibbles, in order.
uint32_t nibbles(uint64_t bytes) {
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
      turns_(lanes == kBySegments
                 ? 0
                 : (static_cast<size_t>(inner) + kChunk - 1) / kChunk / lanes / takes_) {
  const size_t together = dtype == DType::kQ4_K ? 2 : 1;
  CHECK(is_quantised(dtype) && lanes % (kBlockChunks * together) == 0);
}

size_t LaneOrder::view_bytes() const { return row_bytes(dtype_, blocks_ * kBlock); }
size_t LaneOrder::number_bytes() const {
  return laid_blocks() * (chunks_side_by_side(dtype_) == 4 ? kBlock / 2 : kBlock);
}
size_t LaneOrder::scale_bytes() const { return (laid_blocks() + 3) / 4 * 4 * sizeof(float); }

template <typename Each>
void LaneOrder::for_each(size_t width, const Each& each) const {
  const size_t all = blocks_ * kBlockChunks / width;
  size_t place = 0;
  if (lanes_ == kBySegments) {
    const size_t own = kSegmentBlocks * kBlockChunks / width;  // items of a segment
    const size_t part = width == 1 ? 2 * kBlockChunks : 4;
    for (size_t first = 0; first < own; first += part) {
      for (size_t segment = 0; segment < segments(); ++segment) {
        for (size_t i = segment * own + first; i < segment * own + first + part; ++i, ++place) {
          if (i < all) each(i, place);
        }
      }
    }
    return;
  }
  const size_t round = lanes_ / width;
  for (size_t turn = 0; turn < turns_; ++turn) {
    for (size_t t = 0; t < round; ++t) {
      for (size_t g = 0; g < takes_; ++g) each((turn * takes_ + g) * round + t, place++);
    }
  }
  for (; place < all; ++place) each(place, place);
}

void LaneOrder::write_numbers(const std::byte* row, std::byte* out) const {
  const size_t each = block_bytes(dtype_);
  std::memset(out, 0, number_bytes());
  for_each(1, [&](size_t chunk, size_t place) {
    const size_t block = chunk / kBlockChunks, c = chunk % kBlockChunks;
    const std::byte* const own = row + block * each;
    const std::byte* const super = row + block / kGroups * each;
    uint32_t word = 0;
    switch (dtype_) {
      case DType::kQ6_K:
        std::memcpy(out + place * kChunk, group_q6_k(super, block % kGroups).q + c * kChunk,
                    kChunk);
        return;
      case DType::kQ8_0:
        std::memcpy(out + place * kChunk, own + sizeof(uint16_t) + c * kChunk, kChunk);
        return;
      case DType::kQ4_K:
        word = nibbles(eight_of_q4_k(super, block % kGroups, c));
        break;
      default:
        word = nibbles(eight_of_q4_0(own, c));
    }
    std::memcpy(out + place * sizeof word, &word, sizeof word);
  });
}

uint32_t LaneOrder::scale_word(const std::byte* row, size_t block) const {
  const size_t each = block_bytes(dtype_);
  if (dtype_ == DType::kQ6_K) {
    const GroupQ6K group = group_q6_k(row + block / kGroups * each, block % kGroups);
    const auto factor = [&](size_t i) { return uint32_t{static_cast<uint8_t>(group.scales[i])}; };
    return group.d | factor(0) << 16 | factor(1) << 24;
  }
  if (dtype_ == DType::kQ4_K) {
    const GroupQ4K group = group_q4_k(row + block / kGroups * each, block % kGroups);
    const auto odd = static_cast<uint32_t>(block % 2);
    const auto half = std::bit_cast<uint32_t>(f16_to_f32(odd == 0 ? group.d : group.dmin));
    return half | odd << 12 | uint32_t{group.minimum} << 6 | group.scale;
  }
  uint16_t half;
  std::memcpy(&half, row + block * each, sizeof half);
  return std::bit_cast<uint32_t>(f16_to_f32(half));
}

void LaneOrder::write_scales(const std::byte* row, std::byte* out) const {
  std::memset(out, 0, scale_bytes());
  for_each(kBlockChunks, [&](size_t block, size_t place) {
    const uint32_t word = scale_word(row, block);
    std::memcpy(out + place * sizeof word, &word, sizeof word);
  });
}

}  // namespace split::vulkan
