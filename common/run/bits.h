// Names what the bits of a row depend on: two shards with equal names compute equal bits, others
// may not. A cloud gives its own name, an edge that of its device with the cloud's other settings.
#pragma once

#include <functional>
#include <string>

#include "run/shard/shard.h"

namespace split {

// "cpu 1; f32; kv f32; narrow; embed f32, block f32, norm f32, head f32": the device, the profile,
// the type of keys and values, how generated rows are computed, and the formats of the weights of
// all the model's stages, here or not. `options`: Shard::options(), whose `kv` is set.
std::string bits_of(const Device& device, const Model& model, const ShardOptions& options,
                    const std::function<DType(const Stage&)>& format);

}  // namespace split
