// Times this machine on weights of zeros, before any are downloaded: what one block and the head
// would take here, in the formats that they would come in.
#pragma once

#include <functional>

#include "edge_client/place/planner.h"
#include "run/shard/shard.h"

namespace split::edge {

// `stored`: the type of the checkpoint's weights. Takes some tenths of a second, and the memory of
// one block, the head and a context. `look` sees the shard that it times. Throws Error(kInput) for
// formats or a profile that the device does not take, Error(kDevice).
Speed calibrate(Device& device, const Model& model, DType stored, const StageFormats& formats,
                Profile profile, const std::function<void(const Shard&)>& look = {});

}  // namespace split::edge
