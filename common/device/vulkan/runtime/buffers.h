// Buffers that are bound to a Program's slots: plain ones, pages and weights; and the workspace
// that programs share. Each keeps the device's core alive.
#pragma once

#include <optional>

#include "device/vulkan/codegen/kernels.h"
#include "device/vulkan/runtime/memory.h"
#include "device/vulkan/tuning/tuner.h"

namespace split::vulkan {

struct Core {
  Core(std::unique_ptr<Instance> instance, size_t index)
      : context(std::move(instance), index),
        queue(context),
        memory(context, queue),
        pipelines(context),
        kernels(pipelines),
        tuner(context.capabilities()) {}
  Context context;
  Queue queue;
  Memory memory;
  Pipelines pipelines;
  Kernels kernels;
  Tuner tuner;
  uint64_t executables = 0;  // in total
};
using CorePtr = std::shared_ptr<Core>;
CorePtr core_of(const Device& device);  // null for a device other than Vulkan's

// Bytes of K or V of one layer.
size_t cache_bytes(const Limits& limits, int64_t channels, DType dtype);

// A weight's layout in device memory.
enum class WeightLayout : uint8_t {
  kRows,     // as the view has it, rows of a matrix padded to whole chunks of 8 elements; of a
             // quantised one the numbers, apart from the scales, in LaneOrder
  kColumns,  // a matrix [K, M] as [M, K], padded likewise: K is contiguous, as matmul reads it
};

class VulkanBuffer final : public Buffer {
 public:
  VulkanBuffer(CorePtr core, size_t bytes, MemoryUse use = MemoryUse::kDevice);
  // A weight. Its first use decides its layout; until then it stays in the view.
  VulkanBuffer(CorePtr core, const TensorView& view);
  // A sketch: has the sizes of the slot's later binding, and no memory.
  VulkanBuffer(CorePtr core, const Slot& slot, const Limits& limits);
  explicit VulkanBuffer(size_t bytes);  // a sketch of so many bytes

  size_t size() const override { return size_; }
  bool borrows() const override {
    return (!rows_ && !columns_ && !laid_) || !core_->memory.filled(last_fill_);
  }
  bool is_weight() const { return view_.has_value(); }
  const Allocation& plain() const;  // CHECKs that this is not a weight
  const Allocation& weight(WeightLayout layout);
  // Places the rows of other weights of its type behind its own; they get no memory themselves and
  // stay until it is made. Call before weight().
  void lay_before(std::vector<VulkanBuffer*> others);
  // Lays a quantised weight's blocks by segments (LaneOrder). Call before weight().
  void lay_by_segments();
  const Allocation& scales() const;  // a quantised weight's, after weight(): floats, in LaneOrder
  const TensorView& view() const { return *view_; }
  uint64_t last_fill() const { return last_fill_; }  // Memory's fill of its weight
  // Sizes of its parts in device memory, or of its sketch.
  std::vector<size_t> parts() const;

 private:
  // The views of this weight and of those behind it, as rows of so many bytes.
  struct ViewRows {
    std::vector<std::pair<size_t, const std::byte*>> views;  // rows, and where they begin
    size_t bytes = 0, count = 0;
    const std::byte* operator[](size_t row) const;
  };
  ViewRows view_rows(size_t bytes) const;
  void split_blocks();
  Allocation room(size_t bytes) const;
  void fill(const Allocation& to, size_t unit, const WeightWriter::Make& make,
            WeightWriter::Cut cut = {});

  CorePtr core_;
  size_t size_ = 0;
  bool sketch_ = false;
  std::optional<Allocation> plain_, rows_, columns_, scales_;
  std::optional<TensorView> view_;
  std::vector<VulkanBuffer*> behind_;  // weights that lie behind this one
  bool by_segments_ = false;
  bool laid_ = false;       // it lies behind another, which has been made
  uint64_t last_fill_ = 0;  // Memory's fill that reads the view
};

// A result that a step leaves for the host: made visible to it or, where it cannot read fast,
// copied.
struct CopyOut {
  VkBuffer from = VK_NULL_HANDLE, to = VK_NULL_HANDLE;  // null: read in place
  size_t from_offset = 0, to_offset = 0, bytes = 0;
  uint64_t staging = 0;  // number of `to`: a handle may come again
  void record(VkCommandBuffer commands) const;
  auto operator<=>(const CopyOut&) const = default;
};

inline constexpr size_t kCountBytes = size_t{64} * 128 * sizeof(uint32_t);  // for rows and heads
inline constexpr size_t kScratchBytes = size_t{64} << 20;  // partial results' limit

class VulkanWorkspace final : public Workspace {
 public:
  VulkanWorkspace(CorePtr core, const Limits& limits);
  ~VulkanWorkspace() override;

  const Limits& limits() const { return limits_; }
  uint32_t capacity() const { return capacity_; }  // rows, a multiple of 8
  uint32_t splits() const;                         // attention's, for the longest sequence
  uint32_t runs() const;                           // runs of rows of the present step
  const Allocation& arena() const { return arena_; }
  const Allocation& symbols() const { return symbols_; }
  // Returns memory of at least this size behind kCountBytes that are 0 between steps, shared by
  // programs that run one after the other.
  std::shared_ptr<Allocation> scratch(size_t bytes);

  // Throws Error(kDevice) for a batch that does not fit the limits.
  void write_symbols(const RowBatch& batch);
  // Commands before and after the programs, recorded again only when buffers or sizes change.
  void copy_in(const RowBatch& batch, std::vector<Segment>& segments);
  CopyOut copy_out(const RowBatch& batch);
  void copy_separately(const CopyOut& copy,
                       std::vector<Segment>& segments);  // in commands of its own
  void finish(const RowBatch& batch);                    // call after the wait

 private:
  struct Copy {
    VkCommandBuffer commands = VK_NULL_HANDLE;
    VkBuffer buffer = VK_NULL_HANDLE;
    size_t offset = 0, bytes = 0;
    bool recorded = false;
    std::optional<Allocation> staging;
  };
  void begin(Copy& copy);
  CorePtr core_;
  const Limits limits_;
  const uint32_t capacity_;
  Allocation arena_, symbols_;
  std::shared_ptr<Allocation> scratch_;
  Copy in_, out_;
  CopyOut copy_;           // the current step's
  CopyOut apart_;          // out_'s recorded one
  uint64_t stagings_ = 0;  // number of out_'s stagings
};

}  // namespace split::vulkan
