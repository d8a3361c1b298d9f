// The model that texts use: which one the server has, its config, manifest and files, and where its
// texts begin; or what was last seen of it, if the server does not answer. Knows no text, and loads
// no weights but a fine-tuned tail's.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "edge_client/cloud/server_address.h"
#include "edge_client/place/bounds.h"
#include "edge_client/split/placement.h"
#include "edge_client/split/retry.h"
#include "edge_client/weights/seen_models.h"
#include "edge_client/weights/tail_weights.h"
#include "program/interrupt.h"
#include "run/sentences.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace split::edge {

struct PlacedModel;

// Returns the connection, whose requests end when the program, or one request of it, is
// interrupted.
std::shared_ptr<Remote> ended_by(Interrupt& interrupt, std::shared_ptr<Remote> remote);

// The query of a manifest that names what is loaded here, by which the server knows what to make.
std::string manifest_query(const Placement& place, const StageFormats& formats);
// The abilities of the server's sessions.
CloudSessions sessions_of(const wire::ModelInfo& info);

// One thread at a time, where no other rule stands.
class ModelChoice {
 public:
  using Note = std::function<void(const std::string& line)>;
  // The arguments outlive it. `note` gets lines for people; empty: nobody does.
  ModelChoice(const EngineOptions& options, const PlacementRequest& request, Note note,
              const http::Environment& environment, Interrupt& interrupt);

  // Asks for the list of models, and for the wanted one's config. If the server does not answer,
  // and this machine needs nothing from it, takes the model that remember() kept, and says so in a
  // line. Throws RemoteError, Error(kRemote) and Error(kInput), as the others do, and
  // Error(kIntegrity) for a file that does not match the model's description.
  void select_model();
  // The part that sets id(), and needs no config.
  void select_id();
  const std::string& id() const { return id_; }
  bool recalled() const { return seen_.has_value(); }
  bool is_seen_alone() const;  // recalled() is possible
  // Calls `ask`, about a model whose text the server has begun. If the server is lost meanwhile,
  // and the model was seen to run here alone, repeats that with the model as it was seen.
  void ask_begun(const std::function<void()>& ask);
  bool knows_model() const { return model_ != nullptr; }
  const Model& model() const { return *model_; }
  const ModelConfig& config() const { return model_->config(); }
  const std::shared_ptr<const TailWeights>& tail() const { return tail_; }  // null: not fine-tuned

  // Returns where a text's rows run (split/placement.h). Throws Error(kInput).
  Placement place(const PlacementRequest& request, const CloudSessions& sessions = {},
                  bool cloud_lost = false);
  CutBounds bounds() const;  // bounds of all cuts
  // Returns the manifest with the blobs that `place` needs; null: with all that the server has
  // made.
  wire::ModelInfo manifest(const Placement* place);
  // Returns the manifest of the whole model on this machine. Any thread, over a connection of its
  // own.
  wire::ModelInfo whole_manifest(Remote& remote, Waiter& waiter, bool patient = true) const;
  // Asks once for that, and does not wait for a server that is still making it.
  wire::ModelInfo whole_manifest_now();
  // Returns where texts begin, and its manifest. With --cut auto that is the cloud; the fixed cut
  // (split/placement.h), with a line, if its sessions do not let texts go on here.
  struct Begin {
    Placement place;
    wire::ModelInfo info;
  };
  Begin begin();
  std::optional<Tokenizer> tokenizer(const wire::ModelInfo& info);
  // Returns the template of messages: --chat-template, or the model's own; nullopt if it has none.
  std::optional<ChatTemplate> chat(const wire::ModelInfo& info);
  // How the model's texts become embeddings.
  Sentences sentences(const wire::ModelInfo& info);
  // Keeps the description of a model that runs here alone, with its tokenizer, which then needs no
  // server. Does nothing if the cache cannot be written.
  void remember(const PlacedModel& split) const;
  void remember(const wire::ModelInfo& info, const std::string& query) const;
  std::string whole_query() const;  // the query for the whole model

  // Any thread.
  const EngineOptions& options() const { return server_.options(); }
  const PlacementRequest& request() const { return request_; }
  const ServerAddress& server() const { return server_; }
  bool has_cache() const;  // there is a cache directory
  ShardCache cache() const;
  SeenModels seen_models() const { return SeenModels(cache()); }
  void note(const std::string& line) const {
    if (note_) note_(line);
  }
  Interrupt& interrupt() const { return interrupt_; }

  Remote& remote() const { return *remote_; }
  // Gives the present connection away, for a text, and uses another one from now on. While nobody
  // uses it.
  std::unique_ptr<Remote> hand_over();
  // Returns another connection to the server, as patient as this one. Any thread.
  std::unique_ptr<Remote> connect() const { return server_.connect(remote_->patience().timeout); }
  const RetryOptions& retry() const { return retry_; }
  // Sets the callbacks of waits for the server, in loads and steps (split/backoff.h).
  void on_waiting(std::function<void(const RemoteError&)> lost, std::function<void(bool)> found) {
    retry_.on_lost = std::move(lost);
    retry_.on_found = std::move(found);
  }
  // Sets the callback of each retry, in loads and steps.
  void on_retry(std::function<void(const RemoteError&)> told) { retry_.on_retry = std::move(told); }

 private:
  template <typename Call>
  auto retried(const Call& call) {
    return edge::retried(retry_, interrupt_, call);
  }
  std::string wanted_id();
  wire::ModelInfo described(Remote& remote) const;
  std::string file(const wire::ModelInfo& info, const std::string& name);
  std::vector<std::string> names_of(const wire::ModelInfo& info) const;
  template <typename Read>
  auto read_files(const wire::ModelInfo& info, const Read& read);
  void expect_own_config();
  void expect_config(const wire::ModelInfo& info) const;
  static std::string difference(const wire::ModelInfo& info, std::string_view name,
                                std::string_view text);
  [[noreturn]] void refuse_file(std::string_view name, std::string_view why) const;
  bool tail_chooses_cut() const {
    return chooses_below(!options().tail.empty(), request_.cut.has_value(),
                         !request_.moves.empty());
  }
  void take_context(const wire::ModelInfo& info) const;
  wire::ModelInfo manifest(Remote& remote, Waiter& waiter, const RetryOptions& options,
                           bool aloud) const;
  std::optional<SeenModels::Key> key_alone() const;
  bool recall(const RemoteError& error, bool aloud);

  PlacementRequest request_;
  const Note note_;
  Interrupt& interrupt_;
  const ServerAddress server_;
  std::unique_ptr<Remote> remote_;
  std::optional<Interrupt::Hook> hook_;  // ends remote_'s requests
  RetryOptions retry_;
  std::string id_;
  std::atomic<bool> described_ = false;  // a description had this config
  std::string config_json_;              // model_ was made from it
  std::unique_ptr<Model> model_;
  std::shared_ptr<const TailWeights> tail_;   // a fine-tuned tail's, over the model's
  std::map<std::string, std::string> files_;  // text, by name
  std::optional<SeenModel> seen_;             // replaces the server
  mutable std::once_flag fitted_;             // the context was fitted to this machine
};

}  // namespace split::edge
