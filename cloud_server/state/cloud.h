// Everything that a cloud serves: its models, their sessions, and what limits them. Knows no route.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "base/resources/memory_budget.h"
#include "cloud_server/state/served_model.h"
#include "http/server/server.h"
#include "run/sessions.h"
#include "serve/api_keys.h"
#include "serve/metrics.h"
#include "serve/text_backend.h"

namespace split::cloud {

struct Cloud {
  MemoryBudget memory;  // of what requests hold
  std::vector<std::unique_ptr<ServedModel>> models;
  Sessions sessions{1 << 16};
  std::atomic<bool> opened{false};  // the models may be used
  std::atomic<bool> ready{false};
  // The time at which it was told to drain: it keeps the sessions that it has, and takes no new
  // ones or texts.
  std::atomic<CutRequests::Time> drains_since{CutRequests::Time::max()};
  std::string version;
  bool legacy_routes = false;     // the original web page's are answered
  bool app = true;                // the edge for browsers is at /app/
  serve::SpareThreads spare{64};  // for several texts of an answer at once
  std::string blob_url;           // where edges get blobs (wire::ModelInfo); empty: here
  // Dollars for an hour of this machine and for 10^9 bytes that leave it, as told to edges that
  // plan.
  std::optional<double> price_hour, price_egress_gb;
  double slo_ms = 50;  // that a token may wait for its step, 99 of 100 times
  std::function<CutRequests::Time()> clock = std::chrono::steady_clock::now;  // of the load
  serve::ApiKeys keys;  // none: anybody may ask
  serve::Metrics metrics;
  enum class MetricsFor { kGuarded, kAnybody, kNobody } metrics_for = MetricsFor::kGuarded;

  bool drains() const { return drains_since.load() != CutRequests::Time::max(); }
  // Throws HttpError 503 `draining`: for what begins a text or a session.
  void expect_no_drain() const;
  // Whether a server that drains had nobody's step for Wishes::kIdle: not since it was told to,
  // either, so that whoever routes to it has heard of that.
  bool is_drained() const;

  // The model of this id; "" is the first. Throws HttpError 404 `model_not_found`.
  ServedModel& find(const std::string& id);
  std::vector<std::string> ids() const;
  // Takes these keys; nothing is kept of those that are gone.
  void renew_keys(const serve::ApiKeys& renewed);
};

}  // namespace split::cloud
