// The order in which a quantised matrix lies in device memory: that in which the lanes of
// matmul.comp take it, in loads of 16 bytes. Of a row, cut into chunks of 8 numbers, LANES chunks
// are a round; rounds are taken in turns of as many as have 16 bytes, and chunk t of each of a turn
// lie side by side, then chunks t + 1. Rounds that are no whole turn are in order along the row.
// Scales lie apart from the numbers, as floats, so that no kernel has to unpack them, in the same
// order: one of each round of a turn for each block (four lanes). Q6_K lies as Q8_0 does, with a
// byte for six bits; its scale of a block is one word, a half d and the two signed bytes that it
// multiplies. Q4_K lies as Q4_0 does; the word of a block of 32 has its six bits of scale, six of
// minimum, a bit that says whether it is odd, and the upper 19 bits of a float, which hold a half:
// d in even blocks, dmin in odd ones. So two neighbours have what either needs.
//
// By segments, for int8_product.comp, a lane takes 32 chunks (8 blocks) that lie one after the
// other along the row: the first two blocks of each segment come first, then the next two, and so
// on; of scales four. What a last segment lacks is zeros.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/shape.h"

namespace split::vulkan {

// Chunks of a lane that lie side by side: of floats none do.
inline uint32_t chunks_side_by_side(DType dtype) {
  if (dtype == DType::kQ8_0 || dtype == DType::kQ6_K) return 2;
  return is_quantised(dtype) ? 4 : 1;
}

inline constexpr uint32_t kBySegments = 0;
inline constexpr size_t kSegmentBlocks = 8;

class LaneOrder {
 public:
  // `lanes`: a multiple of 4; of Q4_K, whose neighbours lie in one order, of 8; or kBySegments.
  LaneOrder(DType dtype, int64_t inner, uint32_t lanes);

  size_t view_bytes() const;    // bytes of a row in files
  size_t number_bytes() const;  // bytes of a row here: 8 bytes or 8 nibbles a chunk, whole blocks
  size_t scale_bytes() const;   // words, filled up with zeros to a multiple of 4
  size_t segments() const { return (blocks_ + kSegmentBlocks - 1) / kSegmentBlocks; }
  // A row, from how files have it.
  void write_numbers(const std::byte* row, std::byte* out) const;
  void write_scales(const std::byte* row, std::byte* out) const;

 private:
  uint32_t scale_word(const std::byte* row, size_t block) const;
  size_t laid_blocks() const {
    return lanes_ == kBySegments ? segments() * kSegmentBlocks : blocks_;
  }
  // Calls each(i, place) for items of `width` chunks, item i along the row and place by place here.
  template <typename Each>
  void for_each(size_t width, const Each& each) const;

  DType dtype_;
  size_t blocks_, lanes_, takes_, turns_;
};

}  // namespace split::vulkan
