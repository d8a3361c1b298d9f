// The CPU as a Device. cpu_executable.h does the work of a step.
#include <cstdlib>
#include <cstring>

#include "device/cpu/cpu_executable.h"

namespace split {
namespace {

class CpuDevice : public Device {
 public:
  explicit CpuDevice(unsigned threads)
      : kernels_(choose_kernels(environment_limit())), pool_(threads) {}

  std::string name() const override {
    return cat("cpu (", pool_.threads(), pool_.threads() == 1 ? " thread, " : " threads, ",
               kernels_.name, ")");
  }
  // One number for all kernels: raise it with any change of a result's bits.
  std::string arithmetic(bool in_bf16) const override {
    // WebAssembly without relaxed-simd has no product and sum that are rounded once.
    if (kernels_.rounds_products) return "cpu 2 rounding products";
    return in_bf16 && kernels_.by_pairs ? "cpu 2 by pairs of bf16" : "cpu 2";
  }
  FuseRules fuse_rules() const override { return {}; }
  bool supports(const Program& /*program*/, const Step& step) const override {
    return CpuExecutable::has_kernel(step.op);
  }

  std::unique_ptr<Buffer> alloc(size_t bytes) override {
    return std::make_unique<CpuBuffer>(bytes);
  }

  bool same_bits_in_both_phases(const Limits& limits, DType matrix) const override {
    return !is_quantised(matrix) || limits.int8 == Int8Rows::kAll ||
           (limits.int8 == Int8Rows::kNone && is_k_quant(matrix));
  }
  bool multiplies(DType /*matrix*/) const override { return true; }
  bool multiplies_int8(Int8Rows /*rows*/) const override { return true; }
  bool supports_kv(DType kv) const override {
    return kv == DType::kF32 || kv == DType::kF16 || kv == DType::kBF16 || kv == DType::kQ8_0;
  }
  std::unique_ptr<Buffer> alloc_pages(const Limits& limits, int64_t channels,
                                      DType dtype) override {
    return alloc((size_t{limits.pages} + 1) * kPageTokens *
                 kv_bytes(dtype, static_cast<size_t>(channels)));
  }

  std::unique_ptr<Buffer> upload(const Slot& slot, const TensorView& view) override {
    CHECK(slot.dtype == view.dtype && slot.dims == view.dims);
    CHECK(tensor_bytes(view.dtype, view.dims) == view.bytes.size());
    const bool vector = slot.dims.size() == 1;
    // Blocks are packed byte by byte.
    const size_t alignment = is_quantised(view.dtype) ? 1 : dtype_size(view.dtype);
    const bool aligned = reinterpret_cast<uintptr_t>(view.bytes.data()) % alignment == 0;
    if (vector) {
      auto buffer = std::make_unique<CpuBuffer>(static_cast<size_t>(slot.dims[0]) * sizeof(float));
      kernels_.widen(view.bytes.data(), view.dtype, reinterpret_cast<float*>(buffer->data()),
                     static_cast<size_t>(slot.dims[0]));
      return buffer;
    }
    if (aligned) return std::make_unique<CpuBuffer>(view.bytes);
    auto buffer = std::make_unique<CpuBuffer>(view.bytes.size());
    std::memcpy(buffer->data(), view.bytes.data(), view.bytes.size());
    return buffer;
  }

  void write(Buffer& buffer, size_t offset, Bytes bytes) override {
    CHECK(offset + bytes.size() <= buffer.size());
    CHECK(!static_cast<CpuBuffer&>(buffer).has_packed());  // the copy would be out of date
    std::memcpy(static_cast<CpuBuffer&>(buffer).data() + offset, bytes.data(), bytes.size());
  }
  void read(const Buffer& buffer, size_t offset, std::span<std::byte> out) override {
    CHECK(offset + out.size() <= buffer.size());
    std::memcpy(out.data(), static_cast<const CpuBuffer&>(buffer).data() + offset, out.size());
  }

  std::unique_ptr<Workspace> workspace(const Limits& limits) override {
    return std::make_unique<CpuWorkspace>(limits);
  }

  // Loads it, alone, into a workspace that no step uses: this packs its matrices.
  void make_ready(const Program& program, const Limits& limits,
                  std::span<const Binding> bindings) override {
    ThreadPool alone(1);
    CpuWorkspace workspace(limits);
    CpuExecutable(program, workspace, bindings, kernels_, alone);
  }

  std::unique_ptr<Executable> load(const Program& program, Workspace& workspace,
                                   std::span<const Binding> bindings) override {
    check_supported(*this, program);
    return std::make_unique<CpuExecutable>(program, static_cast<CpuWorkspace&>(workspace), bindings,
                                           kernels_, pool_);
  }

  void run(Workspace& workspace, std::span<Executable* const> programs,
           const RowBatch& batch) override {
    const Limits& limits = static_cast<CpuWorkspace&>(workspace).limits();
    CHECK(batch.rows <= limits.most_rows() && batch.out_rows.size() <= batch.rows);
    CHECK(batch.positions.size() == batch.rows && batch.sequences.size() == batch.rows);
    CHECK(batch.marks.empty() || batch.marks.size() == batch.rows);
    const ThreadPool::Step step(pool_);
    if (batch.in != nullptr) write(*batch.in, 0, batch.in_bytes);
    out_rows_.assign(batch.out_rows.begin(), batch.out_rows.end());
    RowBatch own = batch;
    for (size_t i = 0; i < programs.size(); ++i) {
      if (!batch.states.empty()) own.states = batch.states.subspan(i, 1);
      static_cast<CpuExecutable*>(programs[i])
          ->run(own, out_rows_, i + 1 == programs.size(), times_);
    }
    times_.report(batch.rows);
    const bool written =
        !programs.empty() && static_cast<CpuExecutable*>(programs.back())->writes_out(batch);
    if (batch.out != nullptr && !written) read(*batch.out, batch.out_offset, batch.out_bytes);
  }

 private:
  static std::string_view environment_limit() {
    const char* text = std::getenv("SPLIT_CPU_ISA");
    return text == nullptr ? "" : text;
  }

  const CpuKernels& kernels_;
  ThreadPool pool_;
  StepTimes times_;
  std::vector<int32_t> out_rows_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(unsigned threads) {
  return std::make_unique<CpuDevice>(threads);
}

}  // namespace split
