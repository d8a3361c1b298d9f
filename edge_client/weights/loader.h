// From a server's URL to a split model: which model, its config, tokenizer and manifest, and this
// machine's stages, downloaded and loaded. Both a single run and the edge's server begin here.
// Knows no text.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "edge_client/cloud/model_link.h"
#include "edge_client/place/bounds.h"
#include "edge_client/split/cut_mover.h"
#include "edge_client/split/placement.h"
#include "edge_client/split/receipt.h"
#include "edge_client/weights/growth.h"
#include "edge_client/weights/local_tail.h"
#include "edge_client/weights/plan/forecasts.h"
#include "edge_client/weights/seen_models.h"
#include "edge_client/weights/tail_weights.h"
#include "program/flags.h"
#include "program/world.h"
#include "run/sentences.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace split::edge {

// A model with a cut, ready to run. Immutable but for the tail's own state, which copies share.
struct PlacedModel {
  Placement place;
  wire::ModelInfo info;
  std::string query;                // the query for `info` (wire::model_query())
  std::shared_ptr<LocalTail> tail;  // null: nothing runs here
  bool growing = false;             // the tail began empty
  FetchCounts fetched;              // unless `growing`
  std::string profile;              // the tail's
  // The cut that sessions are opened for, so that a text's cut may move: the cloud supports that,
  // and the head is here. nullopt: each text stays where it begins.
  std::optional<int> deepest = {};
  bool leaves_lost_cloud = false;  // texts go on here after a loss if all stages can be here
  double pace = 0;                 // tokens/s kept by offloading (MoveOptions)
  std::optional<bool> exact = {};  // weights/exactness.h; nullopt: not compared
  DType wire = DType::kF32;        // format of hidden states on the wire
  double head_blocks = 0;          // head_in_blocks()
  bool personal = false;           // uses a fine-tuned tail

  // Whether a text's cut can move, or at least leave a lost cloud.
  bool moves() const {
    return deepest || (leaves_lost_cloud && !place.cut.is_cloud() && !place.alone());
  }
  // Whether texts that begin here get rounded rows.
  bool rounds() const {
    const bool rows_travel = place.head_on_cloud || (!place.cut.is_cloud() && place.cut > 0);
    return wire != DType::kF32 && rows_travel;
  }
  Batcher* batcher() { return tail ? &tail->batcher() : nullptr; }
  // The device that computes here now; null if texts have to move here first.
  const Device* computes() const { return tail && place.local() ? &tail->device() : nullptr; }
  std::string device() const { return computes() != nullptr ? computes()->name() : ""; }
  bool on_gpu() const { return computes() != nullptr && computes()->is_gpu(); }
  // Returns the same weights for texts that begin at another cut.
  PlacedModel at(Cut cut) const;
  // The lowest point from which on everything is here, if any. Any thread.
  std::optional<Point> floor() const;
  FetchCounts counts() const { return growing ? tail->counts() : fetched; }
};

// Options of the cloud link of a text. The arguments outlive the link.
LinkOptions link_options(const PlacedModel& split, const ModelConfig& config,
                         const RetryOptions& retry, Waiter& waiter);
// Returns the connection, whose requests end when the program, or one request of it, is
// interrupted.
std::shared_ptr<Remote> ended_by(Interrupt& interrupt, std::shared_ptr<Remote> remote);

// How texts on the model move.
MoveOptions move_options(const PlacedModel& split);

// Adds to a receipt what runs where.
void describe(Receipt& receipt, const PlacedModel& split, const ModelConfig& config,
              const std::string& origin);

// A loader's output for people: lines, and the progress of downloads.
struct LoaderOutput {
  std::function<void(const std::string& line)> note = [](const std::string&) {};
  ProgressTo progress = {};
};

// The steps in which weights come beside texts.
struct Growth {
  FetchPlan chosen;
  std::vector<GrowthStep> steps;
};

// The blobs of a model in its own formats, by their hashes: a fine-tuned tail's base.
std::string base_of(const wire::ModelInfo& info);

// A connection to the options' server.
std::unique_ptr<Remote> connect(const EngineOptions& options, const Flags::Environment& environment,
                                std::chrono::milliseconds timeout);

// One thread at a time.
class Loader {
 public:
  // The arguments outlive it.
  Loader(const EngineOptions& options, LoaderOutput output, const Flags::Environment& environment,
         Interrupt& interrupt);

