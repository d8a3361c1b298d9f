// From a server's URL to a model that is split: which model, its config, tokenizer and manifest,
// and this machine's stages of it, downloaded and loaded. One run of the program and its server
// both begin here. Knows no text.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "edge_client/cloud/model_link.h"
#include "edge_client/split/cut_mover.h"
#include "edge_client/split/placement.h"
#include "edge_client/split/receipt.h"
#include "edge_client/weights/incremental_shard.h"
#include "edge_client/weights/plan/forecasts.h"
#include "edge_client/weights/seen_models.h"
#include "edge_client/weights/tail_weights.h"
#include "program/flags.h"
#include "program/world.h"
#include "run/sentences.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace split::edge {

// A model cut at one place, ready to run. Immutable but for the tail's own state. Copies share
// that.
struct PlacedModel {
  Placement place;
  wire::ModelInfo info;
  std::string query;                          // that `info` answers (wire::model_query())
  std::shared_ptr<LocalTail> tail;            // none when nothing runs here
  std::shared_ptr<IncrementalShard> growing;  // of one that began empty
  FetchCounts fetched;                        // of one that did not
  std::string profile;                        // of the tail
  // The cut that sessions are opened for, so that a text's may move: the cloud knows how, and the
  // head is here. None: each text stays where it begins.
  std::optional<int> deepest = {};
  bool leaves_lost_cloud = false;  // a text does, where all stages can be here
  double pace = 0;                 // of one that offloads (MoveOptions)
  std::optional<bool> exact = {};  // weights/exactness.h; none: nobody looked
  DType wire = DType::kF32;        // of hidden states on their way
  double head_blocks = 0;          // head_in_blocks()
  bool personal = false;           // with a tail of one's own

  // Whether a text's cut can move, or at least leave a lost cloud.
  bool moves() const {
    return deepest || (leaves_lost_cloud && !place.all_on_cloud && !place.alone());
  }
  // Whether texts that begin here have rounded rows from then on.
  bool rounds() const {
    const bool rows_travel = place.head_on_cloud || (!place.all_on_cloud && place.cut > 0);
    return wire != DType::kF32 && rows_travel;
  }
  Batcher* batcher() { return tail ? &tail->batcher() : nullptr; }
  // The one that computes here now; none where a text has to come here first.
  const Device* computes() const { return tail && place.local() ? &tail->device() : nullptr; }
  std::string device() const { return computes() != nullptr ? computes()->name() : "none"; }
  bool on_gpu() const { return computes() != nullptr && computes()->is_gpu(); }
  // The same weights for texts that begin at another cut, or at Move::kCloud.
  PlacedModel at(int cut) const;
  // The lowest point from which on this machine runs all, if any. Any thread.
  std::optional<Point> floor() const;
  FetchCounts counts() const { return growing ? tail->counts() : fetched; }
};

// How the cloud is asked for the rows of a text on it. All of these outlive the link.
LinkOptions link_options(const PlacedModel& split, const ModelConfig& config,
                         const RetryOptions& retry, Waiter& waiter);
// The connection, whose requests end when the program, or one request of it, is interrupted.
std::shared_ptr<Remote> ended_by(Interrupt& interrupt, std::shared_ptr<Remote> remote);

// How the texts on it move.
MoveOptions move_options(const PlacedModel& split);

// Says what runs where, for a receipt.
void describe(Receipt& receipt, const PlacedModel& split, const ModelConfig& config,
              const std::string& origin);

struct GrowOptions {
  uint64_t max_weights = kMaxWeights;  // bytes that this machine takes; 0: none
  OnGrowth told = {};
  OnBytes on_bytes = {};
  Forecasts* forecasts = nullptr;  // told of this machine's speed, where nobody has measured it
};

// What a loader tells people: lines, and how far downloads are.
struct LoaderOutput {
  std::function<void(const std::string& line)> note = [](const std::string&) {};
  ProgressTo progress = {};
};

