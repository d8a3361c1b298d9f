// A Program as a list of dispatches, which the page replays.
#pragma once

#include <array>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "device/device.h"
#include "device/webgpu/gpu.h"
#include "device/webgpu/tape_wgsl.h"

namespace split::webgpu {

inline constexpr size_t kMostBinding = size_t{128} << 20;  // bytes: every adapter has as many

// A buffer of the device, or a weight: its bytes as they came until a program says how it reads
// them.
class WebGpuBuffer final : public Buffer {
 public:
  explicit WebGpuBuffer(size_t bytes)
      : size_(bytes), plain_(std::make_unique<gpu::Buffer>(bytes)) {}
  explicit WebGpuBuffer(const TensorView& weight) : size_(weight.bytes.size()), weight_(weight) {}
  size_t size() const override { return size_; }
  bool borrows() const override { return false; }

  gpu::Buffer& plain() const { return *plain_; }
  // Rows of a matrix that one binding holds: [first, first + rows) as weights.h packs them.
  struct Piece {
    int64_t first = 0, rows = 0;
    std::unique_ptr<gpu::Buffer> numbers, scales;  // scales: null where there are none
  };
  // A vector in its own type.
  gpu::Buffer& vector();
  // A matrix by its rows; if not `as_rows`, by its columns.
  const std::vector<Piece>& matrix(bool as_rows);

 private:
  size_t size_;
  TensorView weight_;
  std::unique_ptr<gpu::Buffer> plain_;
  std::array<std::vector<Piece>, 2> matrices_;
};

class WebGpuWorkspace final : public Workspace {
 public:
  explicit WebGpuWorkspace(const Limits& limits);
  const Limits& limits() const { return limits_; }
  const gpu::Buffer& symbols() const { return symbols_; }
  // Temporary i of a program, of at least so many bytes.
  std::shared_ptr<gpu::Buffer> temporary(size_t i, size_t bytes);
  void write(const RowBatch& batch);

 private:
  const Limits limits_;
  gpu::Buffer symbols_;
  std::vector<std::shared_ptr<gpu::Buffer>> temporaries_;
  std::vector<uint32_t> words_;
};

class WebGpuExecutable final : public Executable {
 public:
  // Throws Error(kDevice) for a program that WebGPU cannot run.
  WebGpuExecutable(const Program& program, WebGpuWorkspace& workspace,
                   std::span<const Binding> bindings);
  ~WebGpuExecutable() override { gpu::drop_program(id_); }
  gpu::Id id() const { return id_; }
  // Throws Error(kDevice) for a token or a mark past its table.
  void expect_within(const RowBatch& batch) const;

  static bool supports(const Program& program, const Step& step);

 private:
  struct Builder;
  std::vector<std::shared_ptr<gpu::Buffer>> temporaries_;  // in use by the list
  std::array<int64_t, kStepInputs> most_;                  // rows of the tables that they index
  gpu::Id id_ = 0;
};

}  // namespace split::webgpu
