// The Vulkan device: chooses a physical device and ties its parts to the Device interface.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <set>

#include "base/log.h"
#include "device/device.h"
#include "device/vulkan/codegen/rules.h"
#include "device/vulkan/codegen/spirv.h"
#include "device/vulkan/program/recording.h"

namespace split {
namespace vulkan {
namespace {

// Times of tuning.
constexpr std::chrono::milliseconds kWarmUp{100};  // a GPU that rested runs slowly at first
constexpr std::chrono::milliseconds kMostTuning{1000};
constexpr int kRounds = 5;
constexpr size_t kOthersBytes = size_t{64} << 20;  // written between runs, as other layers are read

std::string name_of(size_t index, const Capabilities& device) {
  return cat("vulkan:", index, " (", device.name, device.software ? ", software)" : ")");
}

VulkanBuffer& own(Buffer& buffer) { return dynamic_cast<VulkanBuffer&>(buffer); }

class VulkanDevice final : public Device {
 public:
  explicit VulkanDevice(CorePtr core) : index_(core->context.index()) {
    const Capabilities& device = core->context.capabilities();
    name_ = name_of(index_, device);
    take(std::move(core));
  }

  const CorePtr& core() const { return core_; }
  std::string name() const override { return name_; }
  bool is_gpu() const override { return !core_->context.capabilities().software; }
  uint64_t own_memory() const override {
    const Capabilities& device = core_->context.capabilities();
    return device.discrete ? device.local_bytes() : 0;
  }
  bool can_be_lost() const override { return true; }
  bool host_copy_is_slow() const override { return true; }
  void restart() override {
    recordings_.reset();
    core_.reset();
    take(std::make_shared<Core>(std::make_unique<Instance>(), index_));
  }
  std::optional<std::string> fingerprint() const override {
    if (!is_gpu()) return std::nullopt;
    Sha256 kernels;
    for (const EmbeddedKernel& kernel : embedded_kernels())
      kernels.update(as_bytes_of(std::string_view(kernel.key)));
    return cat(core_->context.capabilities().name, ", kernels ", to_hex(kernels.finish()),
               core_->context.capabilities().addresses ? ", by addresses" : "");
  }
  bool multiplies(DType /*matrix*/) const override { return true; }
  bool multiplies_int8(Int8Rows rows) const override { return rows != Int8Rows::kGenerated; }
  bool takes_long_rows(const Limits& limits) const override {
    constexpr uint64_t kPart = 32;  // 1/32 of its memory for a step's temporaries
    const Capabilities& device = core_->context.capabilities();
    const uint64_t bytes = uint64_t{limits.arena_row_bytes} * limits.long_rows;
    return device.matrix && limits.matrix && bytes <= device.local_bytes() / kPart;
  }
  FuseRules fuse_rules() const override { return kFuseRules; }
  bool supports(const Program& /*program*/, const Step& step) const override {
    return VulkanExecutable::has_kernel(step.op);
  }
  bool settled() override {
    const bool filled = core_->memory.all_filled();
    return core_->pipelines.settled() && filled;
  }
  void settle() override {
    core_->memory.wait_filled();
    core_->memory.trim();
    core_->pipelines.settle();
  }

