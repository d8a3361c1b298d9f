#include "device/vulkan/runtime/memory.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/resources/granted.h"

namespace split::vulkan {
namespace {

constexpr size_t kBlockBytes = size_t{16} << 20;  // small ones share blocks of this
constexpr size_t kSmallBytes = size_t{4} << 20;
constexpr size_t kMostReserved = size_t{1} << 30;  // what any device gives at once
constexpr size_t kAlign = 256;                     // no device asks for more
// A larger ring brings weights up faster and takes a driver longer to make: on an H200 26 GB/s and
// 9 ms with 32 MiB, 28 and 17 with 64; with pieces of 4 MiB in 32 it were 24.
constexpr size_t kRingBytes = size_t{40} << 20;
constexpr size_t kPieceBytes = size_t{2} << 20;
constexpr size_t kReadbackBytes = size_t{32} << 20;  // past this size copies are no faster
constexpr std::chrono::milliseconds kSpin{1};
constexpr unsigned kMaxCopiers = 16;

// Bytes of a block that so many bytes take.
size_t part_bytes(size_t bytes) {
  return (std::max<size_t>(bytes, 1) + kAlign - 1) / kAlign * kAlign;
}

bool is_for_device(MemoryUse use) { return use == MemoryUse::kModel || use == MemoryUse::kDevice; }

}  // namespace

Allocation::Allocation(Memory& memory, size_t bytes, MemoryUse use)
    : memory_(&memory), size_(bytes) {
  memory.place(*this, use);
}

Allocation::~Allocation() {
  if (block_ != nullptr) memory_->release(*this);
}

Allocation& Allocation::operator=(Allocation&& other) noexcept {
  if (this == &other) return *this;
  if (block_ != nullptr) memory_->release(*this);
  memory_ = other.memory_;
  buffer_ = std::exchange(other.buffer_, VK_NULL_HANDLE);
  offset_ = other.offset_;
  size_ = std::exchange(other.size_, 0);
  mapped_ = std::exchange(other.mapped_, nullptr);
  cached_ = other.cached_;
  block_ = std::exchange(other.block_, nullptr);
  return *this;
}

Memory::Memory(Context& context, Queue& queue) : context_(context), queue_(queue) {
  // Beside the caller: it takes an H200's driver 12 ms.
  if (context.capabilities().discrete) {
    ring_block_ = std::async(std::launch::async | std::launch::deferred,
                             [this] { return make_block(MemoryUse::kStaging, kRingBytes); });
  }
}

Memory::~Memory() {
  ring_.reset();
  readback_.reset();
  if (commands_ != VK_NULL_HANDLE) copied_.push_back(commands_);
  for (const auto& [number, commands] : copying_) copied_.push_back(commands);  // after a failure
  for (const VkCommandBuffer commands : copied_) {
    vkFreeCommandBuffers(context_.device(), context_.pool(), 1, &commands);
  }
}

uint32_t Memory::type_for(uint32_t allowed, MemoryUse use) const {
  constexpr VkMemoryPropertyFlags kLocal = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
  constexpr VkMemoryPropertyFlags kHost =
      VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  constexpr VkMemoryPropertyFlags kCached = VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
  const VkPhysicalDeviceMemoryProperties& memory = context_.capabilities().memory;
  VkDeviceSize largest = 0;
  for (uint32_t i = 0; i < memory.memoryHeapCount; ++i) {
    if ((memory.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) != 0) {
      largest = std::max(largest, memory.memoryHeaps[i].size);
    }
  }
  const auto find = [&](VkMemoryPropertyFlags want, VkMemoryPropertyFlags avoid, bool main_heap) {
    for (uint32_t i = 0; i < memory.memoryTypeCount; ++i) {
      const VkMemoryType& type = memory.memoryTypes[i];
      if ((allowed >> i & 1) == 0 || (type.propertyFlags & want) != want) continue;
      if ((type.propertyFlags & avoid) != 0) continue;
      if (main_heap && memory.memoryHeaps[type.heapIndex].size < largest) continue;
      return static_cast<int>(i);
    }
    return -1;
  };
  int type = -1;
  switch (use) {
    case MemoryUse::kDevice:
    case MemoryUse::kModel:
      // A small host-visible window of a discrete GPU is left to what needs it. Over a bus, copies
      // from host memory bring up weights faster than processors write them in place.
      if (context_.capabilities().host_visible &&
          !(use == MemoryUse::kModel && context_.capabilities().discrete)) {
        type = find(kLocal | kHost, 0, true);
      }
      if (type < 0) type = find(kLocal, VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT, false);
      if (type < 0) type = find(kLocal, 0, false);
      break;
    case MemoryUse::kStaging:
      type = find(kHost | kCached, kLocal, false);
      if (type < 0) type = find(kHost, kLocal, false);
      break;
    case MemoryUse::kUpload:
      type = find(kLocal | kHost, 0, false);
      break;
    case MemoryUse::kReadback:
      type = find(kHost | kCached, 0, false);
      break;
  }
  if (type < 0 && !is_for_device(use)) type = find(kHost, 0, false);
  if (type < 0) type = find(0, 0, false);
  if (type < 0) throw Error(ErrorKind::kDevice, "[vulkan] no memory type for a storage buffer");
  return static_cast<uint32_t>(type);
}

Memory::Block Memory::make_block(MemoryUse use, size_t size) const {
  const VkDevice device = context_.device();
  const Capabilities& capabilities = context_.capabilities();
  Block block;
  block.use = use;
  block.size = size;
  block.free[0] = size;
  VkBufferCreateInfo buffer_info{};
  buffer_info.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
  buffer_info.size = size;
  buffer_info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                      VK_BUFFER_USAGE_TRANSFER_DST_BIT | VK_BUFFER_USAGE_INDIRECT_BUFFER_BIT;
  if (capabilities.addresses) buffer_info.usage |= VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;
  VkBuffer buffer = VK_NULL_HANDLE;
  VkResult result = vkCreateBuffer(device, &buffer_info, nullptr, &buffer);
  if (result < 0) {
    throw Error(ErrorKind::kDevice,
                cat("[vulkan] a buffer of ", size, " bytes: ", result_name(result)));
  }
  block.buffer = {device, buffer, vkDestroyBuffer};
  VkMemoryRequirements need{};
  vkGetBufferMemoryRequirements(device, buffer, &need);
  const uint32_t type = type_for(need.memoryTypeBits, use);

  // Dedicated: NVIDIA's driver takes 2 ms for a GiB of this and 20 for one of other memory.
  VkMemoryDedicatedAllocateInfo dedicated{};
  dedicated.sType = VK_STRUCTURE_TYPE_MEMORY_DEDICATED_ALLOCATE_INFO;
  dedicated.buffer = buffer;
  VkMemoryAllocateFlagsInfo flags{};
  flags.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO;
  flags.pNext = &dedicated;
  flags.flags = capabilities.addresses ? VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT : 0;
  VkMemoryAllocateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO;
  info.pNext = &flags;
  info.allocationSize = need.size;
  info.memoryTypeIndex = type;
  VkDeviceMemory memory = VK_NULL_HANDLE;
  result = vkAllocateMemory(device, &info, nullptr, &memory);
  if (result < 0) {
    const auto& heaps = capabilities.memory;
    throw Error(ErrorKind::kDevice, cat("[vulkan] no room for ", size, " bytes on a heap of ",
                                        heaps.memoryHeaps[heaps.memoryTypes[type].heapIndex].size,
                                        " bytes: ", result_name(result)));
  }
  block.memory = {device, memory, vkFreeMemory};
  check(vkBindBufferMemory(device, buffer, memory, 0), "vkBindBufferMemory");
  const VkMemoryPropertyFlags properties = capabilities.memory.memoryTypes[type].propertyFlags;
  block.cached = (properties & VK_MEMORY_PROPERTY_HOST_CACHED_BIT) != 0;
  constexpr VkMemoryPropertyFlags kHost =
      VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  const bool hidden = is_for_device(use) && !capabilities.host_visible;
  if ((properties & kHost) == kHost && !hidden) {
    void* mapped = nullptr;
    check(vkMapMemory(device, memory, 0, VK_WHOLE_SIZE, 0, &mapped), "vkMapMemory");
    block.mapped = static_cast<std::byte*>(mapped);
  }
  return block;
}

Memory::Block& Memory::new_block(MemoryUse use, size_t size) {
  return blocks_.emplace_back(make_block(use, size));
}

void Memory::place(Allocation& allocation, MemoryUse use) {
  const size_t size = part_bytes(allocation.size());
  const auto fit = [&](Block& block) {
    const auto at = std::find_if(block.free.begin(), block.free.end(),
                                 [&](const auto& part) { return part.second >= size; });
    if (block.use != use || at == block.free.end()) return false;
    const auto [offset, length] = *at;
    block.free.erase(at);
    if (length > size) block.free[offset + size] = length - size;
    allocation.block_ = &block;
    allocation.buffer_ = block.buffer.get();
    allocation.offset_ = offset;
    allocation.cached_ = block.cached;
    if (block.mapped != nullptr) allocation.mapped_ = block.mapped + offset;
    return true;
  };
  if (std::any_of(blocks_.begin(), blocks_.end(), fit)) return;
  CHECK(fit(new_block(use, size <= kSmallBytes ? kBlockBytes : size)));
}

void Memory::reserve(std::span<const size_t> sizes) {
  trim();
  size_t together = 0;
  try {
    for (const size_t bytes : sizes) {
      const size_t part = part_bytes(bytes);
      if (together > 0 && together + part > kMostReserved) {
        new_block(MemoryUse::kModel, std::exchange(together, 0));
      }
      together += part;
    }
    if (together > 0) new_block(MemoryUse::kModel, together);
  } catch (const Error&) {
    // Parts alone may fit where they do not together; else place() says so.
  }
}

size_t Memory::blocks(MemoryUse use) const {
  return static_cast<size_t>(std::count_if(blocks_.begin(), blocks_.end(),
                                           [&](const Block& block) { return block.use == use; }));
}

void Memory::trim() {
  blocks_.remove_if([](const Block& block) {
    return !block.free.empty() && block.free.begin()->second == block.size;
  });
}

void Memory::release(Allocation& allocation) {
  try {
    wait_filled();
  } catch (const Error&) {  // who waits next is told, too
    writer_.wait();
    vkDeviceWaitIdle(context_.device());
    pieces_.clear();
    lost_ = true;
  }
  auto* block = static_cast<Block*>(std::exchange(allocation.block_, nullptr));
  auto at = block->free.emplace(allocation.offset_, part_bytes(allocation.size_)).first;
  if (const auto next = std::next(at);
      next != block->free.end() && at->first + at->second == next->first) {
    at->second += next->second;
    block->free.erase(next);
  }
  if (at != block->free.begin()) {
    const auto before = std::prev(at);
    if (before->first + before->second == at->first) {
      before->second += at->second;
      block->free.erase(at);
      at = before;
    }
  }
  if (at->first == 0 && at->second == block->size) {
    blocks_.remove_if([&](const Block& other) { return &other == block; });
  }
}

// Makes earlier writes visible to copies.
void Memory::begin_copies(VkCommandBuffer commands) const {
  VkCommandBufferBeginInfo begin{};
  begin.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO;
  begin.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
  check(vkBeginCommandBuffer(commands, &begin), "vkBeginCommandBuffer");
  VkMemoryBarrier barrier{};
  barrier.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER;
  barrier.srcAccessMask = VK_ACCESS_MEMORY_WRITE_BIT;
  barrier.dstAccessMask = VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT;
  vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_ALL_COMMANDS_BIT, VK_PIPELINE_STAGE_TRANSFER_BIT,
                       0, 1, &barrier, 0, nullptr, 0, nullptr);
}

