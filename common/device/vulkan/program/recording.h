// Command buffers for sequences of programs: recorded when a sequence is first run, then replayed.
// One command buffer each if the device is known to take it in one submission: every other one
// costs a GPU 24 us (measured on an H200). Until then, and on a weak device, several with
// submissions of their own.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "device/vulkan/program/executable.h"

namespace split::vulkan {

class Recordings {
 public:
  explicit Recordings(CorePtr core) : core_(std::move(core)) {}
  ~Recordings() { clear(); }
  Recordings(const Recordings&) = delete;
  Recordings& operator=(const Recordings&) = delete;

  // Appends the commands that run `programs` in order over a batch. Commands of a few rows also
  // copy: returns false when `copy` is left to do. Throws Error(kDevice) for a batch that does not
  // fit a program.
  bool get(const std::vector<VulkanExecutable*>& programs, const RowBatch& batch,
           const CopyOut& copy, std::vector<Segment>& out);
  // Forgets all recordings; none of them may be running.
  void clear();

 private:
  struct Part {
    VkCommandBuffer commands = VK_NULL_HANDLE;
    std::vector<std::pair<size_t, size_t>> wide;  // programs' places, their commands of many rows
    uint64_t narrow = 0;                          // weights
  };
  struct Key {
    bool whole = false;
    bool timed = false;                                 // has time stamps; for few rows alone
    std::optional<CopyOut> copy;                        // for few rows alone
    std::vector<std::pair<uint64_t, size_t>> programs;  // executables' ids, and the variant of each
    auto operator<=>(const Key&) const = default;
  };
  std::vector<Part> record(const std::vector<VulkanExecutable*>& programs, const Key& key);

  CorePtr core_;
  std::map<Key, std::vector<Part>> all_;
};

}  // namespace split::vulkan
