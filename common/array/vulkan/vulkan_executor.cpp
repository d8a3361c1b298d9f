// Runs a schedule on a Vulkan device: recorded once, replayed by each run. Leaves have copies on
// the device that all plans of a store share; what the host changed goes up before a run, what a
// run wrote comes down when it is looked at.
#include <algorithm>
#include <bit>
#include <map>
#include <tuple>

#include "array/executor.h"
#include "array/vulkan/kernel_glsl.h"
#include "base/error.h"
#include "device/vulkan/program/commands.h"
#include "device/vulkan/runtime/buffers.h"

namespace split::array {
namespace {

using namespace vulkan;  // NOLINT(google-build-using-namespace): this file is its user

constexpr size_t kAlign = 256;  // bytes, at which any device lets a binding begin
// The most work of a command buffer, so that a weak device has it done within kSubmissionMs.
constexpr uint64_t kMostElements = 100'000'000, kMostProducts = 1'000'000'000;

class Copy final : public Store::Remote {
 public:
  Copy(const CorePtr& core, size_t bytes)
      : core_(core), memory_(core->memory, bytes, MemoryUse::kDevice) {}
  const Allocation& memory() const { return memory_; }
  void pull(Store::Entry& entry) override { core_->memory.read(memory_, 0, entry.bytes()); }

 private:
  const CorePtr core_;  // outlives the memory
  const Allocation memory_;
};

class VulkanExecutor final : public Executor {
 public:
  VulkanExecutor(CorePtr core, const Schedule& schedule, Leaves leaves);
  ~VulkanExecutor() override;
  VulkanExecutor(const VulkanExecutor&) = delete;
  VulkanExecutor& operator=(const VulkanExecutor&) = delete;

  void run() override;
  std::span<const std::byte> bytes(size_t buffer) override;
  size_t arena_bytes() const override { return layout_.floats * sizeof(float); }

 private:
  // Memory that a kernel reads or writes.
  struct Part {
    VkBuffer buffer = VK_NULL_HANDLE;
    size_t begin = 0, end = 0;  // bytes
    DType type = DType::kF32;   // in which they are computed with
    bool holds(const Part& other) const {
      return buffer == other.buffer && type == other.type && begin <= other.begin &&
             end >= other.end;
    }
  };
  struct Command : BoundKernel {
    PipelineKey key;
    Ranges ranges;
    Cost cost;
  };
  Copy& copy_of(size_t leaf) { return dynamic_cast<Copy&>(*leaves_[leaf]->remote); }
  Part part_of(int buffer);
  // The fewest parts in which all of these are, each as large as a binding can be.
  std::vector<Part> joined(std::vector<Part> all) const;
  void add_kernel(size_t kernel);
  void record();