// Makes the copies' writes visible to whatever follows.
void Memory::end_copies(VkCommandBuffer commands) const {
  VkMemoryBarrier barrier{};
  barrier.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER;
  barrier.srcAccessMask = VK_ACCESS_MEMORY_WRITE_BIT;
  barrier.dstAccessMask =
      VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT | VK_ACCESS_HOST_READ_BIT;
  vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_TRANSFER_BIT,
                       VK_PIPELINE_STAGE_ALL_COMMANDS_BIT | VK_PIPELINE_STAGE_HOST_BIT, 0, 1,
                       &barrier, 0, nullptr, 0, nullptr);
  check(vkEndCommandBuffer(commands), "vkEndCommandBuffer");
}

void Memory::copy(const Allocation* from, size_t from_offset, const Allocation& to,
                  size_t to_offset, size_t bytes) {
  if (commands_ == VK_NULL_HANDLE) commands_ = context_.command_buffer();
  begin_copies(commands_);
  if (from == nullptr) {
    vkCmdFillBuffer(commands_, to.buffer(), to.offset(), part_bytes(to.size()), 0);
  } else {
    const VkBufferCopy region{from->offset() + from_offset, to.offset() + to_offset, bytes};
    vkCmdCopyBuffer(commands_, from->buffer(), to.buffer(), 1, &region);
  }
  end_copies(commands_);
  queue_.run({{commands_, {}}});
}

