#include "wire/chunks.h"

#include <algorithm>

namespace split::wire {

void BlobSummer::update(Bytes bytes) {
  // Small enough to be in the cache still for the second sum.
  constexpr size_t kPiece = 64 << 10;
  while (!bytes.empty()) {
    const uint64_t room = kChunkBytes - sums_.bytes % kChunkBytes;
    const Bytes piece = bytes.first(std::min<uint64_t>({bytes.size(), room, kPiece}));
    whole_.update(piece);
    chunk_.update(piece);
    sums_.bytes += piece.size();
    if (piece.size() == room) {
      sums_.chunks.push_back(chunk_.finish_hex());
      chunk_ = {};
    }
    bytes = bytes.subspan(piece.size());
  }
}

BlobSums BlobSummer::finish() {
  if (sums_.bytes % kChunkBytes != 0) sums_.chunks.push_back(chunk_.finish_hex());
  sums_.sha256 = whole_.finish_hex();
  return std::move(sums_);
}

}  // namespace split::wire
