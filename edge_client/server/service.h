// An engine as a server, without its routes: its models, texts and state for HTTP, and its events
// as log lines and metrics. Knows no path of a URL.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>

#include "edge_client/engine/engine.h"
#include "edge_client/options/options.h"
#include "edge_client/server/cloud_notice.h"
#include "edge_client/server/health_check.h"
#include "edge_client/server/observe.h"
#include "edge_client/split/lock_order.h"
#include "serve/chat.h"
#include "serve/compat/ollama.h"
#include "serve/compat/props.h"

namespace split::edge {

// Any thread, but load().
class Service : public std::enable_shared_from_this<Service>, private EngineObserver {
 public:
  // The arguments outlive it. Throws Error(kInput) for a bad URL.
  Service(const Options& options, PlacementRequest request, const Console& console,
          const Flags::Environment& environment, Interrupt& interrupt, EdgeMetrics& metrics);

  void load() { engine_.load(); }  // as Engine::load
  bool ready() const { return !stopping_ && engine_.loaded() != nullptr; }
  void stop() { stopping_ = true; }  // ends ready()
  const Engine& engine() const { return engine_; }
  const Options& options() const { return options_; }
  const PlacementRequest& request() const { return request_; }

  // The models' ids; with a fine-tuned tail, the model with it, and the base, which runs on the
  // cloud alone. Throws HttpError 503 `loading`, as the others do.
  std::vector<std::string> ids() const;
  // Returns the model of this id, or the first one. Throws 404 `model_not_found` too. Its texts
  // keep the service alive. `owner`: the tenant (EngineRequest).
  serve::TextModel find(const std::string& id, const std::string& owner = {});
  // Returns the same model with everything on the cloud.
  serve::TextModel unsplit(const std::string& id);
  // Returns a model that generates texts. Throws HttpError 400 `no_head` too. With `opens`, before
  // it is loaded, the model may take only texts that begin by their words.
  serve::TextModel find_writer(const std::string& id, const std::string& owner = {},
                               bool opens = false);
  // Answers POST /v1/audit.
  http::Response audit(const http::Request& request, const std::string& owner);
  serve::Props props();                             // throws as find()
  std::vector<serve::OllamaModel> ollama_models();  // the models of ids(); throws as find()
  // Moves the cut, or without one lets it be chosen as weights come. Throws as Engine's move_cut()
  // and choose_cut(), and HttpError.
  void place(std::optional<Cut> cut, bool running = false);

  // Writes a line of log, unless quiet.
  void write_log(std::string_view line) const;
  // Labels of split_edge_build_info and of split_edge_placement_info; empty before the model is
  // loaded.
  std::vector<serve::Metrics::Labels> served() const;
  std::vector<serve::Metrics::Labels> placed() const;
  std::string id() const;  // the model's, once it is loaded
  std::shared_ptr<Batcher> batcher() const;
  // JSON (status.h). `devices`: the ones that can be requested.
  std::string status(const std::vector<std::string>& devices);

 private:
  std::shared_ptr<PlacedModel> expect_model(const std::string& id);
  serve::AuditedModel audited(const std::string& owner);
  // With --any-model accepts a name that is none of `ids`, and says so once for each; else throws.
  void stand_in(const std::string& id, std::span<const std::string> ids);
  void waiting(const RemoteError& error) override;
  void found(bool again) override;
  void retried(const RemoteError& error) override { metrics_.retried(error); }
  void noted(const std::string& line) override;
  ProgressTo progress() const override;
  void said(const std::string& line) override;
  void moved(const Move&, const std::string& words) override {
    if (!words.empty()) said(words);
  }
  void grew(const GrowthNote& note) override;
  void loaded(const FetchCounts& fetched) override { metrics_.loaded(fetched); }
  void runs_on(Batcher& batcher) override { metrics_.steps.watch(batcher); }
  void token(const SplitCounts& before, const SplitCounts& now, double seconds,
             bool first) override;
  void ended(const Receipt& receipt, std::optional<double> error) override;

  const Options& options_;
  const PlacementRequest request_;
  const Console& console_;
  EdgeMetrics& metrics_;
  const Console log_;  // prints as lines of log
  CloudNotice notice_;
  serve::SpareThreads spare_{64};  // for several texts of an answer at once
  serve::Audits audits_;
  std::atomic<bool> stopping_{false};
  HealthCheck health_;
  std::string said_growth_;           // used by the growing thread alone
  Mutex mutex_{LockOrder::kService};  // guards the members below
  std::string last_receipt_;
  std::set<std::string> stood_in_;  // names already reported
  Engine engine_;
};

}  // namespace split::edge
