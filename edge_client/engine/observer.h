// Events of an engine about the cloud, weights and texts. Called on several threads at once; no
// call may block.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "edge_client/split/receipt.h"
#include "edge_client/weights/tail_builder.h"
#include "text/form/answer_format.h"

namespace split::edge {

// A cut where texts may go on from now on.
struct AvailableCut {
  std::shared_ptr<PlacedModel> at;
  // When all weights are expected, if they come.
  std::optional<std::chrono::steady_clock::time_point> whole_at = {};
};

// Facts of the model that hold once it is loaded.
struct LoadedModel {
  const Model& model;
  std::optional<Tokenizer> tokenizer;
  Sentences sentences;
  std::optional<ChatTemplate> chat;  // set for a program that serves
  AnswerFormat format = {};          // its answers' format

  const Tokenizer* tokens() const { return tokenizer ? &*tokenizer : nullptr; }
};

// Overridden by parts of the engine and by faces, for the events that they use.
class EngineObserver {
 public:
  virtual ~EngineObserver() = default;

  // A wait for the cloud begins, and ends: it answers (`again`), or is given up. Called in pairs.
  virtual void waiting(const RemoteError& /*error*/) {}
  virtual void found(bool /*again*/) {}
  virtual void retried(const RemoteError& /*error*/) {}
  // Milliseconds waited so far, which count for no text.
  virtual double waited_ms() const { return 0; }

  // Texts will begin there. A throw gives the model up before its weights are loaded.
  virtual void begins(const ModelChoice::Begin& /*where*/, const LoadedModel& /*model*/) {}
  // The weights are here, and texts begin on it.
  virtual void begun(const PlacedModel& /*split*/) {}
  // noted: a line for people that --quiet hides. progress: where downloads draw their progress,
  // asked for by the engine's constructor.
  virtual void noted(const std::string& /*line*/) {}
  virtual ProgressTo progress() const { return {}; }
  // A line for people about weights.
  virtual void said(const std::string& /*line*/) {}
  // Weights come beside texts: the steps in their order, before the first byte; the model that
  // grows; its progress; and a cut where texts go on, or may.
  virtual void coming(const wire::ModelInfo& /*info*/, const std::vector<GrowthStep>& /*steps*/) {}
  virtual void grows(const std::shared_ptr<PlacedModel>& /*model*/) {}
  virtual void grew(const GrowthNote& /*note*/) {}
  virtual void landed(const AvailableCut& /*place*/, bool /*goes_on*/) {}
  // So many bytes of weights were loaded since the last call.
  virtual void loaded(const FetchCounts& /*fetched*/) {}
  // Texts are about to run on it.
  virtual void runs_on(Batcher& /*batcher*/) {}

  // A text that the cloud did not begin by its words begins anew, once the model is here.
  virtual void begins_anew() {}
  // Called per token with the costs before and after it, and its duration.
  virtual void token(const SplitCounts& /*before*/, const SplitCounts& /*now*/, double /*seconds*/,
                     bool /*first*/) {}
  // A text moved, with `words` if the cloud was lost or is back; or stayed, though slow here, for
  // it would be slower there.
  virtual void moved(const Move& /*move*/, const std::string& /*words*/) {}
  virtual void stays(const FasterCut& /*there*/, double /*token_ms*/) {}
  // A request has ended. `error`: the relative error of its forecast, if known.
  virtual void ended(const Receipt& /*receipt*/, std::optional<double> /*error*/) {}
};

}  // namespace split::edge