// The steps in which weights come beside texts.
struct Growth {
  FetchPlan chosen;
  std::vector<GrowthStep> steps;
};

// The blobs of a model in its own formats, by their hashes: what a tail of one's own is on.
std::string base_of(const wire::ModelInfo& info);

// A connection to the options' server.
std::unique_ptr<Remote> connect(const EngineOptions& options, const Flags::Environment& environment,
                                std::chrono::milliseconds timeout);

// One thread at a time.
class Loader {
 public:
  // All of these outlive it.
  Loader(const EngineOptions& options, LoaderOutput output, const Flags::Environment& environment,
         Interrupt& interrupt);

  // Asks which models there are, and for the wanted one's config. Where nobody answers, and this
  // machine needs nothing of the cloud, it is the model that remember() kept, which one line says.
  // Throws RemoteError, Error(kRemote) and Error(kInput), as the others do, and Error(kIntegrity)
  // for a file that is not what the model's description says of it.
  void select_model();
  // The first part of that, which needs no config: id() is known then.
  void select_id();
  // With --cut auto, once, behind select_id(): refuses what --device, --cache and --format name and
  // cannot work with, as load() would, before a text begins without them.
  void expect_flags();
  const std::string& id() const { return id_; }
  bool recalled() const { return seen_.has_value(); }
  bool is_seen_alone() const;  // whether that may be so
  // Calls `ask`, of a model whose text the server has begun. Where it is lost meanwhile, and the
  // model was seen to run here alone, that is asked again, of the model as it was then.
  void ask_begun(const std::function<void()>& ask);
  const Model& model() const { return *model_; }
  const ModelConfig& config() const { return model_->config(); }

  // Where a text's rows run (split/placement.h). Throws Error(kInput).
  Placement place(const PlacementRequest& request, const CloudSessions& sessions = {},
                  bool cloud_lost = false);
  // The first block of the tail of one's own that is used: no cut is above it. None: no tail is.
  std::optional<int> highest_cut() const;
  // With the blobs that `place` needs, or with all that the server has made already.
  wire::ModelInfo manifest(const Placement* place);
  // The same of the whole model on this machine. Any thread, over a connection of its own.
  wire::ModelInfo whole_manifest(Remote& remote, Waiter& waiter, bool patient = true) const;
  // Where texts begin, and the manifest for that. With --cut auto that is the cloud, unless its
  // sessions do not let texts go on here, which one line says: then it is the fixed cut
  // (split/placement.h).
  struct Begin {
    Placement place;
    wire::ModelInfo info;
  };
  Begin begin();
  std::optional<Tokenizer> tokenizer(const wire::ModelInfo& info);
  // How messages become a prompt: --chat-template, or the model's own; nothing where it has none.
  std::optional<ChatTemplate> chat(const wire::ModelInfo& info);
  // How its texts become embeddings.
  Sentences sentences(const wire::ModelInfo& info);
  // Downloads what is missing and loads it. Throws Error(kIo, kIntegrity, kDevice) too.
  std::unique_ptr<PlacedModel> load(const Placement& place, const wire::ModelInfo& info,
                                    const OnBytes& on_bytes = {});
  // Begins to download these, of that description. Throws Error(kIo) too.
  std::unique_ptr<BlobLoad> begin_load(const wire::ModelInfo& info,
                                       const std::vector<wire::BlobInfo>& blobs,
                                       LoadOptions load) const;
  // As much of all of the model as fits into so many bytes and the memory (place/begin.h).
  Growth coming(const wire::ModelInfo& info, uint64_t max_weights);
  // Begins to load that, and returns: stage by stage, in the order in which something can run
  // first, beside the answers. What goes wrong then is told, and leaves the floor where it is.
  // Throws Error(kIo, kDevice).
  std::unique_ptr<PlacedModel> grow(const wire::ModelInfo& info, Growth growth,
                                    const GrowOptions& grow);
  // How the whole model was described, by this description or the last one of the same weights,
  // where the cache has all of them; else none. Any thread.
  std::optional<wire::ModelInfo> whole_in_cache(const wire::ModelInfo& info) const;
  // Begins to bring what the cache lacks of it, by this description of all. Throws Error(kIo). Any
  // thread.
  std::unique_ptr<BlobLoad> begin_rest(const wire::ModelInfo& whole) const;
  // Loads it from there alone, for texts that begin on `split`; null where it is not all there.
  // Throws as load(). Any thread.
  std::shared_ptr<PlacedModel> load_from_cache(const PlacedModel& split) const;
  // Gives what is known of answers here, and learns from them. It may outlive the loader.
  std::unique_ptr<Forecasts> forecasts(const wire::ModelInfo& info);
  // They return what the cache holds; forget() first removes all that can go. Any thread.
  struct Kept {
    uint64_t bytes = 0;
    size_t files = 0;
  };
  Kept kept() const;
  Kept forget() const;
  bool has_cache() const;                                           // where that can be kept
  uint64_t missing_bytes(std::span<const GrowthStep> steps) const;  // in it, of these
  // A line where weights of so many bytes, which all stay in it, are beyond --cache-limit.
  std::string over_cache_limit(uint64_t bytes) const;
  // Whether a text is the same here and there, bit for bit, by what the bits depend on
  // (own_bits()), by how rows travel, and by a look at the last block, where that is in the cache;
  // none: it is not. Throws RemoteError.
  std::optional<bool> is_exact_here(const wire::ModelInfo& info, const std::string& bits);
  // Keeps what the server said of a model that runs here alone, its tokenizer too: load() will do
  // without the server then. Where the cache cannot be written nothing is kept.
  void remember(const PlacedModel& split) const;
  void remember(const wire::ModelInfo& info, const std::string& query) const;
  std::string whole_query() const;  // of the description of all of it