void Memory::write(const Allocation& to, size_t offset, Bytes bytes) {
  CHECK(offset <= to.size() && bytes.size() <= to.size() - offset);
  if (bytes.empty()) return;
  if (to.mapped() != nullptr) {
    std::memcpy(to.mapped() + offset, bytes.data(), bytes.size());
    return;
  }
  wait_filled();
  for (size_t done = 0; done < bytes.size();) {
    const size_t part = std::min(kRingBytes, bytes.size() - done);
    std::memcpy(ring().mapped(), bytes.data() + done, part);
    copy(&ring(), 0, to, offset + done, part);
    done += part;
  }
}

Allocation& Memory::ring() {
  if (ring_block_.valid()) blocks_.push_back(ring_block_.get());
  if (!ring_) ring_ = std::make_unique<Allocation>(*this, kRingBytes, MemoryUse::kStaging);
  return *ring_;
}

uint64_t Memory::fill(const Allocation& to, size_t unit, const WeightWriter::Make& make,
                      WeightWriter::Cut cut) {
  const size_t units = to.size() / unit;
  CHECK(units * unit == to.size());
  if (to.mapped() != nullptr) return writer_.begin({make, to.mapped(), unit, 0, units, cut});
  if (unit > kPieceBytes) {
    std::vector<std::byte> one(unit);
    for (size_t i = 0; i < units; ++i) {
      make({i, 1, 0, unit}, one.data());
      write(to, i * unit, one);
    }
    return 0;
  }
  const size_t at_once = kPieceBytes / unit;
  uint64_t made = 0;
  for (size_t first = 0; first < units; first += at_once) {
    const size_t count = std::min(at_once, units - first), bytes = count * unit;
    const size_t at = ring_room(bytes);
    made = writer_.begin({make, ring().mapped() + at, unit, first, count, cut});
    pieces_.push_back({made, at, bytes, to.buffer(), to.offset() + first * unit});
    ring_end_ = at + part_bytes(bytes);
    copy_made();
  }
  return made;
}

