// Tests whether a device computes correctly: some drivers do not.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"

namespace split {

// Runs every kernel that a model needs once on `device` and on the CPU, with small shapes. Throws
// Error(kDevice): which kernel, by how much.
void self_test(Device& device);

// Hashes (FNV-1a) of a step's last rows: of 40 in one step, of 20 and then 1, of 20 and then 5.
struct ExactBits {
  const char* step;
  uint64_t hashes[3];
};
std::span<const ExactBits> exact_bits();
// Runs steps of the profile int8 on `device` and returns the first that has other bits than
// exact1, its specification (tests/support/exact/specification.h), or null if there is none:
// "norm", "product", "attention" or "block".
const char* exact_difference(Device& device);
// The numbers around 0 that these steps take as weights and rows: they depend on name and place.
std::vector<float> test_numbers(const std::string& name, size_t count);

// Returns `device` if it passes its test, or is the CPU's or a software one. A device that fails is
// named in a warning and the CPU takes its place, or it is Error(kDevice) if `options` name
// anything but "auto".
std::unique_ptr<Device> passed(std::unique_ptr<Device> device, const DeviceOptions& options);

// Returns `device`, tested unless it is the CPU's, a software one, or known to be good: a device
// that passes is remembered under `folder`, if there is one, until its driver or kernels change.
// Else as passed().
std::unique_ptr<Device> tested(std::unique_ptr<Device> device, const DeviceOptions& options,
                               const std::optional<std::filesystem::path>& folder);

// make_device(), tested; good devices are remembered in the cache directory. Throws Error(kInput,
// kDevice).
std::unique_ptr<Device> make_tested_device(const DeviceOptions& options);

}  // namespace split
