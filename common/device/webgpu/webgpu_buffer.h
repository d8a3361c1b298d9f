// A buffer of the page's GPU, or a weight as its kernels read it (weights.h).
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "device/device.h"
#include "device/webgpu/gpu.h"

namespace split::webgpu {

inline constexpr size_t kMostBinding = size_t{128} << 20;  // bytes: every adapter has as many

// A buffer of the device, or a weight: its bytes as they came until a program says how it reads
// them.
class WebGpuBuffer final : public Buffer {
 public:
  explicit WebGpuBuffer(size_t bytes)
      : size_(bytes), plain_(std::make_unique<gpu::Buffer>(bytes)) {}
  explicit WebGpuBuffer(const TensorView& weight) : size_(weight.bytes.size()), weights_{weight} {}
  size_t size() const override { return size_; }
  bool borrows() const override { return false; }

  gpu::Buffer& plain() const { return *plain_; }
  // Rows of a matrix that one binding holds: [first, first + rows) as weights.h packs them.
  struct Piece {
    int64_t first = 0, rows = 0;
    std::unique_ptr<gpu::Buffer> numbers, scales;  // scales: null where there are none
  };
  // Lays weights of the same type behind this one, or if `by_turns`, rows of all in turn.
  void lay_together(const std::vector<const WebGpuBuffer*>& others, bool by_turns);
  // A vector in its own type.
  gpu::Buffer& vector();
  // A matrix by its rows; if not `as_rows`, by its columns.
  const std::vector<Piece>& matrix(bool as_rows);

 private:
  size_t size_;
  std::vector<TensorView> weights_;  // first its own
  bool by_turns_ = false;
  std::unique_ptr<gpu::Buffer> plain_;
  std::array<std::vector<Piece>, 2> matrices_;
};

}  // namespace split::webgpu
