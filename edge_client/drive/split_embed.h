// Embeddings from a split model: the cloud computes all texts of a call up to the cut in one trip;
// this machine computes the rest, and pools. Needs no session, so that nothing is lost with a
// server. Blocks the caller's thread.
#pragma once

#include "edge_client/drive/split_text.h"
#include "run/sentences.h"

namespace split::edge {

struct EmbeddedTexts {
  std::vector<float> values;  // [texts, dimensions], not normalised
  uint64_t trips = 0;         // trips to the cloud: one, or more for what exceeds a message
};

// `seconds`: where the second text of each pair begins, as in SequenceRows. Throws RemoteError, and
// as run_texts() does.
EmbeddedTexts embed_texts(const SplitContext& run, std::span<const std::vector<int32_t>> texts,
                          const Sentences& sentences, SplitCounts& counts,
                          std::span<const uint32_t> seconds = {});

// All rows of a whole text at rows.range.to, by the cloud up to the cut and here from it on
// (whole_text()). Throws as above.
std::vector<float> rows_between(const SplitContext& run, SequenceRows rows, uint32_t prompt,
                                SplitCounts& counts);

}  // namespace split::edge
