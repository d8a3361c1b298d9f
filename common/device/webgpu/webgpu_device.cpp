// The GPU of a tab's browser as a Device.
#include "base/error.h"
#include "base/log.h"
#include "device/device.h"
#include "device/webgpu/merge_products.h"
#include "device/webgpu/webgpu_executable.h"

namespace split {
namespace webgpu {
namespace {

// Raise it with any change of a result's bits.
constexpr std::string_view kVersion = "webgpu 4 ";

WebGpuBuffer& own(Buffer& buffer) { return static_cast<WebGpuBuffer&>(buffer); }

// All share the page's one device. When that is lost, the first that begins again opens another,
// and what the others had made is gone too.
class WebGpuDevice final : public Device {
 public:
  WebGpuDevice() { take(); }

  std::string name() const override {
    return cat("webgpu (", gpu::name(), gpu::software() ? ", software)" : ")");
  }
  std::optional<std::string> fingerprint() const override {
    if (!is_gpu()) return std::nullopt;
    return cat(kVersion, gpu::name());
  }
  std::string arithmetic(bool /*in_bf16*/) const override { return cat(kVersion, gpu::name()); }
  bool is_gpu() const override { return !gpu::software(); }
  bool can_be_lost() const override { return true; }
  bool host_copy_is_slow() const override { return true; }
  bool waits_long() const override { return true; }
  void restart() override { take(); }
  FuseRules fuse_rules() const override { return kFuseRules; }
  bool supports(const Program& program, const Step& step) const override {
    return WebGpuExecutable::supports(program, step);
  }
  // A product's order of sums is one for any number of rows.
  bool same_bits_in_both_phases(const Limits& /*limits*/, DType /*matrix*/) const override {
    return true;
  }
  bool multiplies(DType /*matrix*/) const override { return true; }
  bool takes_long_rows(const Limits& /*limits*/) const override { return false; }
  bool settled() override { return gpu::settled(); }
  void settle() override { gpu::settle(); }

  std::unique_ptr<Buffer> alloc(size_t bytes) override {
    return std::make_unique<WebGpuBuffer>(bytes);
  }
  std::unique_ptr<Buffer> alloc_pages(const Limits& limits, int64_t channels,
                                      DType dtype) override {
    const size_t bytes = (size_t{limits.pages} + 1) * kPageTokens * static_cast<size_t>(channels) *
                         dtype_size(dtype);
    if (bytes > kMostBinding) {
      throw Error(ErrorKind::kDevice, cat("[webgpu] a layer's keys in ", bytes,
                                          " bytes, expected at most ", kMostBinding));
    }
    return alloc(bytes);
  }
  std::unique_ptr<Buffer> upload(const Slot& slot, const TensorView& view) override {
    CHECK(slot.dtype == view.dtype && slot.dims == view.dims);
    return std::make_unique<WebGpuBuffer>(view);
  }
  void write(Buffer& buffer, size_t offset, Bytes bytes) override {
    own(buffer).plain().write(offset, bytes);
  }
  void read(const Buffer& buffer, size_t offset, std::span<std::byte> out) override {
    static_cast<const WebGpuBuffer&>(buffer).plain().read(offset, out);
  }
  std::unique_ptr<Workspace> workspace(const Limits& limits) override {
    return std::make_unique<WebGpuWorkspace>(limits);
  }
  std::unique_ptr<Executable> load(const Program& program, Workspace& workspace,
                                   std::span<const Binding> bindings) override {
    check_supported(*this, program);
    auto made = std::make_unique<WebGpuExecutable>(
        program, static_cast<WebGpuWorkspace&>(workspace), bindings);
    expect_present();
    return made;
  }
  void run(Workspace& workspace, std::span<Executable* const> programs,
           const RowBatch& batch) override {
    expect_present();
    if (!gpu::settled()) gpu::settle();
    if (batch.in != nullptr) write(*batch.in, 0, batch.in_bytes);
    static_cast<WebGpuWorkspace&>(workspace).write(batch);
    ids_.clear();
    for (Executable* program : programs) {
      const auto* const ours = static_cast<WebGpuExecutable*>(program);
      ours->expect_within(batch);
      ids_.push_back(ours->id());
    }
    const bool reads = batch.out != nullptr && !batch.out_bytes.empty();
    gpu::run(ids_, batch.rows, static_cast<uint32_t>(batch.out_rows.size()),
             reads ? own(*batch.out).plain().id() : 0, batch.out_offset,
             reads ? batch.out_bytes : std::span<std::byte>());
  }

 private:
  void take() {
    if (gpu::generation() == 0) gpu::open();
    generation_ = gpu::generation();
  }
  void expect_present() const {
    gpu::check();
    if (gpu::generation() == generation_) return;
    throw Error(ErrorKind::kDevice, "[webgpu] the device was lost");
  }

  int generation_ = 0;
  std::vector<gpu::Id> ids_;  // programs of the present step
};

}  // namespace
}  // namespace webgpu

bool has_webgpu() { return webgpu::gpu::present(); }
std::unique_ptr<Device> make_webgpu_device(const std::string& which) {
  const bool first = which.empty();
  if (first && !webgpu::gpu::present()) return nullptr;
  auto device = std::make_unique<webgpu::WebGpuDevice>();
  if (first && !device->is_gpu()) return nullptr;
  return device;
}

}  // namespace split
