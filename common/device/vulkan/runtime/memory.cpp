#include "device/vulkan/runtime/memory.h"

#include <algorithm>

namespace split::vulkan {
namespace {

constexpr size_t kBlockBytes = size_t{16} << 20;  // small ones share blocks of this
constexpr size_t kSmallBytes = size_t{4} << 20;
constexpr size_t kMostReserved = size_t{1} << 30;  // what any device gives at once

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

}  // namespace split::vulkan
