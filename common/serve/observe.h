// Reports to a server's operator: counts of requests on GET /metrics, a line of log for each
// notable one, figures of steps, and health. Once for both programs.
#pragma once

#include <functional>
#include <memory>

#include "http/server/server.h"
#include "run/batcher.h"
#include "serve/metrics.h"

namespace split::serve {

// The program that is observed.
struct Observed {
  const char* info;  // the metric that describes it: split_build_info
  std::string version;
  // The labels `model` and `profile` of each model; empty while there are none.
  std::function<std::vector<Metrics::Labels>()> models;
  std::function<void(std::string_view line)> write;  // a line of log, with its line feed
};

// Adds the info, split_http_requests_total{route,code}, split_http_request_duration_seconds
// {route}, process_*; and a line of log for each request (base/log.h), except on the loop's own
// routes for health, and in kText on frequent ones that succeed. All outlive the router, which has
// its routes already.
void observe(http::Router& router, Metrics& metrics, Observed program);
// Adds, for a server before run(), split_connections, split_requests_in_flight, and a line and a
// count for each request refused before any route.
void observe_server(http::Server& server, Metrics& metrics,
                    std::function<void(std::string_view)> write);

// split_memory_budget_bytes, split_memory_used_bytes and split_memory_refusals_total.
void observe_memory(Metrics& metrics, const MemoryBudget& budget);

http::Route metrics_route(const Metrics& metrics);  // GET /metrics

enum class Health : uint8_t { kNotReady, kReady, kDraining };
// GET /livez, and GET /readyz: 503 until it is ready, 404 while it drains, so that a balancer sends
// no new sessions; GET /health in llama-server's shape. For supervisors and balancers, without a
// key.
std::vector<http::Route> health_routes(std::function<Health()> health);

// split_forward_duration_seconds{phase}, split_tokens_total{phase}, split_layer_rows_total,
// split_fill_rows_total, split_step_depths, split_step_rows and split_step_sequences, summed over
// the watched batchers.
class StepMetrics {
 public:
  explicit StepMetrics(Metrics& metrics);
  // Call before the batcher's first step; the metrics outlive it.
  void watch(Batcher& batcher) const;

 private:
  struct OfPhase {
    Histogram& seconds;
    Counter& tokens;
  };
  static OfPhase of_phase(Metrics& metrics, Phase phase);

  OfPhase prompt_, generate_;
  Counter& layer_rows_;
  Counter& fill_rows_;
  Histogram &depths_, &step_rows_, &sequences_;
};

// Adds split_kv_bytes, split_kv_budget_bytes and split_queue_depth for the batcher that `present`
// returns, or null.
void observe_batcher(Metrics& metrics, std::function<std::shared_ptr<Batcher>()> present,
                     const Metrics::Labels& labels = {});

}  // namespace split::serve
