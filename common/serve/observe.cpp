#include "serve/observe.h"

#include <array>
#include <cstdio>
#include <map>

#include "base/figures.h"
#include "base/json.h"
#include "base/log.h"
#include "base/revision.h"
#include "wire/codes.h"

namespace split::serve {
namespace {

constexpr char kRequests[] = "split_http_requests_total";
constexpr char kRequestsHelp[] = "Requests answered, by route and status.";
constexpr char kSteps[] = "split_forward_duration_seconds";
constexpr char kStepsHelp[] = "Steps, by whether there are rows of a prompt or of a fill in them.";
constexpr char kRows[] = "split_tokens_total";
constexpr char kRowsHelp[] = "Rows computed.";
constexpr char kText[] = "text/plain; charset=utf-8";
constexpr char kNoRoute[] = "none";  // label of requests that reached no route

double seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// Writes an unknown path as a JSON string of at most 80 bytes. No line contains a session's id,
// which is a secret.
std::string quoted_path(std::string_view path) {
  constexpr size_t kMost = 80, kIdDigits = 32;
  std::string named;
  for (size_t at = 0; at < path.size() && named.size() <= kMost;) {
    const size_t end = std::min(path.find('/', at + 1), path.size());
    const std::string_view segment = path.substr(at, end - at);
    const bool is_id = segment.size() == kIdDigits + 1 &&
                       segment.find_first_not_of("0123456789abcdef", 1) == std::string_view::npos;
    named += is_id ? "/{id}" : segment;
    at = end;
  }
  std::string out = json_quote(named);
  for (size_t length = std::min(named.size(), kMost); out.size() > kMost;) {
    out = json_quote(cat(std::string_view(named).substr(0, --length), "..."));
  }
  return out;
}

// Writes the line of a request: "127.0.0.1 POST /v1/completions 200 0.041 s, 1.2 kB, key ann", or
// of an event.
std::string request_line(const http::Request& request, const http::Answered& answered) {
  const std::string route =
      answered.route.empty() ? quoted_path(request.path) : std::string(answered.route);
  if (log_format() == LogFormat::kJson) {
    return event_line("request", {{"request", request.id},
                                  {"trace", request.trace.id()},
                                  {"method", request.method},
                                  {"route", route},
                                  {"status", answered.status},
                                  {"ms", 1e3 * seconds(answered.took)},
                                  {"bytes_in", answered.bytes_in},
                                  {"bytes_out", answered.bytes_out},
                                  {"key", request.principal},
                                  {"peer", request.peer}});
  }
  std::array<char, 32> took{};
  std::snprintf(took.data(), took.size(), "%.3f s", seconds(answered.took));
  std::string line = cat(request.peer, " ", request.method, " ", route, " ", answered.status, " ",
                         took.data(), ", ", human_bytes(answered.bytes_out));
  if (!request.principal.empty()) line += cat(", key ", request.principal);
  if (request.trace) line += cat(", trace ", request.trace.id());
  return log_line("info", line);
}

bool is_news(const http::Answered& answered) {
  if (log_format() < LogFormat::kText) return false;
  const http::Route* const route = answered.matched;
  if (route == nullptr) return true;
  return !route->on_loop &&
         (log_format() == LogFormat::kJson || !route->frequent || answered.status >= 400);
}

std::string refused_line(const http::Refused& refused) {
  if (log_format() == LogFormat::kJson) {
    return event_line("refused", {{"request", refused.id},
                                  {"status", refused.status},
                                  {"code", refused.code},
                                  {"peer", refused.peer}});
  }
  return log_line("info", cat(refused.peer, " refused ", refused.status, " ", refused.code));
}

Counter& requests(Metrics& metrics, const std::string& route, int status) {
  return metrics.counter(kRequests, kRequestsHelp, {{"route", route}, {"code", cat(status)}});
}

}  // namespace

void observe(http::Router& router, Metrics& metrics, Observed program) {
  const Metrics::Labels build = {{"version", program.version},
                                 {"revision", std::string(source_revision())}};
  metrics.info(program.info,
               "What runs: version, revision of the source, and each model; always 1.",
               [build, models = std::move(program.models)] {
                 std::vector<Metrics::Labels> all = models();
                 if (all.empty()) all.push_back({{"model", ""}, {"profile", ""}});
                 for (Metrics::Labels& one : all)
                   one.insert(one.begin(), build.begin(), build.end());
                 return all;
               });
  add_process_metrics(metrics);
  const auto duration = [&metrics](const std::string& route) -> Histogram& {
    return metrics.histogram("split_http_request_duration_seconds",
                             "From a request's last byte to its answer's last byte.",
                             {{"route", route}});
  };
  // Made before the first request, so that rates have a start, and kept here, so that the server's
  // loop need not wait for a lock.
  std::map<const http::Route*, std::pair<Counter*, Histogram*>> known;
  for (const http::Route& route : router.routes()) {
    known[&route] = {&requests(metrics, route.path, route.statuses.front()), &duration(route.path)};
  }
  requests(metrics, kNoRoute, 404);
  router.add_observer([=, &metrics, write = std::move(program.write)](
                          const http::Request& request, const http::Answered& answered) {
    const std::string route(answered.route.empty() ? kNoRoute : answered.route);
    const auto at = known.find(answered.matched);
    const bool usual = at != known.end() && answered.status == at->first->statuses.front();
    (usual ? *at->second.first : requests(metrics, route, answered.status)).add();
    (at != known.end() ? *at->second.second : duration(route)).observe(seconds(answered.took));
    if (is_news(answered)) write(request_line(request, answered));
  });
}

void observe_server(http::Server& server, Metrics& metrics,
                    std::function<void(std::string_view)> write) {
  metrics.gauge("split_connections", "Open connections.",
                [&server] { return static_cast<double>(server.stats().connections); });
  metrics.gauge("split_requests_in_flight", "Requests that are being answered.",
                [&server] { return static_cast<double>(server.stats().inflight); });
  metrics.gauge("split_loop_longest_turn_seconds",
                "The longest time since the start in which the loop that hears all connections was "
                "at work on some.",
                [&server] { return seconds(server.stats().longest_turn); });
  metrics.gauge("split_loop_longest_turn_cpu_seconds",
                "The most processor time that this loop took at once since the start.",
                [&server] { return seconds(server.stats().longest_turn_work); });
  server.on_refused([&metrics, write = std::move(write)](const http::Refused& refused) {
    requests(metrics, kNoRoute, refused.status).add();
    if (log_format() >= LogFormat::kText) write(refused_line(refused));
  });
}

void observe_memory(Metrics& metrics, const MemoryBudget& budget) {
  metrics.gauge("split_memory_budget_bytes", "What requests may hold at once.",
                [&budget] { return static_cast<double>(budget.limit()); });
  metrics.gauge("split_memory_used_bytes", "What requests hold now.",
                [&budget] { return static_cast<double>(budget.used()); });
  metrics.counted("split_memory_refusals_total", "Requests refused for want of memory.",
                  [&budget] { return static_cast<double>(budget.refusals()); });
}

http::Route metrics_route(const Metrics& metrics) {
  return {.method = "GET",
          .path = "/metrics",
          .summary = "Returns the metrics, in Prometheus' text format.",
          .answers = "text/plain; version=0.0.4",
          .statuses = {200, 404},
          .on_loop = true,
          .handler = [&metrics](const http::Request&) {
            http::Response response = http::Response::text(200, metrics.text());
            response.content_type = "text/plain; version=0.0.4; charset=utf-8";
            response.headers.set("Cache-Control", "no-store");
            return response;
          }};
}

std::vector<http::Route> health_routes(std::function<Health()> health) {
  const auto in_json = [health](const http::Request&) {
    const Health now = health();
    if (now == Health::kReady) return http::Response::json(200, "{\"status\":\"ok\"}\n");
    if (now == Health::kDraining) {
      return http::error_response({503, wire::codes::kDraining, "this server takes no new texts"});
    }
    return http::error_response({503, "not_ready", "this server loads its model, or stops"});
  };
  return {{.method = "GET",
           .path = "/health",
           .summary = "Says whether the server is ready, as llama-server does.",
           .statuses = {200, 503},
           .access = http::Access::kOpen,
           .on_loop = true,
           .handler = in_json},
          {.method = "GET",
           .path = "/livez",
           .summary = "Answers 200 while the process runs (liveness).",
           .answers = kText,
           .access = http::Access::kOpen,
           .on_loop = true,
           .handler = [](const http::Request&) { return http::Response::text(200, "ok\n"); }},
          {.method = "GET",
           .path = "/readyz",
           .summary = "Answers 200 when the server is ready to compute, 404 while it drains, else "
                      "503 (readiness).",
           .answers = kText,
           .statuses = {200, 404, 503},
           .access = http::Access::kOpen,
           .on_loop = true,
           .handler = [health = std::move(health)](const http::Request&) {
             const Health now = health();
             if (now == Health::kReady) return http::Response::text(200, "ready\n");
             return now == Health::kDraining ? http::Response::text(404, "draining\n")
                                             : http::Response::text(503, "not ready\n");
           }}};
}

StepMetrics::OfPhase StepMetrics::of_phase(Metrics& metrics, Phase phase) {
  const Metrics::Labels labels = {{"phase", std::string(metric_name(phase))}};
  return {metrics.histogram(kSteps, kStepsHelp, labels), metrics.counter(kRows, kRowsHelp, labels)};
}

StepMetrics::StepMetrics(Metrics& metrics)
    : prompt_(of_phase(metrics, Phase::kPrompt)),
      generate_(of_phase(metrics, Phase::kGenerate)),
      layer_rows_(metrics.counter("split_layer_rows_total",
                                  "Rows computed times the layers that they went through.")),
      fill_rows_(metrics.counter("split_fill_rows_total",
                                 "Rows computed again for layers that lacked them.")),
      depths_(metrics.histogram("split_step_depths", "Points that the rows of a step went to.", {},
                                {1, 2, 3, 4, 8, 16})),
      step_rows_(metrics.histogram("split_step_rows", "Rows that a step computed together.", {},
                                   {1, 2, 4, 8, 16, 32, 64, 128, 256, 512})),
      sequences_(metrics.histogram("split_step_sequences", "Sequences that shared a step.", {},
                                   {1, 2, 4, 8, 16, 32, 64, 128, 256, 512})) {}

void StepMetrics::watch(Batcher& batcher) const {
  batcher.on_step([to = *this](const StepSeen& seen) {
    const bool many = seen.prompt_rows + seen.fill_rows > 0;
    (many ? to.prompt_ : to.generate_).seconds.observe(seen.ms / 1e3);
    to.prompt_.tokens.add(seen.prompt_rows);
    to.generate_.tokens.add(seen.generated_rows);
    to.layer_rows_.add(seen.layer_rows);
    to.fill_rows_.add(seen.fill_rows);
    to.depths_.observe(seen.depths);
    to.step_rows_.observe(seen.prompt_rows + seen.generated_rows + seen.fill_rows);
    to.sequences_.observe(seen.sequences);
  });
}

void observe_batcher(Metrics& metrics, std::function<std::shared_ptr<Batcher>()> present,
                     const Metrics::Labels& labels) {
  const auto gauge = [&](const char* name, const char* help, double (*value)(Batcher&)) {
    metrics.gauge(
        name, help,
        [present, value] {
          const std::shared_ptr<Batcher> batcher = present();
          return batcher ? value(*batcher) : 0.0;
        },
        labels);
  };
  gauge("split_kv_bytes", "Keys and values held, in whole pages, and states.",
        [](Batcher& batcher) { return static_cast<double>(batcher.shard().kept_bytes()); });
  gauge("split_kv_budget_bytes", "Keys and values, and states, that there is room for.",
        [](Batcher& batcher) { return static_cast<double>(batcher.shard().room_bytes()); });
  const auto counted = [&](const char* name, const char* help, uint64_t (*value)(PrefixCache&)) {
    metrics.counted(
        name, help,
        [present, value] {
          const std::shared_ptr<Batcher> batcher = present();
          PrefixCache* const prefixes = batcher ? batcher->prefixes() : nullptr;
          return prefixes != nullptr ? static_cast<double>(value(*prefixes)) : 0.0;
        },
        labels);
  };
  gauge(
      "split_prompt_cache_bytes",
      "Keys and values that the prompt cache alone holds, and snapshots of states; what texts need "
      "of them they get.",
      [](Batcher& batcher) {
        PrefixCache* const prefixes = batcher.prefixes();
        if (prefixes == nullptr || prefixes->pages() == 0) return 0.0;  // pages() drops old ones
        const Shard& shard = batcher.shard();
        return static_cast<double>(shard.page_bytes()) * batcher.pages().spare() +
               static_cast<double>(shard.state_bytes()) / 2 * batcher.pages().snapshots();
      });
  counted("split_prompt_cached_tokens_total", "Tokens of prompts that were not computed again.",
          [](PrefixCache& prefixes) { return prefixes.taken_rows(); });
  counted("split_prompt_cache_evicted_pages_total", "Pages of the prompt cache that gave way.",
          [](PrefixCache& prefixes) { return prefixes.evicted(); });
  gauge("split_queue_depth", "Jobs that wait for a step or are in one.",
        [](Batcher& batcher) { return static_cast<double>(batcher.depth()); });
}

}  // namespace split::serve