  std::unique_ptr<Buffer> alloc(size_t bytes) override {
    auto buffer = std::make_unique<VulkanBuffer>(core_, bytes);
    core_->memory.zero(buffer->plain());
    return buffer;
  }
  bool supports_kv(DType kv) const override {
    return Device::supports_kv(kv) || kv == DType::kQ8_0 || kv == DType::kBF16;
  }
  bool keeps_bf16(Int8Rows rows) const override { return rows == Int8Rows::kAll; }
  std::unique_ptr<Buffer> alloc_pages(const Limits& limits, int64_t channels,
                                      DType dtype) override {
    return std::make_unique<VulkanBuffer>(core_, cache_bytes(limits, channels, dtype),
                                          MemoryUse::kModel);
  }
  std::unique_ptr<Buffer> alloc_states(const Limits& limits, const StateShape& shape) override {
    return std::make_unique<VulkanBuffer>(core_, states_bytes(limits, shape), MemoryUse::kModel);
  }
  std::unique_ptr<Buffer> upload(const Slot& slot, const TensorView& view) override {
    if (view.dims != slot.dims || tensor_bytes(view.dtype, view.dims) != view.bytes.size()) {
      throw Error(ErrorKind::kDevice,
                  cat("[vulkan] weight '", slot.name, "': expected ", to_string(slot.dims),
                      ", got ", to_string(view.dims), " in ", view.bytes.size(), " bytes"));
    }
    return std::make_unique<VulkanBuffer>(core_, view);
  }
  void write(Buffer& buffer, size_t offset, Bytes bytes) override {
    core_->memory.write(own(buffer).plain(), offset, bytes);
  }
  void read(const Buffer& buffer, size_t offset, std::span<std::byte> out) override {
    core_->memory.read(dynamic_cast<const VulkanBuffer&>(buffer).plain(), offset, out);
  }
  void copy(std::span<const BufferCopy> copies) override {
    std::vector<Memory::Move> moves;
    for (const BufferCopy& copy : copies) {
      moves.push_back({&own(*copy.buffer).plain(), copy.from, copy.to, copy.bytes});
    }
    core_->memory.move(moves);
  }

  std::unique_ptr<Workspace> workspace(const Limits& limits) override {
    return std::make_unique<VulkanWorkspace>(core_, limits);
  }
  void prepare(std::span<const Program> programs, Workspace& workspace) override {
    auto& ours = dynamic_cast<VulkanWorkspace&>(workspace);
    std::vector<std::pair<const Program*, VulkanExecutable::Needs>> all;  // one of each kind
    std::set<std::string_view> weights;
    std::vector<size_t> caches_bytes, weights_bytes;
    for (const Program& program : programs) {
      check_supported(*this, program);
      const Program* const like = core_->kernels.like(program);
      auto at = std::find_if(all.begin(), all.end(), [&](auto& one) { return one.first == like; });
      if (at == all.end()) {
        at = all.insert(at, {like, VulkanExecutable::needs(core_, program, ours)});
      }
      for (const auto& [slot, parts] : at->second.memory) {
        const bool weight = program.slots[slot].kind == SlotKind::kWeight;
        if (weight && !weights.insert(program.slots[slot].name).second) continue;
        std::vector<size_t>& to = weight ? weights_bytes : caches_bytes;
        to.insert(to.end(), parts.begin(), parts.end());
      }
    }
    // The kernels for many rows take longest to make: they are begun first.
    for (size_t variant = kVariants; variant-- > 0;) {
      for (const auto& [like, needs] : all) {
        for (const PipelineKey& key : needs.pipelines[variant]) core_->pipelines.begin(key);
      }
    }
    caches_bytes.insert(caches_bytes.end(), weights_bytes.begin(), weights_bytes.end());
    core_->memory.reserve(caches_bytes);
  }
  std::unique_ptr<Executable> load(const Program& program, Workspace& workspace,
                                   std::span<const Binding> bindings) override {
    if (debug_level() >= 1) log_info(to_string(program));
    check_supported(*this, program);
    auto& ours = dynamic_cast<VulkanWorkspace&>(workspace);
    const auto make = [&](size_t layout = 0) {
      const Tuner::Proposal proposal(core_->tuner, layout);
      return std::make_unique<VulkanExecutable>(core_, program, ours, bindings);
    };
    auto made = make();
    if (made->layouts() == 0) return made;
    // Side by side: a device's clock drifts.
    std::vector<std::unique_ptr<VulkanExecutable>> all;
    all.push_back(std::move(made));
    for (size_t i = 1; i < all[0]->layouts(); ++i) all.push_back(make(i));
    core_->pipelines.settle();
    tune(ours, all, row_of(program, bindings));
    return make();
  }
  void run(Workspace& workspace, std::span<Executable* const> programs,
           const RowBatch& batch) override {
    auto& ours = dynamic_cast<VulkanWorkspace&>(workspace);
    uint64_t fill = 0;
    programs_.clear();
    for (Executable* program : programs) {
      programs_.push_back(&dynamic_cast<VulkanExecutable&>(*program));
      fill = std::max(fill, programs_.back()->last_fill());
    }
    core_->memory.wait_filled(fill);
    ours.write_symbols(batch);
    segments_.clear();
    ours.copy_in(batch, segments_);
    const CopyOut copy = ours.copy_out(batch);
    if (!recordings_->get(programs_, batch, copy, segments_)) ours.copy_separately(copy, segments_);
    core_->queue.run(segments_);
    if (debug_level() >= 2) {
      for (const VulkanExecutable* program : programs_) log_info(program->times());
    }
    ours.finish(batch);
  }

