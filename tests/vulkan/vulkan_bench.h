// The fixture of the Vulkan device's tests: whatever driver there is, with the validation layers
// where they are installed.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "device/vulkan/runtime/context.h"
#include "support/device_bench.h"

namespace split::test {

inline bool has_layer() {
  uint32_t count = 0;
  vkEnumerateInstanceLayerProperties(&count, nullptr);
  std::vector<VkLayerProperties> all(count);
  vkEnumerateInstanceLayerProperties(&count, all.data());
  return std::any_of(all.begin(), all.end(), [](const VkLayerProperties& layer) {
    return std::string_view(layer.layerName) == "VK_LAYER_KHRONOS_validation";
  });
}

class Vulkan : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (has_layer()) setenv("SPLIT_VALIDATE", "1", 1);
  }
  void SetUp() override {
    if (list_vulkan_devices().empty()) GTEST_SKIP() << "no Vulkan driver";
    device_ = make_vulkan_device("any");
  }
  void TearDown() override {
    device_.reset();
    EXPECT_EQ(vulkan::validation_messages(), 0u);
  }
  // The device as it is with `value` of an environment variable.
  static std::unique_ptr<Device> device_with(const char* variable, const char* value) {
    setenv(variable, value, 1);
    auto device = make_vulkan_device("any");
    unsetenv(variable);
    return device;
  }
  // Without them products for matrix units are those of lanes, which other tests see.
  static bool has_matrix_units() {
    const vulkan::Instance instance;
    return std::ranges::any_of(instance.devices(), [&](VkPhysicalDevice device) {
      return vulkan::inspect(instance.get(), device).matrix;
    });
  }
  std::unique_ptr<Device> device_;
};

}  // namespace split::test
