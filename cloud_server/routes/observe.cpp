// The cloud's own counters, beside a server's common ones (serve/observe.h).
#include "serve/observe.h"

#include "base/log.h"
#include "cloud_server/routes/routes.h"
#include "wire/codes.h"

namespace split::cloud {

void observe(http::Server& server, Cloud& cloud) {
  serve::Metrics& metrics = cloud.metrics;
  serve::observe(server.router(), metrics,
                 {"split_build_info", cloud.version,
                  [&cloud] {
                    std::vector<serve::Metrics::Labels> all;
                    if (!cloud.opened) return all;
                    for (const auto& model : cloud.models) {
                      all.push_back({{"model", model->id()},
                                     {"profile", std::string(profile_name(model->profile()))}});
                    }
                    return all;
                  },
                  write_log});
  serve::observe_server(server, metrics, write_log);
  const serve::StepMetrics from_the_start(metrics);
  serve::observe_memory(metrics, cloud.memory);
  metrics.gauge("split_sessions", "Open sessions.",
                [&cloud] { return static_cast<double>(cloud.sessions.size()); });
  metrics.counted("split_sessions_evicted_total", "Idle sessions that gave way to others.",
                  [&cloud] { return static_cast<double>(cloud.sessions.evicted()); });
  serve::Counter& weights =
      metrics.counter("split_shard_bytes_total", "Bytes of weights sent, heads of answers too.");
  server.router().add_observer([&weights](const http::Request&, const http::Answered& answered) {
    if (answered.route == kBlobRoute || answered.route == kStageRoute) {
      weights.add(answered.bytes_out);
    }
  });
}

void observe_models(Cloud& cloud) {
  const serve::StepMetrics steps(cloud.metrics);
  for (auto& model : cloud.models) {
    steps.watch(model->batcher());
    // The model owns the batcher, and outlives the metrics' readers.
    std::shared_ptr<Batcher> batcher(std::shared_ptr<void>(), &model->batcher());
    cloud.metrics.gauge(
        "split_busy_ratio", "The part of the last 5 s in which a step ran: 1 is all it can do.",
        [&model = *model] { return model.load_now().busy; }, {{"model", model->id()}});
    cloud.metrics.gauge("split_load_ratio",
                        "The pressure on it: above 1 its sessions are asked to take layers, below "
                        "0.7 they may give them back.",
                        [&model = *model] { return model.cut_requests().pressure(); },
                        {{"model", model->id()}});
    cloud.metrics.gauge(
        "split_load_price", "What edges are told that a row costs beyond its work: from 0 to 1.",
        [&model = *model] { return model.cut_requests().told().price; }, {{"model", model->id()}});
    cloud.metrics.counted("split_replayed_rows_total",
                          "Rows computed that a session had which was lost.",
                          [&model = *model] { return static_cast<double>(model.replayed_rows()); },
                          {{"model", model->id()}});
    cloud.metrics.counted("split_sessions_moved_total",
                          "Sessions that began with the rows of one that was lost.",
                          [&model = *model] { return static_cast<double>(model.moved_sessions()); },
                          {{"model", model->id()}});
    cloud.metrics.gauge("split_sequences_waiting", "Jobs that wait for a step.",
                        [batcher] { return static_cast<double>(batcher->waiting()); },
                        {{"model", model->id()}});
    cloud.metrics.gauge(
        "split_sequences_running", "Sequences that had a row in a step of the last second.",
        [batcher] { return static_cast<double>(batcher->running()); }, {{"model", model->id()}});
    cloud.metrics.gauge("split_kv_usage_ratio",
                        "The part of the pages for keys and values that sequences hold.",
                        [&model = *model] { return model.kv_usage(); }, {{"model", model->id()}});
    serve::observe_batcher(cloud.metrics, [batcher] { return batcher; }, {{"model", model->id()}});
  }
}

Routes observed_routes(Cloud& cloud) {
  http::Route route = serve::metrics_route(cloud.metrics);
  if (cloud.metrics_for == Cloud::MetricsFor::kAnybody) route.access = http::Access::kOpen;
  if (cloud.metrics_for == Cloud::MetricsFor::kNobody) {
    route.handler = [](const http::Request&) -> http::Response {
      throw http::HttpError(404, wire::codes::kNotFound,
                            "there is nothing at this path with --metrics off");
    };
  }
  return {std::move(route)};
}

}  // namespace split::cloud
