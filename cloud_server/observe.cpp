// The cloud's own counters, beside those of any server (serve/observe.h).
#include "serve/observe.h"

#include "cloud_server/cloud.h"

namespace split::cloud {
namespace {

void observe_model(serve::Metrics& metrics, ServedModel& model) {
  Batcher& batcher = model.batcher();
  const serve::Metrics::Labels of_model = {{"model", model.id()}};
  const auto page_bytes = static_cast<double>(batcher.shard().page_bytes());
  metrics.gauge(
      "split_kv_bytes", "Keys and values held, in whole pages.",
      [&batcher, page_bytes] { return page_bytes * batcher.pages().in_use(); }, of_model);
  metrics.gauge(
      "split_kv_budget_bytes", "Keys and values that there is room for.",
      [&batcher, page_bytes] { return page_bytes * batcher.pages().total(); }, of_model);
  metrics.gauge(
      "split_queue_depth", "Jobs that wait for a step or are in one.",
      [&batcher] { return static_cast<double>(batcher.depth()); }, of_model);

  struct Phase {
    serve::Histogram& seconds;
    serve::Counter& tokens;
  };
  const auto phase = [&metrics](const char* name) {
    return Phase{metrics.histogram("split_forward_duration_seconds",
                                   "Steps, by whether there are rows of a prompt in them.",
                                   {{"phase", name}}),
                 metrics.counter("split_tokens_total", "Rows computed.", {{"phase", name}})};
  };
  batcher.on_step([prefill = phase("prefill"), decode = phase("decode")](const StepSeen& seen) {
    (seen.prompt_rows > 0 ? prefill : decode).seconds.observe(seen.ms / 1e3);
    prefill.tokens.add(seen.prompt_rows);
    decode.tokens.add(seen.generated_rows);
  });
}

}  // namespace

void observe(http::Server& server, Cloud& cloud) {
  serve::Metrics& metrics = cloud.metrics;
  serve::observe(server, metrics, cloud.version);
  metrics.gauge("split_sessions", "Open sessions.",
                [&cloud] { return static_cast<double>(cloud.sessions.size()); });
  metrics.counted("split_sessions_evicted_total", "Idle sessions that gave way to others.",
                  [&cloud] { return static_cast<double>(cloud.sessions.evicted()); });
  for (auto& model : cloud.models) observe_model(metrics, *model);
  serve::Counter& weights =
      metrics.counter("split_shard_bytes_total", "Bytes of weights sent, heads of answers too.");
  server.add_observer([&weights](const http::Request&, const http::Answered& answered) {
    if (answered.route == "/v1/blobs/sha256/{hash}" ||
        answered.route == "/v1/models/{id}/stages/{stage}") {
      weights.add(answered.bytes_out);
    }
  });
  if (cloud.metrics_for == Cloud::MetricsFor::kNobody) {
    server.route("GET", "/metrics", [](const http::Request&) -> http::Response {
      throw http::HttpError(404, "not_found", "there is nothing at this path with --metrics off");
    });
    return;
  }
  const bool open = cloud.metrics_for == Cloud::MetricsFor::kAnybody;
  serve::add_metrics_route(server, metrics, open ? http::Access::kOpen : http::Access::kGuarded);
}

}  // namespace split::cloud