  // The format that rows travel in: as asked for where the server knows how, else f32, which one
  // line says.
  DType wire_of(const wire::ModelInfo& info);
  // The formats that weights are downloaded in. Any thread.
  StageFormats formats(const wire::ModelInfo& info) const;
  Remote& remote() { return *remote_; }
  // Gives the connection that there is away, for a text; asks over another one from now on. While
  // nobody else asks.
  std::unique_ptr<Remote> hand_over();
  // Another connection to the server. Any thread.
  std::unique_ptr<Remote> connect(std::chrono::milliseconds timeout) const;
  // Whether the server gives a sign of life within two seconds, or did a moment ago. Any thread.
  bool cloud_lives() const;
  const RetryOptions& retry() const { return retry_; }
  // Tells what waits for the server from now on, loads and steps (split/backoff.h).
  void on_waiting(std::function<void(const RemoteError&)> lost, std::function<void(bool)> found) {
    retry_.on_lost = std::move(lost);
    retry_.on_found = std::move(found);
  }
  // Calls `told` at each retry from now on, of loads and of steps.
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
  void expect_below_tail(const Placement& place) const;
  // Nobody says the cut below a tail: it is 0 where all weights are here, else the tail's first
  // block.
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
  std::optional<Interrupt::Hook> hook_;  // of that
  RetryOptions retry_;
  std::string id_;
  std::atomic<bool> described_ = false;  // a description was of this config,
  std::string config_json_;              // that this model was made of:
  std::unique_ptr<Model> model_;
  std::shared_ptr<const TailWeights> tail_;   // of one's own, over the model's
  std::map<std::string, std::string> files_;  // text by name
  std::optional<SeenModel> seen_;             // in the server's place
  mutable std::once_flag fitted_;             // its context, to this machine
  bool told_wire_ = false;
  bool expected_flags_ = false;
  std::unique_ptr<Device> device_;  // that expect_flags() found good
  mutable std::mutex looking_;      // of:
  mutable std::optional<std::chrono::steady_clock::time_point> looked_;
  mutable bool lives_ = true;
};

}  // namespace split::edge
