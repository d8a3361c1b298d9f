// Whether a text stays the same, bit for bit, when blocks move between the cloud and this machine:
// both must say that their bits depend on the same things (run/bits.h), and rows of fixed tokens
// must give the same hidden states on both.
#pragma once

#include <string>

#include "edge_client/cloud/remote.h"
#include "models/formats.h"
#include "run/batcher.h"

namespace split::edge {

// Names the inputs of the bits of this machine's blocks in these formats, in the cloud's words.
std::string own_bits(const Shard& shard, const wire::ModelInfo& info, const StageFormats& formats);

// Compares the blocks that are here by now, up to the highest cut possible. Throws
// RemoteError and what a step of the tail throws.
bool is_exact(Remote& remote, const wire::ModelInfo& info, Batcher& tail,
              Cut highest = Cut::cloud());

}  // namespace split::edge
