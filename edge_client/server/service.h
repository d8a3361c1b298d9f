// The edge as a server, without its routes: a model that is loaded while requests already come, the
// cut that answers begin with, and what it says about itself. The cut moves between answers: what
// runs ends on the old one. Knows no path of a URL.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "edge_client/server/cloud_notice.h"
#include "edge_client/server/probe.h"
#include "edge_client/server/split_work.h"
#include "edge_client/weights/stage_progress.h"
#include "serve/chat.h"
#include "serve/compat/ollama.h"
#include "serve/compat/props.h"

namespace split::edge {

// Any thread, but load().
class Service {
 public:
  // All of these outlive it. Throws Error(kInput) for a bad URL.
  Service(const Options& options, const Console& console, const Flags::Environment& environment,
          Interrupt& interrupt, EdgeMetrics& metrics);

  // Meets the server and loads the first cut; once. Throws as Loader does.
  void load();
  bool ready() const;
  void stop() { stopping_ = true; }  // not ready any more
  std::string plan() const;          // what runs where, in one line, once loaded

  // Throws HttpError 503 `loading` and 404 `model_not_found`. `owner`: who asks (SplitWork).
  serve::TextModel find(const std::string& id, const std::string& owner = {});
  // The same model, everything on the cloud.
  serve::TextModel unsplit(const std::string& id);
  // The same as find(), of a model that writes texts. Throws HttpError 400 `no_head` too.
  serve::TextModel find_writer(const std::string& id, const std::string& owner = {});
  serve::Props props();               // throws as find()
  serve::OllamaModel ollama_model();  // likewise

  // Downloads what is missing and lets answers begin there from now on; Move::kCloud: everything on
  // the cloud. With `running`, those that run move there too. Throws HttpError and Error.
  void move_cut(int cut, bool running = false);
  // Answers begin on the cloud, and go on here as the weights come (--cut auto).
  void choose_cut();

  // A line of log, unless the program is to be quiet.
  void write_log(std::string_view line) const;
  // There are none before it is loaded. The labels of split_edge_build_info,
  std::vector<serve::Metrics::Labels> served() const;
  // and of split_edge_placement_info,
  std::vector<serve::Metrics::Labels> placed() const;
  // where answers begin,
  std::optional<Placement> place() const;
  bool follows() const;    // and whether that is chosen as the weights come
  std::string id() const;  // of the model
  // and who computes them here.
  std::shared_ptr<Batcher> batcher() const;

  // status.h. `devices`: that can be asked for.
  std::string status(const std::vector<std::string>& devices);

 private:
  std::shared_ptr<PlacedModel> present() const;
  std::shared_ptr<PlacedModel> load_split(const Placement& place, wire::ModelInfo info);
  std::shared_ptr<PlacedModel> placed_at(int cut);
  void move_running(int cut, const std::shared_ptr<PlacedModel>& split);
  void follow();
  void measure(const wire::ModelInfo& info);
  void count_growth();
  void landed(const Landed& place);
  void watch_once(const Landed& place);
  void watch(Batcher& batcher);
  void say(const std::string& line);

  const Options& options_;
  const Console& console_;
  EdgeMetrics& metrics_;
  Loader loader_;  // of whoever holds:
  std::mutex loading_;
  const Console log_;  // what is said as lines of log
  CloudNotice notice_;
  RemotePool pool_;
  OwnTurns turns_;
  serve::SpareThreads spare_{64};  // for several texts of an answer at once
  std::atomic<bool> stopping_{false};
  DraftMemory draft_memory_;
  StageProgress progress_;
  Probe probe_;
  Answers answers_;
  Rescuer rescuer_;

  mutable std::mutex mutex_;  // of all below
  std::optional<Tokenizer> tokenizer_;
  std::optional<Sentences> sentences_;
  std::optional<ChatTemplate> chat_;
  std::optional<SplitWork::Shared> shared_;  // once it is loaded
  std::shared_ptr<PlacedModel> split_;
  std::optional<Placement> coming_;  // while it is being loaded
  wire::ModelInfo coming_info_;
  std::string last_receipt_;
  std::shared_ptr<PlacedModel> on_cloud_;  // as answers begin with it there, once they did
  bool follows_ = false;                   // answers begin where the weights are, or the cloud
  bool watched_ = false;                   // these
  std::optional<Landed> landed_;           // last
  std::string said_growth_;                // by the thread of the growth alone
  FetchCounts counted_;                    // of what came beside answers
  std::unique_ptr<Forecasts> forecasts_;   // once it is loaded
  std::optional<Arrival> arrival_;         // whoever loads
};

}  // namespace split::edge
