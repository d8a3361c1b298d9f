// The texts of one request on an engine: each has its own connection to the cloud and session
// there, and rows in the steps that this machine's device shares among all; one receipt for all.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "base/json.h"
#include "base/resources/clock.h"
#include "edge_client/cloud/cloud_completion.h"
#include "edge_client/drive/split_embed.h"
#include "edge_client/drive/split_text.h"
#include "edge_client/engine/engine.h"
#include "edge_client/split/lock_order.h"

namespace split::edge {

// Any number of threads.
class EngineRequest {
 public:
  // The engine outlives it. `split`: the model for its texts; null: the one where texts begin now.
  // `owner`: the tenant; texts go on from rows of the same owner alone, and from none without one.
  explicit EngineRequest(Engine& engine, std::shared_ptr<PlacedModel> split = {},
                         std::optional<std::string> owner = {});
  ~EngineRequest();
  EngineRequest(const EngineRequest&) = delete;
  EngineRequest& operator=(const EngineRequest&) = delete;

  // Begins a text, which is destroyed before its request, and throws RemoteError too.
  std::unique_ptr<Text> begin(std::span<const int32_t> prompt, const GenerateOptions& options);
  // Begins a text by a prompt's words (cloud_completion.h), while the engine opens(): on the cloud,
  // and as any other once the model is loaded here. max_tokens below 0: up to the end of the
  // context. `waits`: for the model, if the text ends before that is loaded; if nothing of a
  // prompt's text came, the text begins anew.
  std::unique_ptr<Text> begin_words(Json words, const GenerateOptions& options, bool waits = false);
  // The final norm's output for each token, [tokens, C]. Throws RemoteError.
  std::vector<float> states(std::span<const int32_t> tokens);
  // The rows of a whole text at rows.range.to (rows_between()). Throws RemoteError.
  std::vector<float> rows(const SequenceRows& rows, uint32_t prompt);
  // Embeds the texts in one trip, with a model made for embeddings. Throws RemoteError.
  EmbeddedTexts embed(std::span<const std::vector<int32_t>> texts, const Sentences& sentences,
                      std::span<const uint32_t> seconds = {});
  // Ends running texts soon, and later ones at once.
  void cancel() noexcept;
  bool cancelled() const { return interrupt_.signal() != 0; }
  Receipt counted() const;  // costs so far, and their forecast

 private:
  class Running;
  class RunningText;
  class OpenedText;
  std::shared_ptr<PlacedModel> split() const;
  void is_on(const std::shared_ptr<PlacedModel>& split);
  bool foreseen(const PlacedModel* split) const;
  std::optional<bool> exact(const PlacedModel* split) const;
  std::optional<bool> moved_exactly(const SplitCounts& counts) const;
  std::shared_ptr<PlacedModel> split_for(const GenerateOptions& options) const;
  GenerateOptions with_drafts(const GenerateOptions& options);

  Engine& engine_;
  const std::optional<std::string> owner_;
  const std::string trace_;  // trace of the request that this thread answers
  Interrupt interrupt_;      // this request's

  mutable Mutex mutex_{LockOrder::kRequest};  // guards the members below
  std::shared_ptr<PlacedModel> split_;        // null: not loaded
  std::vector<const Running*> running_;
  struct {
    SplitCounts ended;  // costs of ended texts
    size_t prompt_tokens = 0, tokens = 0;
    double ms = 0;     // while any text ran, before `since`
    size_t going = 0;  // texts that have not ended
    Clock::time_point since{};
    std::optional<double> first_token_ms;
    SplitCounts first;         // costs until then
    double waited_before = 0;  // observer's waited_ms() at the beginning
    AnswerWatch watch;         // meaningful for a single text
    size_t texts = 0;
    bool drafts = false;
  } now_;
};

}  // namespace split::edge