  void measure(bool on) override { core_->queue.measure(on); }
  std::optional<double> device_ms() const override { return core_->queue.device_ms(); }

 private:
  // A row to put into a program, and where it puts its own.
  struct Row {
    Buffer* in = nullptr;
    Buffer* out = nullptr;
    std::vector<float> values, result;
  };
  static Row row_of(const Program& program, std::span<const Binding> bindings) {
    Row row;
    for (const Binding& binding : bindings) {
      const int index = program.find(binding.name);
      if (index < 0) continue;
      const Slot& slot = program.slots[static_cast<size_t>(index)];
      if (slot.dims.size() != 2 || slot.dims[0] >= 0 || slot.dtype != DType::kF32) continue;
      const bool in = slot.kind == SlotKind::kInput;
      (in ? row.in : row.out) = binding.buffer;
      (in ? row.values : row.result).resize(static_cast<size_t>(slot.dims[1]));
    }
    for (size_t i = 0; i < row.values.size(); ++i) {
      row.values[i] = static_cast<float>(i * 2654435761u % 2048) / 1024 - 1;
    }
    return row;
  }

  // Runs the executables, which differ in their layouts, over a row of nobody. One whose result is
  // not the first's, bit for bit, is left out.
  void tune(VulkanWorkspace& workspace, std::span<const std::unique_ptr<VulkanExecutable>> all,
            Row row) {
    const std::vector<uint32_t> spare(workspace.limits().pages_per_sequence,
                                      workspace.limits().pages);
    const int32_t zero = 0;
    const uint32_t first = 0;
    const KeyRange itself{0, 1};
    RowBatch batch;
    batch.phase = Phase::kGenerate;
    batch.rows = 1;
    batch.tokens = batch.positions = batch.marks = std::span(&zero, 1);
    batch.out_rows = std::span(&first, 1);
    if (workspace.limits().sequences > 0) batch.sequences = std::span(&first, 1);
    batch.seen = std::span(&itself, 1);
    batch.page_tables = spare;
    batch.in = row.in;
    batch.in_bytes = std::as_bytes(std::span(row.values));
    batch.out = row.out;
    batch.out_bytes = std::as_writable_bytes(std::span(row.result));
    const Allocation others(core_->memory, kOthersBytes, MemoryUse::kDevice);
    std::vector<float> want;
    std::vector<bool> right(all.size(), true);
    const auto run_all = [&](bool report) {
      for (size_t i = 0; i < all.size(); ++i) {
        core_->memory.zero(others);
        Executable* const program = all[i].get();
        run(workspace, std::span(&program, 1), batch);
        if (want.empty()) want = row.result;
        right[i] = right[i] &&
                   std::memcmp(want.data(), row.result.data(), want.size() * sizeof(float)) == 0;
        if (report && right[i]) all[i]->report(core_->tuner);
      }
    };
    const auto start = std::chrono::steady_clock::now();
    const auto since = [&] { return std::chrono::steady_clock::now() - start; };
    do run_all(false);
    while (since() < kWarmUp);
    for (int round = 0; round < kRounds && (round == 0 || since() < kMostTuning); ++round) {
      run_all(true);
    }
    if (const auto wrong = std::count(right.begin(), right.end(), false); wrong > 0) {
      log_warning(cat("[vulkan] ", wrong, " of ", all.size(),
                      " layouts of products give other bits on ", name_, ": not used"));
    }
    recordings_->clear();
    core_->tuner.settle();
  }

