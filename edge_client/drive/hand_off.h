// A text that the cloud begins and this machine ends. The cloud's stream feeds it while weights
// arrive; once the whole model is here, the stream ends at a token and the text goes on alone: this
// machine computes the rows that there are from their ids, so that nothing but weights travels. A
// cloud that is lost then is no event. Blocks the caller's thread.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/waiter.h"
#include "edge_client/split/cloud_link.h"
#include "edge_client/split/retry.h"
#include "run/forward.h"
#include "run/text_loop.h"

namespace split::edge {

// The whole model on this machine, once it is here and texts may move to it; null until then.
using Here = std::function<Batcher*()>;

// One thread at a time.
class HandOff {
 public:
  // All outlive it.
  HandOff(CloudLink& cloud, const Model& model, const Tokenizer* tokenizer,
          std::span<const int32_t> prompt, const GenerateOptions& options,
          const RetryOptions& retry, Waiter& waiter, SplitCounts& counts, Requester requester,
          const Here& here);
  ~HandOff();
  HandOff(const HandOff&) = delete;
  HandOff& operator=(const HandOff&) = delete;

  // Makes the tokens that the cloud has for it, or the next one here. False once the text has
  // ended. Throws RemoteError, and as Forward does.
  bool next(const OnText& on_text);
  Generated take() { return loop_.take(); }

 private:
  bool arrived();
  void stream(const OnText& on_text);
  void compute(const OnText& on_text);

  CloudLink& cloud_;
  const Model& model_;
  const GenerateOptions options_;
  Retry retry_;
  SplitCounts& counts_;
  const Requester requester_;
  const Here& here_;
  const size_t prompt_;       // its tokens
  std::vector<int32_t> ids_;  // and those behind it
  TextLoop loop_;
  std::string session_;
  bool asked_ = false, lost_ = false;  // the cloud: may know the session; does not answer
  std::optional<LocalForward> local_;
};

}  // namespace split::edge
