// A device that passes everything on to another, for tests that change one thing of it.
#pragma once

#include <memory>
#include <utility>

#include "device/device.h"

namespace split::test {

class ForwardingDevice : public Device {
 public:
  explicit ForwardingDevice(std::unique_ptr<Device> device) : device_(std::move(device)) {}

  std::string name() const override { return device_->name(); }
  std::optional<std::string> fingerprint() const override { return device_->fingerprint(); }
  std::string arithmetic(bool in_bf16) const override { return device_->arithmetic(in_bf16); }
  FuseRules fuse_rules() const override { return device_->fuse_rules(); }
  std::unique_ptr<Buffer> alloc(size_t bytes) override { return device_->alloc(bytes); }
  std::unique_ptr<Buffer> alloc_pages(const Limits& limits, int64_t channels,
                                      DType dtype) override {
    return device_->alloc_pages(limits, channels, dtype);
  }
  std::unique_ptr<Buffer> alloc_states(const Limits& limits, const StateShape& shape) override {
    return device_->alloc_states(limits, shape);
  }
  std::unique_ptr<Buffer> upload(const Slot& slot, const TensorView& view) override {
    return device_->upload(slot, view);
  }
  void write(Buffer& buffer, size_t offset, Bytes bytes) override {
    device_->write(buffer, offset, bytes);
  }
  void read(const Buffer& buffer, size_t offset, std::span<std::byte> out) override {
    device_->read(buffer, offset, out);
  }
  void copy(std::span<const BufferCopy> copies) override { device_->copy(copies); }
  std::unique_ptr<Workspace> workspace(const Limits& limits) override {
    return device_->workspace(limits);
  }
  void prepare(std::span<const Program> programs, Workspace& workspace) override {
    device_->prepare(programs, workspace);
  }
  std::unique_ptr<Executable> load(const Program& program, Workspace& workspace,
                                   std::span<const Binding> bindings) override {
    return device_->load(program, workspace, bindings);
  }
  void make_ready(const Program& program, const Limits& limits,
                  std::span<const Binding> bindings) override {
    device_->make_ready(program, limits, bindings);
  }
  bool settled() override { return device_->settled(); }
  void settle() override { device_->settle(); }
  bool host_copy_is_slow() const override { return device_->host_copy_is_slow(); }
  bool same_bits_in_both_phases(const Limits& limits, DType matrix) const override {
    return device_->same_bits_in_both_phases(limits, matrix);
  }
  void run(Workspace& workspace, std::span<Executable* const> programs,
           const RowBatch& batch) override {
    device_->run(workspace, programs, batch);
  }

 private:
  std::unique_ptr<Device> device_;
};

}  // namespace split::test