  void take(CorePtr core) {
    core_ = std::move(core);
    recordings_.emplace(core_);
  }

  const size_t index_;
  std::string name_;
  CorePtr core_;
  std::optional<Recordings> recordings_;
  std::vector<VulkanExecutable*> programs_;  // the current step's
  std::vector<Segment> segments_;
};

// An instance, or null where there is no loader with a driver.
std::unique_ptr<Instance> try_instance() {
  try {
    return std::make_unique<Instance>();
  } catch (const Error& error) {
    const char* validate = std::getenv("SPLIT_VALIDATE");
    if (validate != nullptr && *validate != '\0') throw;
    // Most machines without a GPU have no driver.
    const bool none =
        std::string_view(error.what()).find("INCOMPATIBLE_DRIVER") != std::string::npos;
    if (!none) log_warning(error.what());
    if (none && debug_level() >= 1) log_info(error.what());
    return nullptr;
  }
}

}  // namespace

CorePtr core_of(const Device& device) {
  const auto* const own = dynamic_cast<const VulkanDevice*>(&device);
  return own == nullptr ? nullptr : own->core();
}

}  // namespace vulkan

std::unique_ptr<Device> make_vulkan_device(const std::string& which) {
  using namespace vulkan;  // NOLINT(google-build-using-namespace): this file is its interface
  std::unique_ptr<Instance> instance = try_instance();
  const std::vector<VkPhysicalDevice> devices =
      instance ? instance->devices() : std::vector<VkPhysicalDevice>{};
  size_t index = devices.size();
  if (which.empty() || which == "any") {
    for (size_t i = devices.size(); i-- > 0;) {
      const Capabilities device = inspect(instance->get(), devices[i]);
      if (!device.missing.empty()) {
        log_warning(cat("[vulkan] ", device.name, " lacks ", device.missing));
      } else if (!device.software) {
        index = i;
      }
    }
    for (size_t i = 0; which == "any" && index == devices.size() && i < devices.size(); ++i) {
      const Capabilities device = inspect(instance->get(), devices[i]);
      if (device.missing.empty()) index = i;
    }
    if (index == devices.size()) {
      if (which.empty()) return nullptr;
      throw Error(ErrorKind::kDevice,
                  "[vulkan] this machine has no Vulkan device that can be used");
    }
  } else {
    const auto number = parse_u64(which, 0, 1 << 20);
    if (!number.has_value()) {
      throw Error(ErrorKind::kInput, cat("[vulkan] expected a device's index, got '", which, "'"));
    }
    index = *number;
    if (index >= devices.size()) {
      throw Error(ErrorKind::kDevice,
                  cat("[vulkan] vulkan:", index, ": this machine has ", devices.size(),
                      devices.size() == 1 ? " Vulkan device" : " Vulkan devices",
                      "; --list-devices names them"));
    }
  }
  return std::make_unique<VulkanDevice>(std::make_shared<Core>(std::move(instance), index));
}

std::vector<ListedDevice> list_vulkan_devices() {
  using namespace vulkan;  // NOLINT(google-build-using-namespace): this file is its interface
  std::vector<ListedDevice> all;
  const std::unique_ptr<Instance> instance = try_instance();
  if (!instance) return all;
  for (const VkPhysicalDevice physical : instance->devices()) {
    const Capabilities device = inspect(instance->get(), physical);
    const bool usable = device.missing.empty();
    all.push_back({cat("vulkan:", all.size()),
                   cat(name_of(all.size(), device), usable ? "" : cat(" lacks ", device.missing)),
                   !device.software, usable});
  }
  return all;
}

}  // namespace split
