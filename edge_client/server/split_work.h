// One request of a local server on the split model: for each of its texts a connection to the cloud
// and a session there, its rows in the steps that all share on this machine's device, and one
// receipt.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/resources/clock.h"
#include "edge_client/cloud/remote_pool.h"
#include "edge_client/drive/split_text.h"
#include "edge_client/engine/answers.h"
#include "edge_client/engine/rescuer.h"
#include "edge_client/server/observe.h"
#include "serve/text_backend.h"

namespace split::edge {

class SplitWork : public serve::TextBackend {
 public:
  // The state that all requests share; it outlives them.
  struct Shared {
    const Model& model;
    const Tokenizer* tokenizer;
    const RetryOptions& retry;
    RemotePool& pool;
    std::function<void(const Receipt&)> done = {};  // at the end of each
    EdgeMetrics* metrics = nullptr;
    Answers* answers = nullptr;
    Forecasts* forecasts = nullptr;
    DraftOptions drafts = {};   // of texts that run here alone, unless they bring their own
    OwnTurns* turns = nullptr;  // none: no text goes on from another's rows
    Rescuer* rescuer = nullptr;
    std::function<void(const std::string&)> tell = {};  // what became of a text
  };
  // `owner`: who asks; texts go on from their own owner's rows alone.
  SplitWork(const Shared& shared, std::shared_ptr<PlacedModel> split, std::string owner = {});
  ~SplitWork() override;
  SplitWork(const SplitWork&) = delete;
  SplitWork& operator=(const SplitWork&) = delete;

  // Its text throws HttpError 502 `cloud_error` or 503 `cloud_unavailable` when the cloud fails,
  // and so do states.
  std::unique_ptr<serve::Text> begin(std::span<const int32_t> prompt,
                                     const GenerateOptions& options) override;
  std::vector<float> states(std::span<const int32_t> tokens) override;
  // In one trip, where the model was made for embeddings.
  Embedded embed(Texts texts, const Sentences& sentences) override;
  void cancel() noexcept override;
  std::string receipt() const override;
  std::string server_timing() const override;
  bool cancelled() const { return interrupt_.signal() != 0; }
  Receipt counted() const;  // what it cost so far, and how that was foreseen

 private:
  class Running;
  class RunningText;
  bool foreseen() const;
  std::optional<bool> exact() const;
  std::optional<bool> rescued_exactly(const SplitCounts& counts) const;
  void learn();
  std::shared_ptr<PlacedModel> split_for(const GenerateOptions& options) const;

  const Shared& shared_;
  const std::shared_ptr<PlacedModel> split_;
  const std::string owner_;
  const std::string trace_;  // of the request that this thread answers
  Interrupt interrupt_;      // of this request

  mutable std::mutex mutex_;  // of all below
  std::vector<const Running*> running_;
  SplitCounts ended_;  // of those that run no more
  size_t prompt_tokens_ = 0, tokens_ = 0;
  double ms_ = 0;  // during which some ran, before
  Clock::time_point since_{};
  std::optional<double> first_token_ms_;
  AnswerWatch watch_;  // of its text
  size_t texts_ = 0;
  bool drafts_ = false;
};

}  // namespace split::edge
