// Says what the bits of a row depend on: two shards compute the same where these are the same,
// and may differ elsewhere. A cloud says its own, and an edge that of its device with the cloud's
// other settings.
#pragma once

#include <functional>
#include <string>

#include "run/shard/shard.h"

namespace split {

// "cpu 1; f32; kv f32; narrow; embed f32, block f32, norm f32, head f32": the device, the profile,
// the type of keys and values, how generated rows are computed, and the formats that the stages'
// weights have. `options` are a Shard's own, whose `kv` says what it keeps; the formats of all
// stages of the model, here or not.
std::string bits_of(const Device& device, const Model& model, const ShardOptions& options,
                    const std::function<DType(const Stage&)>& format);

}  // namespace split
