// Command buffers for sequences of programs: recorded when a sequence is first run, replayed from
// then on. One of few rows is one command buffer, as long as a weak device takes it in one
// submission; others can be cut.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "device/vulkan/executable.h"

namespace split::vulkan {

class Recordings {
 public:
  explicit Recordings(CorePtr core) : core_(std::move(core)) {}
  ~Recordings() { clear(); }
  Recordings(const Recordings&) = delete;
  Recordings& operator=(const Recordings&) = delete;

  // Appends the commands that run `programs` in order over a batch. Throws Error(kDevice) for a
  // batch that does not fit one of them.
  void get(const std::vector<VulkanExecutable*>& programs, const RowBatch& batch,
           std::vector<Segment>& out);

 private:
  struct Part {
    VkCommandBuffer commands = VK_NULL_HANDLE;
    std::vector<std::pair<size_t, uint64_t>> wide;  // program's place, weights
    uint64_t narrow = 0;                            // weights
  };
  // Executables' ids with the variant of each.
  using Key = std::vector<std::pair<uint64_t, size_t>>;
  std::vector<Part> record(const std::vector<VulkanExecutable*>& programs, const Key& key);
  void clear();

  CorePtr core_;
  std::map<Key, std::vector<Part>> all_;
};

}  // namespace split::vulkan
