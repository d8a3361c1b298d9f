// A model that this server serves: its checkpoint, tokenizer, device, shard of all stages, and
// blobs.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "cloud_server/state/cut_requests.h"
#include "cloud_server/state/load.h"
#include "cloud_server/state/weight_store.h"
#include "run/batcher.h"
#include "run/sentences.h"
#include "run/sessions.h"
#include "text/form/answer_format.h"
#include "text/tokenizer.h"

namespace split::cloud {

struct ModelOptions {
  std::string id;
  std::filesystem::path path;
  std::string device = "auto";
  unsigned threads = 0;
  Profile profile = Profile::kF32;
  bool wide = false;
  std::optional<int> context;  // positions of a text; nullopt: what there is room for
  std::string chat_template;   // the template's text; empty: the model's own
  bool special_in_content = false;
  std::optional<DType> kv;    // type of keys and values; nullopt: the profile's
  uint64_t kv_budget = 0;     // 0: default_kv_budget()
  bool prompt_cache = false;  // texts share the rows of common prompt prefixes
  std::vector<DType> formats{DType::kF32, DType::kF16};  // download formats beside the checkpoint's
                                                         // own
  std::filesystem::path blob_cache;  // keeps converted weights; empty: in memory
  // How long a request waits for weights that are not made yet: less than any client's timeout.
  std::chrono::milliseconds weights_patience{3000};
};

class ServedModel {
 public:
  // Loads everything. `device`: null for the options'. Throws Error(kInput, kNotFound, kIo,
  // kDevice).
  explicit ServedModel(const ModelOptions& options, std::unique_ptr<Device> device = {});

  const std::string& id() const { return options_.id; }
  const ModelConfig& config() const { return model_->config(); }
  // The bound of a default context, in a line; empty: the model's own.
  const std::string& context_bound() const { return context_bound_; }
  uint64_t kv_budget() const { return options_.kv_budget; }
  const Model& model() const { return *model_; }
  // The last point of its rows: the head, or the end of its blocks if it has none.
  Point last_point() const {
    return Point::last(config().layers, config().has_norm(), !config().encodes());
  }
  // How its texts become embeddings.
  const Sentences& sentences() const { return sentences_; }
  // The template of messages; null if it has none.
  const ChatTemplate* chat() const { return chat_ ? &*chat_ : nullptr; }
  const AnswerFormat& answer_format() const { return answer_format_; }
  bool special_in_content() const { return options_.special_in_content; }
  const Checkpoint& checkpoint() const { return checkpoint_; }
  // The checkpoint's files as of its opening, whatever is there now.
  struct File {
    wire::FileInfo info;
    std::shared_ptr<const std::string> text;
  };
  const std::vector<File>& files() const { return files_; }
  const Tokenizer* tokenizer() const { return tokenizer_ ? &*tokenizer_ : nullptr; }
  Profile profile() const { return options_.profile; }
  Device& device() { return shard_->device(); }
  Batcher& batcher() { return *batcher_; }
  WeightStore& weights() { return *weights_; }

  // The inputs of its rows' bits (run/bits.h), on its present device.
  std::string bits() const;

  // Returns a weight with values that are not finite, which may make results so; empty if there is
  // none. Checks all weights once. Any thread.
  const std::string& damaged_weight();

  // Runs one forward pass of each shape, so that the first request finds everything loaded.
  void warm_up();
  // Measures the cost of its steps, beside requests; once.
  void measure();
  double kv_usage() const;  // share of the pages that sequences hold
  const LoadMeter& load() const { return load_; }
  LoadMeter::Load load_now() const { return load_.at(clock_()); }
  // Enables load notes to its sessions. Call once, before the first request.
  void begin_wishes(double slo_ms, std::function<CutRequests::Time()> clock);
  CutRequests& cut_requests() { return *cut_requests_; }
  // Counts how long a token waited for its step.
  void token_waited(double ms) { waits_.add(ms, clock_()); }
  std::optional<StepCosts> costs() const;
  // Counts rows that the session computed in place of a lost one.
  void count_again(Session& session, uint32_t rows) {
    replayed_rows_ += rows;
    if (!std::exchange(session.moved, true)) ++moved_sessions_;
  }
  uint64_t replayed_rows() const { return replayed_rows_; }
  uint64_t moved_sessions() const { return moved_sessions_; }

 private:
  ModelOptions options_;
  Checkpoint checkpoint_;
  std::vector<File> files_;
  std::unique_ptr<Model> model_;
  std::string context_bound_;
  Sentences sentences_;
  std::optional<Tokenizer> tokenizer_;
  std::optional<ChatTemplate> chat_;
  AnswerFormat answer_format_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Shard> shard_;
  std::unique_ptr<Batcher> batcher_;
  std::unique_ptr<WeightStore> weights_;
  std::atomic<uint64_t> replayed_rows_ = 0, moved_sessions_ = 0;
  LoadMeter load_;   // steps
  LoadMeter waits_;  // tokens' waits
  std::function<CutRequests::Time()> clock_ = std::chrono::steady_clock::now;
  std::optional<CutRequests> cut_requests_;
  mutable std::mutex costs_mutex_;  // guards costs_
  std::optional<StepCosts> costs_;
  std::once_flag looked_;
  std::string damaged_weight_;
};

}  // namespace split::cloud
