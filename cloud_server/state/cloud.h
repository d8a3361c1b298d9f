// Everything that a cloud serves: its models, their sessions, and their limits. Knows no route.
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
  MemoryBudget memory;  // held by requests
  std::vector<std::unique_ptr<ServedModel>> models;
  Sessions sessions{1 << 16};
  std::atomic<bool> opened{false};  // models may be used
  std::atomic<bool> ready{false};
  // When draining began: existing sessions go on, new sessions and texts are refused.
  std::atomic<CutRequests::Time> drains_since{CutRequests::Time::max()};
  std::string version;
  bool legacy_routes = false;     // answers the original web page
  bool app = true;                // serves the edge for browsers at /app/
  serve::SpareThreads spare{64};  // used for several texts of an answer at once
  serve::Audits audits;           // receipts of answers, and their rows
  std::string blob_url;  // URL for edges to download blobs from (wire::ModelInfo); empty: here
  // Dollars for an hour of this machine and for 10^9 bytes sent from it, as reported to edges.
  std::optional<double> price_hour, price_egress_gb;
  double slo_ms = 50;  // p99 target of a token's queueing delay
  std::function<CutRequests::Time()> clock = std::chrono::steady_clock::now;  // the load's
  serve::ApiKeys keys;  // empty: no key is needed
  serve::Metrics metrics;
  enum class MetricsFor { kGuarded, kAnybody, kNobody } metrics_for = MetricsFor::kGuarded;

  bool drains() const { return drains_since.load() != CutRequests::Time::max(); }
  // Throws HttpError 503 `draining`, for requests that begin a text or a session.
  void expect_no_drain() const;
  // Whether a draining server had no step for CutRequests::kIdle, counted from the beginning of the
  // drain at the earliest, so that routers have noticed it.
  bool is_drained() const;

  // Returns the model of this id; "" is the first. Throws HttpError 404 `model_not_found`.
  ServedModel& find(const std::string& id);
  std::vector<std::string> ids() const;
  // Replaces the keys; drops what was kept for removed ones.
  void renew_keys(const serve::ApiKeys& renewed);
};

}  // namespace split::cloud
