// The edge's own metrics on GET /metrics, beside those of any server (serve/observe.h):
// what texts took on cloud, wire and edge, the weights it loaded, and how often the cloud was asked
// again. Labels never say who or what was asked.
#pragma once

#include "edge_client/split/cloud_link.h"
#include "edge_client/split/receipt.h"
#include "serve/observe.h"

namespace split::edge {

// Any number of threads. Outlives the server whose route it is.
class EdgeMetrics {
 public:
  EdgeMetrics();

  // A token of a text, and what the text took so far: with the first one its prompt's step too.
  // `before` is of the token before.
  void token(const SplitCounts& before, const SplitCounts& now, double seconds, bool first);
  // An answer has ended, or was broken off.
  void ended(const Receipt& receipt);
  // How far off a token of an answer was foreseen (Forecast::error).
  void foreseen(double error);
  // A cut was loaded.
  void loaded(const FetchCounts& fetched);
  // The cloud did not do something that it is asked for again.
  void retried(const RemoteError& error);

  serve::Metrics metrics;
  const serve::StepMetrics steps{metrics};  // of this machine's device

 private:
  struct Parts {  // of a token's time
    serve::Histogram &cloud, &wire, &edge, &stream;
  };
  Parts parts(Phase phase);

  const Parts prompt_parts_, generate_parts_;
  serve::Histogram &first_, &next_, &pause_, &plan_error_;
  serve::Counter &up_, &down_, &layer_rows_, &prompt_, &generated_, &replays_, &from_cache_,
      &from_server_, &catch_up_;
};

}  // namespace split::edge
