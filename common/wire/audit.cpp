#include "wire/audit.h"

#include <bit>

#include "base/json.h"
#include "io/weight_file.h"

namespace split::wire {
namespace {

constexpr char kRows[] = "rows", kProof[] = "proof";
constexpr size_t kDigestWords = sizeof(Sha256::Digest) / sizeof(int32_t);
using Digest = Sha256::Digest;
using DigestSpan = std::span<const Digest>;

Digest node(const Digest& left, const Digest& right) {
  Sha256 sum;
  constexpr std::byte kNode{1};  // rows are of whole floats, so that no row is a node's 65 bytes
  sum.update({&kNode, 1});
  sum.update(left);
  sum.update(right);
  return sum.finish();
}

size_t left_of(size_t leaves) { return std::bit_floor(leaves - 1); }

Digest root_of(DigestSpan leaves) {
  if (leaves.size() == 1) return leaves[0];
  const size_t left = left_of(leaves.size());
  return node(root_of(leaves.first(left)), root_of(leaves.subspan(left)));
}

// Whether no leaf of [at, at + n) is one of [first, first + count).
bool is_beside(size_t at, size_t n, size_t first, size_t count) {
  return at + n <= first || at >= first + count;
}

void prove(DigestSpan leaves, size_t at, size_t first, size_t count, Digests& out) {
  if (is_beside(at, leaves.size(), first, count)) return out.push_back(root_of(leaves));
  if (leaves.size() == 1) return;
  const size_t left = left_of(leaves.size());
  prove(leaves.first(left), at, first, count, out);
  prove(leaves.subspan(left), at + left, first, count, out);
}

// Follows prove(): takes known leaves and the proof's digests as they come. Sets `cut` where these
// are too few.
struct Proven {
  size_t first;
  DigestSpan known, proof;
  bool cut = false;

  Digest root(size_t at, size_t leaves) {
    const bool beside = is_beside(at, leaves, first, known.size());
    if (beside || leaves == 1) {
      if (!beside) return known[at - first];
      cut = cut || proof.empty();
      if (cut) return {};
      const Digest next = proof[0];
      proof = proof.subspan(1);
      return next;
    }
    const size_t left = left_of(leaves);
    const Digest a = root(at, left);
    return node(a, root(at + left, leaves - left));
  }
};

}  // namespace

std::string manifest_hash(const ModelInfo& info) {
  Sha256 sum;
  const auto add = [&](std::string_view text) {
    sum.update(as_bytes_of(text));
    sum.update(as_bytes_of("\n"));
  };
  add(parse_json(info.config_json, 16, "[config.json]").dump());
  for (const StageInfo& stage : info.stages) {
    add(cat(stage.name, " ", stage.format));
    for (const BlobInfo& blob : stage.blobs) {
      if (blob.format == stage.format) add(cat(blob.name, " ", blob.sha256));
    }
  }
  return sum.finish_hex();
}

Digests row_digests(std::span<const float> rows, size_t width) {
  Digests digests;
  for (size_t at = 0; at < rows.size(); at += width) {
    Sha256 sum;
    sum.update(std::as_bytes(rows.subspan(at, width)));
    digests.push_back(sum.finish());
  }
  return digests;
}

std::string RowTree::root() const {
  Digests roots;
  for (const Digests& rows : points) roots.push_back(root_of(rows));
  return to_hex(root_of(roots));
}

Digests RowTree::proof(size_t point, size_t first, size_t count) const {
  Digests proof, roots;
  prove(points[point], 0, first, count, proof);
  for (const Digests& rows : points) roots.push_back(root_of(rows));
  prove(roots, 0, point, 1, proof);
  return proof;
}

std::string proven_root(size_t points, size_t rows, size_t point, size_t first, DigestSpan digests,
                        DigestSpan proof) {
  Proven of_rows{first, digests, proof};
  const Digest one = of_rows.root(0, rows);
  Proven of_points{point, {&one, 1}, of_rows.proof, of_rows.cut};
  const Digest root = of_points.root(0, points);
  return of_points.cut || !of_points.proof.empty() ? "" : to_hex(root);
}

std::string to_frame(const AuditedRows& rows, uint32_t width) {
  const auto count = static_cast<int64_t>(rows.rows.size() / width);
  const std::vector<NamedTensor> tensors{
      {kRows, {DType::kF32, {count, int64_t{width}}, std::as_bytes(std::span(rows.rows))}},
      {kProof,
       {DType::kI32,
        {static_cast<int64_t>(rows.proof.size()), int64_t{kDigestWords}},
        std::as_bytes(std::span(rows.proof))}}};
  return write_weight_file(tensors);
}

AuditedRows parse_audited_rows(Bytes frame, uint32_t count, uint32_t width) {
  AuditedRows audited;
  Matrix rows = parse_frame(frame, kRows, width, count);
  if (rows.rows != count) {
    throw Error(ErrorKind::kInput, cat("expected ", count, " rows, got ", rows.rows), kRows);
  }
  audited.rows = std::move(rows.values);
  const Safetensors file = Safetensors::parse(frame, "the body");
  const auto proof = file.tensors().find(kProof);
  if (proof == file.tensors().end() || proof->second.dtype != DType::kI32 ||
      proof->second.bytes.size() % sizeof(Digest) != 0) {
    throw Error(ErrorKind::kInput, "expected a tensor 'proof' of digests", kProof);
  }
  audited.proof.resize(proof->second.bytes.size() / sizeof(Digest));
  std::memcpy(audited.proof.data(), proof->second.bytes.data(), proof->second.bytes.size());
  return audited;
}

}  // namespace split::wire
