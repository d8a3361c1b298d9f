// The edge as a library: meets a server, loads a model of it while texts may already begin, decides
// where texts begin, and moves that place between texts: running texts end at theirs, or go on
// where weights have landed. A face begins texts on it (request.h) and observes them (observer.h).
// Neither prints nor serves.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "edge_client/cloud/remote_pool.h"
#include "edge_client/drive/session_cache.h"
#include "edge_client/engine/failover.h"
#include "edge_client/engine/observer.h"
#include "edge_client/engine/reserve.h"
#include "edge_client/engine/running_texts.h"
#include "edge_client/place/plan_report.h"
#include "edge_client/split/lock_order.h"
#include "edge_client/weights/stage_progress.h"

namespace split::edge {

// A request that cannot be met now, with the reason as a code for programs.
class Refused : public Error {
 public:
  Refused(std::string code, const std::string& message)
      : Error(ErrorKind::kInput, message), code(std::move(code)) {}
  std::string code;  // "not_supported", "not_exact", "model_mismatch"
};

// A snapshot of an engine.
struct EngineState {
  std::string origin;                        // the cloud's
  bool begins = false;                       // a text can begin now
  std::shared_ptr<PlacedModel> split;        // answers begin with it; null until it is loaded
  std::optional<Placement> coming;           // being loaded
  std::shared_ptr<const PlacedModel> grown;  // grows beside answers; null: nothing does
  bool follows = false;                      // the beginning is chosen as weights come
  wire::ModelInfo info;                      // split's or coming's
  const ModelConfig* config = nullptr;       // split's or coming's
  const Model* model = nullptr;              // has its stages
  FetchCounts fetched;                       // the split's, and what came beside answers
  std::map<std::string, StageProgress::Count> progress;
  std::optional<PlanReport> plan;                   // the next answer's, once known
  std::map<uint64_t, SplitForward::Place> answers;  // by their numbers
  std::optional<bool> exact;                        // moves change no bit; nullopt: not compared
  Goal goal = Goal::kFast;                          // applies to automatic choices
  StageFormats formats;                             // format of downloads
  std::string device_asked;
};

// Any thread, but load().
class Engine : private EngineObserver {
 public:
  // The arguments outlive it. Throws Error(kInput) for a bad URL.
  Engine(const EngineOptions& options, const PlacementRequest& request,
         const http::Environment& environment, Interrupt& interrupt, EngineObserver& observer);
  ~Engine() override;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Asks the server for its models. Throws as ModelChoice does.
  void meet();
  // Lets a text begin beside load(), on the connection that met the server. Call before load().
  void open_beside();
  // Meets the server and loads the first cut; once. Throws as ModelChoice does.
  void load();
  const LoadedModel* loaded() const;  // null until then
  // Waits for loaded(). Throws what load() threw, and RemoteError if the waiter is interrupted.
  const LoadedModel& await_loaded(Waiter& waiter) const;
  bool settled() const;  // load() has ended, well or not
  // The id of the model whose texts the cloud may begin by their words before the model is known
  // here; empty: none.
  std::string opens() const;
  // The model on which such a text goes on, once it is loaded; null if the text must begin anew.
  std::shared_ptr<PlacedModel> opened_on() const;
  // Returns http::Client::on_silence for such a text.
  std::function<bool()> is_lost() const;

  std::shared_ptr<PlacedModel> present() const;  // texts begin with it; null until it is loaded
  bool follows() const;                          // the beginning is chosen as weights come
  std::string plan() const;                      // one line: what runs where; once loaded
  EngineState state() const;

  // Downloads what is missing for the cut, where texts begin from then on. With `running`, running
  // texts move there too. Throws Error, and Refused.
  void move_cut(Cut cut, bool running = false);
  // Lets texts begin on the cloud and go on here as weights come (--cut auto). Throws Refused.
  void choose_cut();

  CutBounds bounds() const { return choice_.bounds(); }  // bounds of all cuts, once it is loaded

  // Return what this machine's disk keeps; forget() first deletes all but running downloads.
  WeightStore::Kept kept() const { return tails_.weights().kept(); }
  WeightStore::Kept forget() const { return tails_.weights().forget(); }

  // The parts that texts share.
  const EngineOptions& options() const { return choice_.options(); }
  EngineObserver& observer() { return observer_; }
  const RetryOptions& retry() const { return choice_.retry(); }
  RemotePool& pool() { return pool_; }
  // Null for an interactive text with --cut auto: its KV budget holds one sequence.
  SessionCache* session_cache() { return options().keeps_turns ? &session_cache_ : nullptr; }
  RunningTexts& answers() { return answers_; }
  Failover& failover() { return failover_; }
  Forecasts* forecasts() const { return forecasts_.get(); }  // once it is loaded
  DraftOptions drafts() { return {options().drafts.most, options().drafts.always, &draft_memory_}; }
  void count_growth();  // reports the bytes that came beside texts since the last call

 private:
  using EngineObserver::loaded;
  // Events of the weights that come beside texts.
  void said(const std::string& line) override { observer_.said(line); }
  void coming(const wire::ModelInfo& info, const std::vector<GrowthStep>& steps) override;
  void grows(const std::shared_ptr<PlacedModel>& model) override;
  void grew(const GrowthNote& note) override;
  void landed(const AvailableCut& place, bool goes_on) override;
  double token_ms(Device& device) const;
  void load_first();
  std::shared_ptr<PlacedModel> load_split(const Placement& place, wire::ModelInfo info);
  std::shared_ptr<PlacedModel> placed_at(Cut cut);
  void move_running(Cut cut, const std::shared_ptr<PlacedModel>& split);
  void follow();
  void fetch_rest(PlacedModel& split);
  void measure(const wire::ModelInfo& info);
  void go_on_at(const AvailableCut& place);
  void watch_once(const AvailableCut& place);
  void watch(Batcher& batcher);

  EngineObserver& observer_;
  ModelChoice choice_;  // used with loading_ held, like tails_
  TailBuilder tails_;
  Mutex loading_{LockOrder::kLoading};
  RemotePool pool_;
  SessionCache session_cache_;
  DraftMemory draft_memory_;
  StageProgress progress_;
  RunningTexts answers_;
  Failover failover_;

  mutable Mutex mutex_{LockOrder::kEngine};  // guards now_
  struct {
    std::string opens;
    bool opened = false;      // a text has begun beside load()
    bool seen_alone = false;  // the cached model may run here without the cloud
    std::optional<LoadedModel> loaded;
    std::exception_ptr failed;
    std::shared_ptr<PlacedModel> split;
    std::optional<Placement> coming;  // being loaded
    wire::ModelInfo coming_info;
    std::shared_ptr<PlacedModel> on_cloud;  // the model for texts that begin on the cloud, once one
                                            // did
    bool follows = false;                   // texts begin where the weights are, or on the cloud
    bool watched = false;                   // watch_once() was called for these weights
    std::optional<AvailableCut> landed;     // the last one
    FetchCounts counted;                    // bytes already reported
  } now_;
  std::unique_ptr<Forecasts> forecasts_;  // set once loaded
  std::optional<WeightFetch> fetch_;      // used with loading_ held, like reserve_
  std::optional<Reserve> reserve_;
};

}  // namespace split::edge
