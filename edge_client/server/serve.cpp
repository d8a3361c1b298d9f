#include "edge_client/server/serve.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <thread>

#include "base/log.h"
#include "base/resources/granted.h"
#include "base/resources/threads.h"
#include "base/revision.h"
#include "edge_client/server/page.h"
#include "edge_client/server/routes.h"
#include "http/network.h"
#include "http/server/local_guard.h"
#include "http/server/server.h"
#include "serve/observe.h"

namespace split::edge {
namespace {

http::Server::Options server_options(const Options& options, MemoryBudget& memory) {
  http::Server::Options server;
  server.host = options.host;
  server.port = options.port;
  server.memory = &memory;
  server.cors_origins = options.cors_origins;
  server.max_connections = 512;  // enough for a person's machine
  server.max_inflight = 128;
  server.shutdown_timeout = SignalWatch::kPatience;
  server.begin_traces = true;  // the cloud's log then names the same request as this one's
  // A step runs on its caller's stack, drivers' compilers included.
  server.worker_stack_bytes = 1 << 20;
  return server;
}

// The route of the page's stop button. Holds the process by a descriptor, as its number may be
// reused, and answers no page but this one, even if other origins are allowed.
http::Route stop_route(int pid) {
  const int process = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  if (process < 0) {
    throw Error(ErrorKind::kInput, cat("--stops-cloud ", pid, ": ", std::strerror(errno)));
  }
  const std::shared_ptr<void> held(nullptr, [process](void*) { ::close(process); });
  return {.method = "POST",
          .path = "/split/stop-cloud",
          .summary = "Kills the cloud's process, as the page's button does: with --stops-cloud.",
          .handler = [process, held](const http::Request& request) {
            const auto origin = request.headers.get("Origin"), host = request.headers.get("Host");
            if (!origin || !host || *origin != cat("http://", *host)) {
              throw http::HttpError(403, "not_own_page", "this server's own page alone may ask");
            }
            ::syscall(SYS_pidfd_send_signal, process, SIGKILL, nullptr, 0);  // fails if it has
                                                                             // ended
            return http::Response::json(200, "{}\n");
          }};
}

}  // namespace

void serve_until_interrupted(const Options& options, const World& world, Interrupt& interrupt) {
  set_log_format(options.log_format == "json" ? LogFormat::kJson : LogFormat::kText);
  Placements placements(options, world.console, world.environment, interrupt);
  keep_little_free_memory();
  MemoryBudget memory;
  http::Server server(server_options(options, memory));
  const int port = server.bind();  // before downloads, so that a taken port is noticed
  std::vector<http::Route> routes = page_routes();
  if (options.stops_cloud > 0) routes.push_back(stop_route(options.stops_cloud));
  add_routes(server.router(), placements, std::move(routes));
  serve::observe_memory(placements.metrics().metrics, memory);
  if (http::is_loopback(options.host) || !options.allowed_hosts.empty()) {
    server.router().set_guard(http::local_guard(options.allowed_hosts, options.cors_origins));
  }
  const auto write = [&](std::string_view line) { placements.present()->write_log(line); };
  const auto say = [&](const std::string& line) { write(log_line("info", line)); };
  serve::observe_server(server, placements.metrics().metrics, write);
  say(cat("edge_client " SPLIT_VERSION " (", source_revision(), ") starts"));
  const std::string url = http::origin_of(false, options.host, port);
  say(cat("listening on ", url, http::is_loopback(options.host) ? " (this machine only)" : ""));
  say(cat("the page is ", url, "/, OpenAI's clients ask ", url, "/v1"));
  std::exception_ptr failure;
  std::thread loading = started([&] {
    try {
      placements.load();
      memory.set_limit(options.memory_budget > 0 ? options.memory_budget
                                                 : memory_left_for_requests(options.kv_budget));
      say(placements.present()->engine().plan());
      if (const auto ids = placements.present()->ids(); ids.size() > 1) {
        say(cat(ids[0], " answers with the tail ", shown(options.tail), "; ", ids[1],
                " is the cloud's alone"));
      }
      say("ready");
    } catch (...) {
      failure = std::current_exception();
      server.stop();
    }
  });
  {
    const std::shared_ptr<void> join(nullptr, [&](void*) { loading.join(); });
    const Interrupt::Hook stop(interrupt, [&] {
      say(cat("stopping: ", server.stats().inflight, " requests in flight have ",
              SignalWatch::kPatience.count(), " s to end"));
      placements.stop();
      server.stop();
    });
    server.run();
  }
  if (failure) std::rethrow_exception(failure);
  say("stopped");
}

}  // namespace split::edge