size_t Memory::ring_room(size_t bytes) {
  const size_t at = ring_end_ + bytes <= kRingBytes ? ring_end_ : 0;
  const auto in_the_way = [&](const Piece& piece) {
    return piece.at < at + bytes && at < piece.at + piece.bytes;
  };
  while (std::any_of(pieces_.begin(), pieces_.end(), in_the_way)) retire();
  return at;
}

// Begins to copy what is made, as far as it follows one another.
void Memory::copy_made() {
  const auto begin = std::find_if(pieces_.begin(), pieces_.end(),
                                  [](const Piece& piece) { return piece.copied == 0; });
  const auto end = std::find_if(begin, pieces_.end(),
                                [&](const Piece& piece) { return !writer_.done(piece.made); });
  if (begin == end) return;
  if (copied_.empty()) copied_.push_back(context_.command_buffer());
  const VkCommandBuffer commands = copied_.back();
  begin_copies(commands);
  for (auto piece = begin; piece != end; ++piece) {
    const VkBufferCopy region{ring().offset() + piece->at, piece->offset, piece->bytes};
    vkCmdCopyBuffer(commands, ring().buffer(), piece->to, 1, &region);
  }
  end_copies(commands);
  const uint64_t number = queue_.begin(commands);
  copied_.pop_back();
  copying_[number] = commands;
  for (auto piece = begin; piece != end; ++piece) piece->copied = number;
}

