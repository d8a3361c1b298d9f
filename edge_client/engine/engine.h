// The edge as a library: it meets a server, loads a model of it while texts may already come, knows
// where texts begin, and moves that between two of them: what runs ends where it was, or goes on
// where the weights have come to. A face begins texts on it (request.h) and hears what becomes of
// them (observer.h). It neither prints nor serves.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "edge_client/cloud/remote_pool.h"
#include "edge_client/drive/own_turns.h"
#include "edge_client/engine/failover.h"
#include "edge_client/engine/observer.h"
#include "edge_client/engine/reserve.h"
#include "edge_client/engine/running_texts.h"
#include "edge_client/place/plan_report.h"
#include "edge_client/weights/stage_progress.h"

namespace split::edge {

// A wish that cannot be met now; the program's code for it says why.
class Refused : public Error {
 public:
  Refused(std::string code, const std::string& message)
      : Error(ErrorKind::kInput, message), code(std::move(code)) {}
  std::string code;  // "not_supported", "not_exact", "model_mismatch"
};

// How an engine is, at one moment.
struct EngineState {
  std::string origin;                        // of the cloud
  bool begins = false;                       // a text, now
  std::shared_ptr<PlacedModel> split;        // that answers begin with; null until it is loaded
  std::optional<Placement> coming;           // that is being loaded
  std::shared_ptr<const PlacedModel> grown;  // beside answers; null: none is
  bool follows = false;                      // where answers begin is chosen as the weights come
  wire::ModelInfo info;                      // of either
  const ModelConfig* config = nullptr;       // of either
  FetchCounts fetched;                       // of the split, and beside its answers
  std::map<std::string, StageProgress::Count> progress;
  std::optional<PlanReport> plan;  // of the next answer; none yet
  std::vector<RunningTexts::Answer> answers;
  std::optional<bool> exact;  // moves change no bit; none: nobody looked
  Goal goal = Goal::kFast;    // of a cut that is chosen
  StageFormats formats;       // of downloads
  std::string device_asked;
};

// Any thread, but load().
class Engine {
 public:
  // All of these outlive it. Throws Error(kInput) for a bad URL.
  Engine(const EngineOptions& options, const Flags::Environment& environment, Interrupt& interrupt,
         EngineObserver& observer);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Asks the server for its models. Throws as Loader does.
  void meet();
  // A text begins at once beside load(), on the connection that met the server. Before load().
  void open_beside();
  // Meets the server and loads the first cut; once. Throws as Loader does.
  void load();
  const LoadedModel* loaded() const;  // null until then
  // Waits for that. Throws what load() threw, and RemoteError where the waiter is interrupted.
  const LoadedModel& await_loaded(Waiter& waiter) const;
  bool settled() const;  // it is loaded, or will not be
  // The id of the model whose texts the cloud may begin by their words, before anything else is
  // known of it; empty: of none.
  std::string opens() const;
  // The model that a text on it goes on with, once it is loaded; null where such a text has to
  // begin anew.
  std::shared_ptr<PlacedModel> opened_on() const;
  // Gives http::Client::on_silence of such a text its answer until then.
  std::function<bool()> is_lost() const;

  std::shared_ptr<PlacedModel> present() const;  // that texts begin with; null until it is loaded
  bool follows() const;                          // and whether that is chosen as the weights come
  std::string plan() const;                      // what runs where, in one line, once loaded
  EngineState state() const;

  // Downloads what is missing and lets texts begin there from now on; Move::kCloud: everything on
  // the cloud. With `running`, those that run move there too. Throws Error, Refused too.
  void move_cut(int cut, bool running = false);
  // Texts begin on the cloud, and go on here as the weights come (--cut auto). Throws Refused.
  void choose_cut();

  std::optional<int> highest_cut() const { return loader_.highest_cut(); }  // once it is loaded

  // They return what this machine's disk keeps; forget() first deletes all but running downloads.
  Loader::Kept kept() const { return loader_.kept(); }
  Loader::Kept forget() const { return loader_.forget(); }

  // The parts that texts share.
  const EngineOptions& options() const { return options_; }
  EngineObserver& observer() { return observer_; }
  const RetryOptions& retry() const { return loader_.retry(); }
  RemotePool& pool() { return pool_; }
  // None of a terminal's texts whose cut moves: its pages hold one.
  OwnTurns* turns() { return options_.keeps_turns ? &turns_ : nullptr; }
  RunningTexts& answers() { return answers_; }
  Failover& failover() { return failover_; }
  Forecasts* forecasts() const { return forecasts_.get(); }  // once it is loaded
  DraftOptions drafts() { return {options_.drafts.most, options_.drafts.always, &draft_memory_}; }
  void count_growth();  // tells of the bytes that came beside texts since the last time

 private:
  // Hears what comes beside texts.
  class FetchObserver : public EngineObserver {
   public:
    explicit FetchObserver(Engine& engine) : engine_(engine) {}
    void said(const std::string& line) override;
    void coming(const wire::ModelInfo& info, const std::vector<GrowthStep>& steps) override;
    void grows(const std::shared_ptr<PlacedModel>& model) override;
    void grew(const GrowthNote& note) override;
    void landed(const AvailableCut& place, bool goes_on) override;

   private:
    Engine& engine_;
  };
  void load_first();
  std::shared_ptr<PlacedModel> load_split(const Placement& place, wire::ModelInfo info);
  std::shared_ptr<PlacedModel> placed_at(int cut);
  void move_running(int cut, const std::shared_ptr<PlacedModel>& split);
  void follow();
  void fetch_rest(PlacedModel& split);
  void measure(const wire::ModelInfo& info);
  void go_on_at(const AvailableCut& place);
  void watch_once(const AvailableCut& place);
  void watch(Batcher& batcher);

  const EngineOptions& options_;
  EngineObserver& observer_;
  Loader loader_;  // of whoever holds:
  std::mutex loading_;
  RemotePool pool_;
  OwnTurns turns_;
  DraftMemory draft_memory_;
  StageProgress progress_;
  RunningTexts answers_;
  Failover failover_;
  FetchObserver coming_{*this};

  mutable std::mutex mutex_;  // of:
  struct {
    std::string opens;
    bool opened = false;      // a text, beside load()
    bool seen_alone = false;  // its model, which may do without the cloud
    std::optional<LoadedModel> loaded;
    std::exception_ptr failed;
    std::shared_ptr<PlacedModel> split;
    std::optional<Placement> coming;  // while it is being loaded
    wire::ModelInfo coming_info;
    std::shared_ptr<PlacedModel> on_cloud;  // as texts begin with it there, once they did
    bool follows = false;                   // texts begin where the weights are, or the cloud
    bool watched = false;                   // these weights
    std::optional<AvailableCut> landed;     // last
    FetchCounts counted;                    // of what came beside texts
  } now_;
  std::unique_ptr<Forecasts> forecasts_;  // once it is loaded
  std::optional<WeightFetch> fetch_;      // of whoever loads, as:
  std::optional<Reserve> reserve_;
};

}  // namespace split::edge
