// A blob's sums: the sha256 of the whole file and of each chunk, so that a lost or damaged part is
// detected and fetched alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace split::wire {

// Counted from the file's first byte, header included; the last chunk may be shorter.
inline constexpr uint64_t kChunkBytes = 1 << 20;

inline uint64_t chunk_count(uint64_t bytes) {
  return bytes / kChunkBytes + (bytes % kChunkBytes != 0);
}
// The size of chunk `index` in a file of `bytes`.
inline uint64_t chunk_size(uint64_t bytes, uint64_t index) {
  const uint64_t left = bytes - index * kChunkBytes;
  return left < kChunkBytes ? left : kChunkBytes;
}

struct BlobSums {
  uint64_t bytes = 0;
  std::string sha256;               // the whole file's, 64 hex digits
  std::vector<std::string> chunks;  // each chunk's, likewise in hex
  bool operator==(const BlobSums&) const = default;
};

// Computes both sums in one pass over the file's bytes, in any pieces. One thread at a time.
class BlobSummer {
 public:
  void update(Bytes bytes);
  BlobSums finish();

 private:
  BlobSums sums_;
  Sha256 whole_, chunk_;
};

}  // namespace split::wire
