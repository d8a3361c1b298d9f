#include "serve/observe.h"

#include "base/log.h"

namespace split::serve {
namespace {

constexpr char kRequests[] = "split_http_requests_total";
constexpr char kRequestsHelp[] = "Requests answered, by route and status.";
constexpr char kNoRoute[] = "none";  // nothing is there, or the request never reached a route

double seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

void observe(http::Server& server, Metrics& metrics, const std::string& version) {
  metrics.gauge("split_build_info", "The version of this program; always 1.", [] { return 1.0; },
                {{"version", version}});
  metrics.gauge("split_connections", "Open connections.",
                [&server] { return static_cast<double>(server.stats().connections); });
  add_process_metrics(metrics);
  server.add_observer([&metrics](const http::Request& request, const http::Answered& answered) {
    const std::string route(answered.route.empty() ? kNoRoute : answered.route);
    metrics.counter(kRequests, kRequestsHelp, {{"route", route}, {"code", cat(answered.status)}})
        .add();
    metrics
        .histogram("split_http_request_duration_seconds",
                   "From a request's last byte to its answer's last byte.", {{"route", route}})
        .observe(seconds(answered.took));
    log_event("request", {{"request", request.id},
                          {"method", request.method},
                          {"route", route},
                          {"status", answered.status},
                          {"ms", 1e3 * seconds(answered.took)},
                          {"bytes_in", answered.bytes_in},
                          {"bytes_out", answered.bytes_out},
                          {"peer", request.peer}});
  });
  server.on_refused([&metrics](const http::Refused& refused) {
    metrics.counter(kRequests, kRequestsHelp, {{"route", kNoRoute}, {"code", cat(refused.status)}})
        .add();
    log_event("refused", {{"request", refused.id},
                          {"status", refused.status},
                          {"code", refused.code},
                          {"peer", refused.peer}});
  });
}

void add_metrics_route(http::Server& server, const Metrics& metrics, http::Access access) {
  server.route(
      "GET", "/metrics",
      [&metrics](const http::Request&) {
        http::Response response = http::Response::text(200, metrics.text());
        response.content_type = "text/plain; version=0.0.4; charset=utf-8";
        response.headers.set("Cache-Control", "no-store");
        return response;
      },
      access);
}

}  // namespace split::serve
