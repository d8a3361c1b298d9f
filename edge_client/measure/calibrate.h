// Measures this machine on weights of zeros, before a download: the time of one block and of the
// head here, in the formats to download.
#pragma once

#include <functional>

#include "edge_client/place/planner.h"
#include "run/shard/shard.h"

namespace split::edge {

// kOneRow: the times of one row alone, and nothing before it.
enum class Measured : uint8_t { kAll, kOneRow };

// `stored`: the type of the checkpoint's weights. Takes some tenths of a second, and the memory of
// one block, the head and a context. `look` sees the measured shard. Throws Error(kInput) for
// formats or a profile that the device does not support, Error(kDevice).
Speed calibrate(Device& device, const Model& model, DType stored, const StageFormats& formats,
                Profile profile, const std::function<void(const Shard&)>& look = {},
                Measured measured = Measured::kAll);

}  // namespace split::edge
