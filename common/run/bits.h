// Names what the bits of a row depend on: two shards with equal names compute equal bits, others
// may not. A cloud gives its own name, an edge that of its device with the cloud's other settings.
#pragma once

#include <functional>
#include <string>

#include "run/shard/shard.h"

namespace split {

// "cpu 2; f32; kv f32; narrow; embed f32, block f32, norm f32, head f32": the device, the profile,
// the type of keys and values, how generated rows are computed, and the formats of the weights of
// all the model's stages, here or not. Or "exact1; kv bf16; embed q8_0, block q8_0, ...": the
// profile int8 on any device that keeps its specification; one that does not says at which step.
std::string bits_of(const Shard& shard, const std::function<DType(const Stage&)>& format);

// Whether two shards of these bits compute them whatever their devices are.
inline bool on_any_device(std::string_view bits) { return bits.starts_with("exact1; "); }

}  // namespace split
