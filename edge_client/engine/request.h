// One request's texts on an engine: for each a connection to the cloud and a session there, its
// rows in the steps that all share on this machine's device, and one receipt of all.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/json.h"
#include "base/resources/clock.h"
#include "edge_client/cloud/cloud_completion.h"
#include "edge_client/drive/split_embed.h"
#include "edge_client/drive/split_text.h"
#include "edge_client/engine/engine.h"

namespace split::edge {

// Any number of threads.
class EngineRequest {
 public:
  // The engine outlives it. `split`: what its texts run on; null: where they begin now. `owner`:
  // who asks; texts go on from their own owner's rows alone, and without one from none.
  explicit EngineRequest(Engine& engine, std::shared_ptr<PlacedModel> split = {},
                         std::optional<std::string> owner = {});
  ~EngineRequest();
  EngineRequest(const EngineRequest&) = delete;
  EngineRequest& operator=(const EngineRequest&) = delete;

  // A text, begun. One thread at a time, not always the same; it goes before its work. Throws
  // RemoteError, and as Generation does.
  class Text {
   public:
    virtual ~Text() = default;
    virtual bool next(const OnText& on_text) = 0;
    virtual Generated take() = 0;
    virtual std::span<const int32_t> prompt() const = 0;
    // Tokens of the prompt that nobody had to compute.
    virtual size_t cached() const = 0;
  };
  std::unique_ptr<Text> begin(std::span<const int32_t> prompt, const GenerateOptions& options);
  // Begins a text by a prompt's words (cloud_completion.h), while the engine opens(): the cloud
  // begins it, and it goes on as any other once the model is loaded here. With max_tokens below 0
  // it ends where the context does. `waits`: for the model, where it ends before that is loaded.
  std::unique_ptr<Text> begin_words(Json words, const GenerateOptions& options, bool waits = false);
  // The final norm's output for each token, [tokens, C]. Throws RemoteError.
  std::vector<float> states(std::span<const int32_t> tokens);
  // In one trip, where the model was made for embeddings. Throws RemoteError.
  EmbeddedTexts embed(std::span<const std::vector<int32_t>> texts, const Sentences& sentences,
                      std::span<const uint32_t> seconds = {});
  // Ends what runs soon, and so what is begun later.
  void cancel() noexcept;
  bool cancelled() const { return interrupt_.signal() != 0; }
  Receipt counted() const;  // what it cost so far, and how that was foreseen

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
  const std::string trace_;  // of the request that this thread answers
  Interrupt interrupt_;      // of this request

  mutable std::mutex mutex_;            // of:
  std::shared_ptr<PlacedModel> split_;  // null: it is not loaded
  std::vector<const Running*> running_;
  struct {
    SplitCounts ended;  // of those that run no more
    size_t prompt_tokens = 0, tokens = 0;
    double ms = 0;     // during which some ran, before
    size_t going = 0;  // that have not ended
    Clock::time_point since{};
    std::optional<double> first_token_ms;
    SplitCounts first;         // until that
    double waited_before = 0;  // for the cloud
    AnswerWatch watch;         // of its text
    size_t texts = 0;
    bool drafts = false;
  } now_;
};

}  // namespace split::edge