// Waits until the oldest pieces have left the ring. At first without helping to make them, so that
// the device has always something to copy.
void Memory::retire() {
  const Piece& oldest = pieces_.front();
  const auto spin_end = std::chrono::steady_clock::now() + kSpin;
  while ((oldest.copied == 0 || !queue_.done(oldest.copied)) &&
         std::chrono::steady_clock::now() < spin_end) {
    copy_made();
  }
  if (oldest.copied == 0) {
    writer_.wait(oldest.made);
    copy_made();
  }
  const uint64_t number = oldest.copied;
  queue_.wait(number);
  while (!pieces_.empty() && pieces_.front().copied == number) pieces_.pop_front();
  copied_.push_back(copying_.extract(number).mapped());
}

void Memory::wait_filled(uint64_t fill) {
  if (lost_) throw Error(ErrorKind::kDevice, "[vulkan] weights did not reach the device");
  while (!pieces_.empty() && pieces_.front().made <= fill) {
    copy_made();
    retire();
  }
  writer_.wait(fill);
}

void Memory::wait_filled() { wait_filled(writer_.begun()); }

bool Memory::all_filled() {
  if (lost_) throw Error(ErrorKind::kDevice, "[vulkan] weights did not reach the device");
  copy_made();
  while (!pieces_.empty() && pieces_.front().copied != 0 && queue_.done(pieces_.front().copied)) {
    retire();
  }
  return pieces_.empty() && writer_.done(writer_.begun());
}

ThreadPool& Memory::pool() {
  if (!pool_) {
    pool_.emplace(std::min(granted_processors(), kMaxCopiers));
  }
  return *pool_;
}

void Memory::read(const Allocation& from, size_t offset, std::span<std::byte> out) {
  CHECK(offset <= from.size() && out.size() <= from.size() - offset);
  if (out.empty()) return;
  if (from.mapped() != nullptr && from.cached()) {
    std::memcpy(out.data(), from.mapped() + offset, out.size());
    return;
  }
  if (!readback_) {
    readback_ = std::make_unique<Allocation>(*this, kReadbackBytes, MemoryUse::kReadback);
  }
  for (size_t done = 0; done < out.size();) {
    const size_t part = std::min(kReadbackBytes, out.size() - done);
    copy(&from, offset + done, *readback_, 0, part);
    std::memcpy(out.data() + done, readback_->mapped(), part);
    done += part;
  }
}

void Memory::copy(const std::byte* from, std::span<std::byte> to) {
  constexpr size_t kEach = size_t{256} << 10;
  if (to.size() < 4 * kEach) {
    std::memcpy(to.data(), from, to.size());
    return;
  }
  pool().run((to.size() + kEach - 1) / kEach, [&](size_t i) {
    const size_t at = i * kEach;
    std::memcpy(to.data() + at, from + at, std::min(kEach, to.size() - at));
  });
}

void Memory::zero(const Allocation& to) { copy(nullptr, 0, to, 0, 0); }

}  // namespace split::vulkan
