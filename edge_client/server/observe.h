// The edge's own metrics on GET /metrics, beside a server's common ones (serve/observe.h): times of
// texts on cloud, wire and edge, loaded weights, and retries. Labels never hold a client or a
// prompt.
#pragma once

#include <map>

#include "edge_client/split/cloud_link.h"
#include "edge_client/split/receipt.h"
#include "serve/observe.h"

namespace split::edge {

// Any number of threads. Outlives the server with its route.
class EdgeMetrics {
 public:
  EdgeMetrics();

  // Counts a token of a text, with the costs before and after it; with the first one the prompt's
  // step too.
  void token(const SplitCounts& before, const SplitCounts& now, double seconds, bool first);
  // Counts an answer that has ended or was cancelled, and its Forecast::error if there is one.
  void ended(const Receipt& receipt, std::optional<double> error);
  // Counts the bytes of a loaded cut.
  void loaded(const FetchCounts& fetched);
  // Counts a request to the cloud that is retried.
  void retried(const RemoteError& error);

  serve::Metrics metrics;
  const serve::StepMetrics steps{metrics};  // this machine's device

 private:
  struct Parts {  // parts of a token's time
    serve::Histogram &cloud, &wire, &edge, &stream;
  };
  Parts parts(Phase phase);

  const Parts prompt_parts_, generate_parts_;
  serve::Histogram &first_, &next_, &pause_, &plan_error_;
  const std::map<std::string_view, serve::Counter&> of_figures_;  // by a figure's name
  serve::Counter &prompt_, &generated_, &from_cache_, &from_server_, &catch_up_;
};

}  // namespace split::edge
