#include "device/webgpu/webgpu_buffer.h"

#include <algorithm>

#include "base/error.h"
#include "device/webgpu/product_wgsl.h"
#include "device/webgpu/weights.h"
#include "tensor/blocks.h"

namespace split::webgpu {
namespace {

constexpr int64_t kMostGroups = 65535;  // groups that every adapter has on an axis

// Bytes of a row of a matrix in the larger of its buffers.
size_t packed_row_bytes(DType dtype, int64_t inner) {
  const auto stride = static_cast<size_t>(row_stride(inner));
  if (!is_quantised(dtype)) return stride * dtype_size(dtype);
  return dtype == DType::kQ8_0 || dtype == DType::kQ6_K ? stride : stride / 2;
}

}  // namespace

void WebGpuBuffer::lay_together(const std::vector<const WebGpuBuffer*>& others, bool by_turns) {
  if (weights_.size() > 1) return;  // by an earlier program
  for (const WebGpuBuffer* const other : others) weights_.push_back(other->weights_[0]);
  by_turns_ = by_turns;
}

gpu::Buffer& WebGpuBuffer::vector() {
  if (!plain_) {
    std::vector<std::byte> all;
    for (const TensorView& weight : weights_) {
      all.insert(all.end(), weight.bytes.begin(), weight.bytes.end());
    }
    all.resize((all.size() + sizeof(uint32_t) - 1) / sizeof(uint32_t) * sizeof(uint32_t));
    plain_ = std::make_unique<gpu::Buffer>(all.size());
    plain_->write(0, all);
  }
  return *plain_;
}

const std::vector<WebGpuBuffer::Piece>& WebGpuBuffer::matrix(bool as_rows) {
  std::vector<Piece>& pieces = matrices_[as_rows ? 1 : 0];
  if (!pieces.empty()) return pieces;
  const TensorView& own = weights_[0];
  const auto count = static_cast<int64_t>(weights_.size());
  const int64_t inner = own.dims[as_rows ? 1 : 0];
  int64_t rows = 0;
  for (const TensorView& weight : weights_) rows += weight.dims[as_rows ? 0 : 1];
  const size_t bytes = packed_row_bytes(own.dtype, inner);
  // Whole turns.
  const int64_t most =
      std::min(static_cast<int64_t>(kMostBinding / bytes), kMostGroups * kLeastProductColumns) /
      count * count;
  if (!as_rows) {
    CHECK(count == 1);
    const Matrix all = packed(own, false);
    const size_t words = all.numbers.size() / static_cast<size_t>(rows);
    for (int64_t first = 0; first < rows; first += most) {
      const int64_t n = std::min(most, rows - first);
      const auto part =
          std::span(all.numbers)
              .subspan(static_cast<size_t>(first) * words, static_cast<size_t>(n) * words);
      pieces.push_back({first, n, std::make_unique<gpu::Buffer>(part.size_bytes()), nullptr});
      pieces.back().numbers->write(0, std::as_bytes(part));
    }
    return pieces;
  }
  // No copy of the whole: the heap stays small.
  constexpr size_t kAtOnce = size_t{8} << 20;
  const size_t row = own.bytes.size() / static_cast<size_t>(own.dims[0]);
  // Packs rows from `begin` on that lie together in one weight, at most up to `end`; returns the
  // row behind them.
  const auto pack = [&](int64_t begin, int64_t end, Matrix& made) {
    const TensorView* from = &own;
    int64_t first = begin;
    if (by_turns_) {
      from = &weights_[static_cast<size_t>(begin % count)];
      first = begin / count;
      end = begin + 1;
    } else {
      for (; first >= from->dims[0]; ++from) first -= from->dims[0];
      end = std::min(end, begin - first + from->dims[0]);
    }
    const auto n = static_cast<size_t>(end - begin);
    const Matrix part = packed({own.dtype,
                                {end - begin, inner},
                                from->bytes.subspan(static_cast<size_t>(first) * row, n * row)},
                               true);
    made.numbers.insert(made.numbers.end(), part.numbers.begin(), part.numbers.end());
    made.scales.insert(made.scales.end(), part.scales.begin(), part.scales.end());
    return end;
  };
  const auto step = static_cast<int64_t>(std::max<size_t>(1, kAtOnce / std::max<size_t>(1, row)));
  for (int64_t first = 0; first < rows; first += most) {
    const int64_t n = std::min(most, rows - first);
    Piece piece{first, n, nullptr, nullptr};
    for (int64_t at = 0; at < n; at += step) {
      const int64_t part = std::min(step, n - at);
      Matrix made;
      for (int64_t next = first + at; next < first + at + part;) {
        next = pack(next, first + at + part, made);
      }
      const auto put = [&](std::unique_ptr<gpu::Buffer>& to, const std::vector<uint32_t>& words) {
        if (words.empty()) return;
        const size_t each = words.size() * sizeof(uint32_t) / static_cast<size_t>(part);
        if (!to) to = std::make_unique<gpu::Buffer>(each * static_cast<size_t>(n));
        to->write(static_cast<size_t>(at) * each, std::as_bytes(std::span(words)));
      };
      put(piece.numbers, made.numbers);
      put(piece.scales, made.scales);
    }
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

}  // namespace split::webgpu
