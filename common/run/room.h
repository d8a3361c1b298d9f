// Whether a model fits into this machine's memory, asked before any of it is loaded.
#pragma once

#include <cstdint>
#include <string>

#include "base/resources/granted.h"
#include "device/device.h"

namespace split {

// Throws Error(kInput), with the bytes that are needed and those that are granted, where weights
// and the keys and values of one text are more than that. A GPU's own memory is its driver's to
// count.
void expect_room(const Device& device, const std::string& model, uint64_t weights, uint64_t kv,
                 const SystemFiles& files = {});

}  // namespace split
