// Hears what an engine tells while it works, of the cloud, of weights and of texts. Whoever drives
// it tells it on its own thread, several at once; no call may block.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "edge_client/split/receipt.h"
#include "edge_client/weights/loader.h"
#include "text/form/answer_format.h"

namespace split::edge {

// A place where texts may go on from now on.
struct AvailableCut {
  std::shared_ptr<PlacedModel> at;
  std::optional<bool> exact;  // with the cloud's bits; none: it did not answer
  // When all weights are expected, where they come.
  std::optional<std::chrono::steady_clock::time_point> whole_at = {};
};

// Holds what is known of the model once it is loaded, for good.
struct LoadedModel {
  const Model& model;
  std::optional<Tokenizer> tokenizer;
  Sentences sentences;
  std::optional<ChatTemplate> chat;  // of a program that serves
  AnswerFormat format = {};          // of its answers

  const Tokenizer* tokens() const { return tokenizer ? &*tokenizer : nullptr; }
};

// A part of the engine, or a face, says what it wants to hear.
class EngineObserver {
 public:
  virtual ~EngineObserver() = default;

  // Something waits for the cloud from now on, and does no more: it answers `again`, or is given
  // up. Each as often as the other.
  virtual void waiting(const RemoteError& /*error*/) {}
  virtual void found(bool /*again*/) {}
  virtual void retried(const RemoteError& /*error*/) {}
  // The ms that were waited so far, which no text is to blame for.
  virtual double waited_ms() const { return 0; }

  // Texts are to begin there; whoever throws gives the model up before its weights are loaded.
  virtual void begins(const Loader::Begin& /*where*/, const LoadedModel& /*model*/) {}
  // They are here, and texts begin on it.
  virtual void begun(const PlacedModel& /*split*/) {}
  // A line for people that --quiet hides, and where downloads draw how far they are. The engine
  // asks for the latter when it is made.
  virtual void noted(const std::string& /*line*/) {}
  virtual ProgressTo progress() const { return {}; }
  // A line for people, of what became of weights.
  virtual void said(const std::string& /*line*/) {}
  // Weights come beside texts: which, in their order, before the first byte; the model that grows
  // of them; how far it is; and a place where texts go on, or may.
  virtual void coming(const wire::ModelInfo& /*info*/, const std::vector<GrowthStep>& /*steps*/) {}
  virtual void grows(const std::shared_ptr<PlacedModel>& /*model*/) {}
  virtual void grew(const GrowthNote& /*note*/) {}
  virtual void landed(const AvailableCut& /*place*/, bool /*goes_on*/) {}
  // These bytes of weights were loaded since the last time.
  virtual void loaded(const FetchCounts& /*fetched*/) {}
  // Texts are about to run on it.
  virtual void runs_on(Batcher& /*batcher*/) {}

  // A text has another token: what it took until the one before, and now, and how long this one.
  virtual void token(const SplitCounts& /*before*/, const SplitCounts& /*now*/, double /*seconds*/,
                     bool /*first*/) {}
  // It goes on elsewhere, in `words` where the cloud was lost or is back; or stays though it is
  // slow here, where it would be slower there.
  virtual void moved(const Move& /*move*/, const std::string& /*words*/) {}
  virtual void stays(const FasterCut& /*there*/, double /*token_ms*/) {}
  // A request has ended, whose tokens were foreseen so wrongly, where that is known.
  virtual void ended(const Receipt& /*receipt*/, std::optional<double> /*error*/) {}
};

}  // namespace split::edge
