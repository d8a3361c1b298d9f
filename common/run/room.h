// Whether a model fits into this machine's memory, asked before any of it is loaded, and how long
// its texts may be there.
#pragma once

#include <cstdint>
#include <string>

#include "base/resources/granted.h"
#include "device/device.h"
#include "run/shard/shard.h"

namespace split {

// Throws Error(kInput), with the bytes that are needed and those that are granted, where weights
// and the keys and values of one text are more than that. A GPU's own memory is its driver's to
// count.
void expect_room(const Device& device, const std::string& model, uint64_t weights, uint64_t kv,
                 const SystemFiles& files = {});

// Bounds of the keys and values of one text, in bytes.
struct TextRoom {
  uint64_t budget = 0;  // bytes of all texts
  uint64_t weights = 0;
  bool is_gpu = false;         // its memory is its driver's to count
  uint64_t most = UINT64_MAX;  // limit of a default budget
  uint64_t texts = 1;          // texts that share the memory
};

// A budget that nobody asked for: 1 GiB (in a tab 128 MiB) or 4,096 positions, or what one text of
// all the context takes, up to half of the memory that weights and others leave.
uint64_t default_kv_budget(const Model& model, Profile profile, std::optional<DType> kv,
                           const TextRoom& room, const SystemFiles& files = {});

// Lowers a context that nobody asked for to what one text of the whole model has room for. Returns
// a line that says what bounds it, or nothing. Room for fewer than 256 positions leaves 4,096,
// which whoever loads the model refuses, or takes all the same.
std::string fit_context(Model& model, Profile profile, std::optional<DType> kv,
                        const TextRoom& room, const SystemFiles& files = {});

}  // namespace split
