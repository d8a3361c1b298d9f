// What a server tells whoever runs it: counters of its requests on GET /metrics, and with
// --log-format json a line of log for each. Once for both programs.
#pragma once

#include "http/server.h"
#include "serve/metrics.h"

namespace split::serve {

// split_build_info, split_http_requests_total{route,code}, split_http_request_duration_seconds
// {route}, split_connections, process_*; and a line of log for each request (base/log.h). Both
// outlive the server. Before run().
void observe(http::Server& server, Metrics& metrics, const std::string& version);

// GET /metrics.
void add_metrics_route(http::Server& server, const Metrics& metrics,
                       http::Access access = http::Access::kGuarded);

}  // namespace split::serve