  const CorePtr core_;
  const Schedule& schedule_;
  const std::vector<Store::Entry*> leaves_;
  const Layout layout_;
  Allocation arena_, fault_, numbers_;
  std::vector<uint32_t> words_;  // words of all kernels
  std::vector<Command> commands_;
  Sets sets_;
  std::vector<Segment> segments_;
  std::map<size_t, std::vector<std::byte>> results_;  // temporaries that were read
};

Lanes lanes_of(const Core& core) {
  const Capabilities& device = core.context.capabilities();
  if (device.small_tiles) return {64, 8};
  return device.most_lanes >= 256 ? Lanes{256, 16} : Lanes{device.most_lanes, 8};
}

VulkanExecutor::VulkanExecutor(CorePtr core, const Schedule& schedule, Leaves leaves)
    : core_(std::move(core)),
      schedule_(schedule),
      leaves_(leaves.begin(), leaves.end()),
      layout_(schedule, gpu_workspace),
      arena_(core_->memory, layout_.floats * sizeof(float), MemoryUse::kDevice),
      fault_(core_->memory, 2 * sizeof(int32_t), MemoryUse::kDevice) {
  for (size_t i = 0; i < leaves_.size(); ++i) {
    Store::Entry* const entry = leaves_[i];
    if (entry == nullptr || entry->remote != nullptr) continue;
    entry->remote = std::make_shared<Copy>(core_, entry->bytes().size());
    entry->changed = true;
  }
  for (size_t i = 0; i < schedule_.kernels.size(); ++i) add_kernel(i);
  numbers_ = Allocation(core_->memory, words_.size() * sizeof(uint32_t), MemoryUse::kDevice);
  core_->memory.write(numbers_, 0, std::as_bytes(std::span(words_)));
  std::vector<const Ranges*> ranges;
  for (Command& command : commands_) {
    command.ranges[0] = {numbers_.buffer(), numbers_.offset(), part_bytes(numbers_.size())};
    ranges.push_back(&command.ranges);
  }
  sets_.make(core_->context, core_->pipelines, ranges);
  for (Command& command : commands_) {
    sets_.bind(core_->context, core_->pipelines, command.key, command.ranges, command);
  }
  core_->pipelines.settle();
  record();
}

VulkanExecutor::~VulkanExecutor() {
  for (const Segment& segment : segments_) {
    vkFreeCommandBuffers(core_->context.device(), core_->context.pool(), 1, &segment.commands);
  }
}

VulkanExecutor::Part VulkanExecutor::part_of(int buffer) {
  const auto part = [](const Allocation& in, size_t at, size_t bytes) {
    return Part{in.buffer(), in.offset() + at, in.offset() + at + std::max<size_t>(bytes, 8)};
  };
  if (buffer == kFault) {
    Part range = part(fault_, 0, fault_.size());
    range.type = DType::kI32;
    return range;
  }
  const auto b = static_cast<size_t>(buffer);
  const size_t bytes = schedule_.buffers[b].words() * sizeof(float);
  Part range = leaves_[b] == nullptr ? part(arena_, layout_.at[b] * sizeof(float), bytes)
                                     : part(copy_of(b).memory(), 0, bytes);
  range.type = computing(schedule_.buffers[b].dtype);
  return range;
}

std::vector<VulkanExecutor::Part> VulkanExecutor::joined(std::vector<Part> all) const {
  const std::vector<Part> used = all;
  const size_t most = core_->context.capabilities().max_range;
  for (Part& range : all) range.begin = range.begin / kAlign * kAlign;
  std::ranges::sort(all, [](const Part& a, const Part& b) {
    return std::tuple(a.type, a.buffer, a.begin, a.end) <
           std::tuple(b.type, b.buffer, b.begin, b.end);
  });
  std::vector<Part> ranges;
  for (const Part& range : all) {
    const bool fits = !ranges.empty() && ranges.back().buffer == range.buffer &&
                      ranges.back().type == range.type &&
                      (range.end <= ranges.back().end || range.end - ranges.back().begin <= most);
    if (fits) {
      ranges.back().end = std::max(ranges.back().end, range.end);
    } else {
      ranges.push_back(range);
    }
  }
  // In the order of their use: kernels of one structure have one text, wherever memory lies.
  std::vector<Part> ordered;
  for (const Part& own : used) {
    const auto at = std::ranges::find_if(ranges, [&](const Part& r) { return r.holds(own); });
    if (at == ranges.end()) continue;
    ordered.push_back(*at);
    ranges.erase(at);
  }
  return ordered;
}

void VulkanExecutor::add_kernel(size_t i) {
  const Kernel& kernel = schedule_.kernels[i];
  std::vector<int> buffers;
  kernel.each_operand([&](const Operand& operand) {
    if (operand.from == Operand::From::kBuffer) buffers.push_back(operand.buffer);
  });
  for (const auto& output : kernel.tape.outputs) buffers.push_back(output.slot);
  if (kernel.kind == KernelKind::kTake || kernel.kind == KernelKind::kPut) {
    buffers.push_back(kFault);
  }
  std::vector<Part> all;
  for (const int buffer : buffers) all.push_back(part_of(buffer));
  const std::vector<Part> ranges = joined(all);
  const size_t most = core_->context.capabilities().max_range / kAlign * kAlign;
  Bindings bindings;
  bindings.piece = static_cast<int64_t>(most / sizeof(float));
  Command command;
  command.ranges.resize(1);     // words
  std::vector<uint32_t> first;  // first element of each range
  for (const Part& range : ranges) {
    first.push_back(bindings.count);
    for (size_t at = range.begin; at < range.end; at += most, ++bindings.count) {
      command.ranges.push_back({range.buffer, at, (std::min(most, range.end - at) + 3) / 4 * 4});
    }
  }
  const uint32_t limit =
      core_->context.capabilities().properties.limits.maxPerStageDescriptorStorageBuffers;
  if (bindings.count > limit) {
    throw Error(ErrorKind::kDevice, cat("[vulkan] a kernel of ", bindings.count,
                                        " buffers: this device binds ", limit));
  }
  bindings.of = [&](int buffer) {
    const Part own = part_of(buffer);
    for (size_t r = 0;; ++r) {
      CHECK(r < ranges.size());
      if (!ranges[r].holds(own)) continue;
      const uint32_t end = r + 1 < first.size() ? first[r + 1] : bindings.count;
      return Bound{first[r], end - first[r],
                   static_cast<int64_t>((own.begin - ranges[r].begin) / dtype_size(own.type)),
                   own.type};
    }
  };
  std::optional<Dispatch> dispatch = dispatch_for(kernel, bindings, lanes_of(*core_));
  if (!dispatch) return;
  if (dispatch->wide && !core_->context.capabilities().wide_numbers) {
    throw Error(ErrorKind::kDevice, cat("[vulkan] I64 needs a device with shaderInt64, which ",
                                        core_->context.capabilities().name, " lacks; I32 does"));
  }
  command.key.text = core_->pipelines.kept(std::move(dispatch->text));
  command.key.bindings = bindings.count;
  command.push.row_base = static_cast<uint32_t>(words_.size());  // index of its first word
  words_.insert(words_.end(), dispatch->words.begin(), dispatch->words.end());
  command.groups = dispatch->groups;
  command.cost = {dispatch->elements, dispatch->products};
  commands_.push_back(std::move(command));
}

void VulkanExecutor::record() {
  constexpr VkPipelineStageFlags kAll = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
  const auto begun = [&] {
    segments_.push_back({core_->context.command_buffer(), {}});
    begin(segments_.back().commands);
    return segments_.back().commands;
  };
  VkCommandBuffer last = begun();
  for (const Command& command : commands_) {
    const Cost& so_far = segments_.back().cost;
    const bool full = so_far.weights / 2 + command.cost.weights / 2 > kMostElements / 2 ||
                      so_far.products + command.cost.products > kMostProducts;
    if (full && so_far.weights + so_far.products > 0) {
      end(last);
      last = begun();
    }
    segments_.back().cost += command.cost;
    barrier(last, kAll, VK_ACCESS_MEMORY_WRITE_BIT, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
            VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT);
    command.record(last, core_->pipelines);
  }
  if (!schedule_.copies.empty()) {
    barrier(last, kAll, VK_ACCESS_MEMORY_WRITE_BIT, VK_PIPELINE_STAGE_TRANSFER_BIT,
            VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT);
  }
  for (const auto& [from, to] : schedule_.copies) {
    const Part a = part_of(from), b = part_of(to);
    const VkBufferCopy region{a.begin, b.begin, b.end - b.begin};
    vkCmdCopyBuffer(last, a.buffer, b.buffer, 1, &region);
  }
  barrier(last, kAll, VK_ACCESS_MEMORY_WRITE_BIT, kAll | VK_PIPELINE_STAGE_HOST_BIT,
          VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_HOST_READ_BIT);
  end(last);
}

void VulkanExecutor::run() {
  for (size_t i = 0; i < leaves_.size(); ++i) {
    if (leaves_[i] == nullptr || !leaves_[i]->changed) continue;
    core_->memory.write(copy_of(i).memory(), 0, leaves_[i]->bytes());
    leaves_[i]->changed = false;
  }
  const bool checks = std::ranges::any_of(schedule_.kernels, [](const Kernel& kernel) {
    return kernel.kind == KernelKind::kTake || kernel.kind == KernelKind::kPut;
  });
  int32_t fault[2] = {};
  if (checks) core_->memory.write(fault_, 0, std::as_bytes(std::span(fault)));
  for (const int leaf : schedule_.written) leaves_[static_cast<size_t>(leaf)]->stale = true;
  results_.clear();
  core_->queue.run(segments_);
  if (!checks) return;
  core_->memory.read(fault_, 0, std::as_writable_bytes(std::span(fault)));
  if (fault[0] != 0) {
    throw Error(ErrorKind::kInput,
                cat("[array] expected an index within its table, got ", fault[1]));
  }
}

std::span<const std::byte> VulkanExecutor::bytes(size_t buffer) {
  if (leaves_[buffer] != nullptr) {
    Store::fetch(*leaves_[buffer]);
    return leaves_[buffer]->bytes();
  }
  const auto [at, fresh] = results_.try_emplace(buffer);
  if (fresh) {
    const BufferSpec& spec = schedule_.buffers[buffer];
    at->second.resize(static_cast<size_t>(spec.count) * spec.number_bytes());
    core_->memory.read(arena_, layout_.at[buffer] * sizeof(float), std::span(at->second));
  }
  return at->second;
}

}  // namespace

std::unique_ptr<Executor> make_gpu_executor(const Device& gpu, const Schedule& schedule,
                                            Leaves leaves) {
  CorePtr core = core_of(gpu);
  if (core == nullptr) {
    throw Error(ErrorKind::kDevice, cat("[array] expected a Vulkan device, got ", gpu.name()));
  }
  return std::make_unique<VulkanExecutor>(std::move(core), schedule, leaves);
}

}  // namespace split::array