  // Asks for the list of models, and for the wanted one's config. If the server does not answer,
  // and this machine needs nothing from it, takes the model that remember() kept, and says so in a
  // line. Throws RemoteError, Error(kRemote) and Error(kInput), as the others do, and
  // Error(kIntegrity) for a file that does not match the model's description.
  void select_model();
  // The part that sets id(), and needs no config.
  void select_id();
  // With --cut auto, once, after select_id(): refuses values of --device, --cache and --format that
  // cannot work, as load() would, before a text begins without them.
  void expect_flags();
  const std::string& id() const { return id_; }
  bool recalled() const { return seen_.has_value(); }
  bool is_seen_alone() const;  // recalled() is possible
  // Calls `ask`, about a model whose text the server has begun. If the server is lost meanwhile,
  // and the model was seen to run here alone, repeats that with the model as it was seen.
  void ask_begun(const std::function<void()>& ask);
  const Model& model() const { return *model_; }
  const ModelConfig& config() const { return model_->config(); }

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
  // Downloads what is missing and loads it. Throws Error(kIo, kIntegrity, kDevice) too.
  std::unique_ptr<PlacedModel> load(const Placement& place, const wire::ModelInfo& info,
                                    const OnBytes& on_bytes = {});
  // Begins to download blobs of this description. Throws Error(kIo) too.
  std::unique_ptr<BlobLoad> begin_load(const wire::ModelInfo& info,
                                       const std::vector<wire::BlobInfo>& blobs,
                                       LoadOptions load) const;
  // Chooses as much of the model as fits into `max_weights` and the memory (place/begin.h).
  Growth coming(const wire::ModelInfo& info, uint64_t max_weights);
  // Begins to download these steps, of which there are some, beside the answers, for a tail that is
  // empty until grow() takes them (weights/growth.h). `forecasts` gets this machine's speed, if it
  // is unmeasured. Throws Error(kIo, kDevice).
  std::unique_ptr<PlacedModel> begin_growth(const wire::ModelInfo& info, const Growth& growth,
                                            const OnBytes& on_bytes, Forecasts* forecasts);
  // Returns the description of the whole model, this one or the last one of the same weights, if
  // the cache has all of them. Any thread.
  std::optional<wire::ModelInfo> whole_in_cache(const wire::ModelInfo& info) const;
  // Begins to download what the cache lacks of the whole model. Throws Error(kIo). Any thread.
  std::unique_ptr<BlobLoad> begin_rest(const wire::ModelInfo& whole) const;
  // Loads the whole model from the cache, for texts that begin on `split`; null if the cache lacks
  // a part. Throws as load(). Any thread.
  std::shared_ptr<PlacedModel> load_from_cache(const PlacedModel& split) const;
  // Returns the forecasts of answers here, which learn from them, and may outlive the loader.
  std::unique_ptr<Forecasts> forecasts(const wire::ModelInfo& info);
  // Return what the cache holds; forget() first removes all that can go. Any thread.
  struct Kept {
    uint64_t bytes = 0;
    size_t files = 0;
  };
  Kept kept() const;
  Kept forget() const;
  bool has_cache() const;                                           // there is a cache directory
  uint64_t missing_bytes(std::span<const GrowthStep> steps) const;  // bytes of the steps that the
                                                                    // cache lacks
  // Returns a line if weights of so many bytes, which all stay in the cache, exceed --cache-limit.
  std::string over_cache_limit(uint64_t bytes) const;
  // Whether a text has the same bits here and there, by what the bits depend on (own_bits()), by
  // the format of rows on the wire, and by comparing the last block, if that is in the cache;
  // nullopt if it is not. Throws RemoteError.
  std::optional<bool> is_exact_here(const wire::ModelInfo& info, const std::string& bits);
  // Keeps the description of a model that runs here alone, with its tokenizer: load() then needs no
  // server. Does nothing if the cache cannot be written.
  void remember(const PlacedModel& split) const;
  void remember(const wire::ModelInfo& info, const std::string& query) const;
  std::string whole_query() const;  // the query for the whole model

  // Returns the format of rows on the wire: the requested one if the server supports it, else f32,
  // with a line.
  DType wire_of(const wire::ModelInfo& info);
  // The formats of weights to download. Any thread.
  StageFormats formats(const wire::ModelInfo& info) const;
  Remote& remote() { return *remote_; }
  // Gives the present connection away, for a text, and uses another one from now on. While nobody
  // uses it.
  std::unique_ptr<Remote> hand_over();
  // Returns another connection to the server. Any thread.
  std::unique_ptr<Remote> connect(std::chrono::milliseconds timeout) const;
  // Whether the server responds within two seconds, or did a moment ago. Any thread.
  bool cloud_lives() const;
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
  std::string file(const wire::ModelInfo& info, const std::string& name);
  std::vector<std::string> names_of(const wire::ModelInfo& info) const;
  template <typename Read>
  auto read_files(const wire::ModelInfo& info, const Read& read);
  void expect_own_config();
  void expect_config(const wire::ModelInfo& info) const;
  static std::string difference(const wire::ModelInfo& info, std::string_view name,
                                std::string_view text);
  [[noreturn]] void refuse_file(std::string_view name, std::string_view why) const;
  void load_tail(PlacedModel& split, std::unique_ptr<Device> device, const LoadOptions& load,
                 uint64_t kv) const;
  void begin_tail(PlacedModel& split, std::unique_ptr<Device> device,
                  const std::vector<wire::BlobInfo>& blobs, LoadOptions load, uint64_t kv,
                  LocalTail::Begins begins) const;
  void allow_moves(PlacedModel& split);
  void expect_base(const wire::ModelInfo& info) const;
  void expect_allowed(const Placement& place) const;
  // Whether the cut below a tail is chosen: 0 if all weights are here, else the tail's first block.
  bool tail_chooses_cut() const {
    return !options_.tail.empty() && !options_.cut && options_.moves.empty();
  }
  void take_context(const wire::ModelInfo& info) const;
  void expect_formats();
  std::unique_ptr<Device> device();
  std::unique_ptr<Device> new_device() const;
  wire::ModelInfo manifest(Remote& remote, Waiter& waiter, const RetryOptions& options,
                           bool aloud) const;
  std::optional<SeenModels::Key> key_alone() const;
  bool recall(const RemoteError& error, bool aloud);
  ShardCache cache() const;
  SeenModels seen_models() const;
  uint64_t kv_budget(const Placement& place) const;
  uint64_t granted_to_weights();

  const EngineOptions& options_;
  const LoaderOutput output_;
  const Flags::Environment& environment_;
  Interrupt& interrupt_;
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
  bool told_wire_ = false;
  bool expected_flags_ = false;
  std::unique_ptr<Device> device_;  // checked by expect_flags()
  mutable std::mutex looking_;      // guards the members below
  mutable std::optional<std::chrono::steady_clock::time_point> looked_;
  mutable bool lives_ = true;
};

}  // namespace split::edge
