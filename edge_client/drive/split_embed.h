// Embeddings from a split model: the cloud computes all texts of a call to the cut in one trip,
// whatever their number; this machine the rest, and pools. No session, so that nothing is lost with
// a server. Blocks the caller's thread.
#pragma once

#include "edge_client/drive/split_text.h"
#include "run/sentences.h"

namespace split::edge {

struct EmbeddedTexts {
  std::vector<float> values;  // [texts, dimensions], not scaled at the end
  uint64_t trips = 0;         // to the cloud: one, but for what is larger than a message may be
};

// `seconds`: of each that is a pair, as SequenceRows has it. Throws RemoteError, and as run_texts()
// does.
EmbeddedTexts embed_texts(const SplitRun& run, std::span<const std::vector<int32_t>> texts,
                          const Sentences& sentences, SplitCounts& counts,
                          std::span<const uint32_t> seconds = {});

}  // namespace split::edge
