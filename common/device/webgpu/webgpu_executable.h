// A Program as a list of dispatches, which the page replays.
#pragma once

#include <array>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "device/webgpu/tape_wgsl.h"
#include "device/webgpu/webgpu_buffer.h"

namespace split::webgpu {

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
