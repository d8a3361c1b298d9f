// Greedy generation with the first half of the blocks on a cloud and the rest on an edge, both in
// this process over loopback HTTP, beside the same model unsplit. Either side has the unsplit run's
// threads and a pool that sleeps between steps; the two take turns, so never more threads than that
// compute at once.
#pragma once

#include "bench/support/bench.h"

namespace split::bench {

// Adds the rows of the pair; an encoder's are embeddings of many texts. Throws Error(kRemote) when
// the two texts differ.
void measure_pair(const Options& options, Report& report);

}  // namespace split::bench
