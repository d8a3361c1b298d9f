// The receipt of an answer, which commits its server to every hidden row of it, and proofs that
// rows are those. Rows are leaves of a Merkle tree: a leaf is SHA-256 of a row's floats, a node
// SHA-256 of the byte 1 and its two children; the rows of each point are a tree, and these trees
// the leaves of one more. A tree of n leaves has the largest power of two below n in its left half.
// Knows neither who computes rows nor who asks for them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "wire/protocol.h"

namespace split::wire {

inline constexpr char kAuditPath[] = "/v1/audit";

// SHA-256 of the config and of each stage's blobs in the checkpoint's own format, in hex.
std::string manifest_hash(const ModelInfo& info);

using Digests = std::vector<Sha256::Digest>;
// The digests of rows of `width` floats.
Digests row_digests(std::span<const float> rows, size_t width);

// The digests of a text's rows at all points.
struct RowTree {
  std::vector<Digests> points;

  std::string root() const;
  // Digests beside rows [first, first + count) of a point, from which the root follows.
  Digests proof(size_t point, size_t first, size_t count) const;
};
// The root, in hex, of a tree of so many points and rows a point, in which rows have these digests;
// empty for a proof of another length.
std::string proven_root(size_t points, size_t rows, size_t point, size_t first,
                        std::span<const Sha256::Digest> digests,
                        std::span<const Sha256::Digest> proof);

// Rows of a point and their proof, as a safetensors file.
struct AuditedRows {
  std::vector<float> rows;
  Digests proof;
};
std::string to_frame(const AuditedRows& rows, uint32_t width);
// Throws Error(kInput) unless it has `count` rows of `width` floats, all finite, and a proof.
AuditedRows parse_audited_rows(Bytes frame, uint32_t count, uint32_t width);

}  // namespace split::wire
