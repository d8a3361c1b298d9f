// Device memory: parts of a few large buffers; written in place if the host can see them and
// through staging if not. One thread at a time.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <future>
#include <list>
#include <map>

#include "base/resources/thread_pool.h"
#include "device/device.h"
#include "device/vulkan/runtime/queue.h"
#include "device/vulkan/runtime/weight_writer.h"

namespace split::vulkan {

enum class MemoryUse : uint8_t {
  kDevice,    // arenas, inputs, outputs: device-local, mapped when the whole heap is host-visible
  kModel,     // weights and caches: likewise, but not mapped where a bus lies between
  kStaging,   // written by the host, to be copied to the device
  kUpload,    // written by the host each step, read by kernels
  kReadback,  // written by the device, read by the host: cached
};

// A larger ring brings weights up faster and takes a driver longer to make: on an H200 26 GB/s and
// 9 ms with 32 MiB, 28 and 17 with 64; with pieces of 4 MiB in 32 it were 24.
inline constexpr size_t kRingBytes = size_t{40} << 20;

// Bytes of a buffer for so many bytes. No device asks for more than multiples of 256.
constexpr size_t part_bytes(size_t bytes) {
  constexpr size_t kAlign = 256;
  return (std::max<size_t>(bytes, 1) + kAlign - 1) / kAlign * kAlign;
}

class Memory;

// A part of a VkBuffer. `size` is the requested one, the part ends at a multiple of 256.
class Allocation {
 public:
  Allocation() = default;
  Allocation(Memory& memory, size_t bytes, MemoryUse use);
  explicit Allocation(size_t bytes) : size_(bytes) {}  // a size alone, without memory
  ~Allocation();
  Allocation(Allocation&& other) noexcept { *this = std::move(other); }
  Allocation& operator=(Allocation&& other) noexcept;

  VkBuffer buffer() const { return buffer_; }
  size_t offset() const { return offset_; }  // in buffer(): a multiple of 256
  size_t size() const { return size_; }
  // Null if the host cannot see it.
  std::byte* mapped() const { return mapped_; }
  // Whether host reads of mapped() are fast.
  bool cached() const { return cached_; }

 private:
  friend class Memory;
  Memory* memory_ = nullptr;
  VkBuffer buffer_ = VK_NULL_HANDLE;
  size_t offset_ = 0, size_ = 0;
  std::byte* mapped_ = nullptr;
  bool cached_ = false;
  void* block_ = nullptr;  // Memory::Block
};

class Memory {
 public:
  Memory(Context& context, Queue& queue);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  Context& context() { return context_; }
  // Makes blocks in which allocations of these sizes fit, for kModel, as far as there is room: a
  // few large ones take a driver less time than many. Only trim() gives them back.
  void reserve(std::span<const size_t> sizes);
  // Gives back empty blocks.
  void trim();
  size_t blocks(MemoryUse use) const;
  void write(const Allocation& to, size_t offset, Bytes bytes);
  // Fills `to` with units of `unit` bytes, which `make` makes in parts, on all processors: one core
  // neither reorders weights nor fills a bus fast enough. This goes on beside the caller: what
  // `make` reads stays until filled() the returned number, and the device reads `to` after
  // wait_filled() for it. No Allocation is released before all of them are. `make` must not throw.
  uint64_t fill(const Allocation& to, size_t unit, const WeightWriter::Make& make,
                WeightWriter::Cut cut = {});
  bool filled(uint64_t fill) const { return writer_.done(fill); }
  void wait_filled(uint64_t fill);  // waits for earlier ones too
  void wait_filled();               // all
  // Goes on with them, and says whether all are filled, without a wait.
  bool all_filled();
  void read(const Allocation& from, size_t offset, std::span<std::byte> out);
  void zero(const Allocation& to);
  // Bytes that go to another place of their allocation; in one submission.
  struct Move {
    const Allocation* in = nullptr;
    size_t from = 0, to = 0, bytes = 0;
  };
  void move(std::span<const Move> moves);
  // memcpy on all processors when there is much of it.
  void copy(const std::byte* from, std::span<std::byte> to);

 private:
  friend class Allocation;
  struct Block {
    MemoryUse use = MemoryUse::kDevice;
    Handle<VkDeviceMemory> memory;
    Handle<VkBuffer> buffer;  // all of it
    size_t size = 0;
    std::byte* mapped = nullptr;
    bool cached = false;
    std::map<size_t, size_t> free;  // offset -> length
  };
  void place(Allocation& allocation, MemoryUse use);
  void release(Allocation& allocation);
  uint32_t type_for(uint32_t allowed, MemoryUse use) const;
  // Any thread.
  Block make_block(MemoryUse use, size_t size) const;
  Block& new_block(MemoryUse use, size_t size);
  ThreadPool& pool();
  // Zeros for all of `to` without `from`.
  void copy(const Allocation* from, size_t from_offset, const Allocation& to, size_t to_offset,
            size_t bytes);

  // A write through staging memory, a ring: made there, then copied, and gone from there
  // once the queue is done with that.
  struct Piece {
    uint64_t made = 0;         // the WeightWriter's job
    size_t at = 0, bytes = 0;  // in the ring
    VkBuffer to = VK_NULL_HANDLE;
    size_t offset = 0;    // there
    uint64_t copied = 0;  // the queue's number; 0: not begun
  };
  Allocation& ring();
  // Room in the ring, once those before it have left it.
  size_t ring_room(size_t bytes);
  void copy_made();
  void retire();
  void begin_copies(VkCommandBuffer commands) const;
  void end_copies(VkCommandBuffer commands) const;

  Context& context_;
  Queue& queue_;
  std::list<Block> blocks_;
  std::future<Block> ring_block_;
  std::unique_ptr<Allocation> ring_, readback_;  // staging, made when first needed
  std::optional<ThreadPool> pool_;               // made when first needed
  VkCommandBuffer commands_ = VK_NULL_HANDLE;
  std::deque<Piece> pieces_;  // in the order of their jobs and places in the ring
  size_t ring_end_ = 0;       // end of the last piece
  std::map<uint64_t, VkCommandBuffer> copying_;  // by the queue's number
  std::vector<VkCommandBuffer> copied_;          // to be used again
  bool lost_ = false;                            // what was to be copied
  WeightWriter writer_;
};

}  // namespace split::vulkan
