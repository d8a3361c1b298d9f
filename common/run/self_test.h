// Tests whether a device computes correctly: some drivers do not.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "device/device.h"

namespace split {

// Runs every kernel that a model needs once on `device` and on the CPU, with small shapes. Throws
// Error(kDevice): which kernel, by how much.
void self_test(Device& device);

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
