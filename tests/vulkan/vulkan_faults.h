// Every Vulkan call of this program that can fail goes through here (the linker's --wrap): call
// number n fails, or each from n on. What was created is counted until it is destroyed.
#pragma once

#include <cstdint>
#include <vector>

namespace split::test {

struct VulkanFaults {
  int64_t at = -1;        // the call, from 0, that fails; -1: none
  bool for_good = false;  // those after it too
  bool memory = false;    // out of device memory, else the device is lost
};

// Counts calls from 0 again.
void set_vulkan_faults(const VulkanFaults& faults);
// The calls since then: where each was made.
std::vector<const void*> vulkan_calls();
// Objects that are there.
int64_t vulkan_objects();

}  // namespace split::test
