// Checks that a model fits into this machine's memory, before any of it is loaded, and how long its
// texts may be.
#pragma once

#include <cstdint>
#include <string>

#include "base/resources/granted.h"
#include "device/device.h"
#include "run/shard/shard.h"

namespace split {

// Throws Error(kInput), with the bytes needed and granted, if weights and the keys and values of
// one text exceed the memory. A GPU's own memory is left to its driver.
void expect_room(const Device& device, const std::string& model, uint64_t weights, uint64_t kv,
                 const SystemFiles& files = {});

// Bounds of the keys and values of one text, in bytes.
struct TextRoom {
  uint64_t budget = 0;  // bytes of all texts
  uint64_t weights = 0;
  bool is_gpu = false;         // the driver counts its memory
  uint64_t most = UINT64_MAX;  // limit of a default budget
  uint64_t texts = 1;          // texts that share the memory
};

// The budget by default: 1 GiB (in a tab 128 MiB) or 4,096 positions, or as much as one text of the
// whole context takes, up to half of the memory beside weights and others.
uint64_t default_kv_budget(const Model& model, Profile profile, std::optional<DType> kv,
                           const TextRoom& room, const SystemFiles& files = {});

// Lowers a default context to what one text of the whole model has room for. Returns a line that
// says what bounds it, or nothing. Room for fewer than 256 positions leaves 4,096, which whoever
// loads the model refuses or takes.
std::string fit_context(Model& model, Profile profile, std::optional<DType> kv,
                        const TextRoom& room, const SystemFiles& files = {});

}  // namespace split
