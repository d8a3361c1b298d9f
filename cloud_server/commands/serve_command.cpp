#include "cloud_server/commands/serve_command.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <functional>
#include <mutex>
#include <thread>

#include "base/figures.h"
#include "base/log.h"
#include "base/plain_words.h"
#include "base/resources/granted.h"
#include "base/resources/threads.h"
#include "base/revision.h"
#include "cloud_server/commands/model_path.h"
#include "cloud_server/routes/routes.h"
#include "http/network.h"
#include "http/server/local_guard.h"
#include "program/exit_codes.h"
#include "program/interrupt.h"
#include "program/lost_pages.h"

#ifndef SPLIT_VERSION
#define SPLIT_VERSION "unknown"
#endif

namespace split::cloud {
namespace {

// Raises the limit of connections to what the system allows: shells give 1,024.
void allow_connections() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

void load_model(Cloud& cloud, const Options& options, const std::string& argument) {
  const ModelOptions wanted = model_options(options, argument);
  expect_model(wanted.path);
  auto model = std::make_unique<ServedModel>(wanted);
  for (const auto& other : cloud.models) {
    if (other->id() == model->id()) {
      throw Error(ErrorKind::kInput, "--model: two models have the id '" + model->id() + "'");
    }
  }
  if (cloud.models.empty()) {
    log_info(cat("cloud_server " SPLIT_VERSION " (", source_revision(), ") starts"));
  }
  log_info(
      cat("model ", model->id(), ": ", model->config().layers, " blocks of ",
          model->config().channels, ", in ",
          format_name(own_format(model->checkpoint(), model->model(), model->model().stages()[1])),
          ", profile ", profile_name(model->profile()), ", on ", model->device().name()));
  if (!model->context_bound().empty()) log_info(model->context_bound());
  cloud.models.push_back(std::move(model));
}

void configure(Cloud& cloud, const Options& options) {
  cloud.version = SPLIT_VERSION;
  cloud.legacy_routes = options.legacy_routes;
  if (options.metrics == "open") cloud.metrics_for = Cloud::MetricsFor::kAnybody;
  if (options.metrics == "off") cloud.metrics_for = Cloud::MetricsFor::kNobody;
  cloud.blob_url = options.blob_url;
  cloud.app = options.app == "on";
  const auto price = [](float told) -> std::optional<double> {
    if (told < 0) return std::nullopt;
    return std::round(double{told} * 1e6) / 1e6;  // the typed decimal
  };
  cloud.slo_ms = options.slo_ms;
  cloud.price_hour = price(options.price_hour);
  cloud.price_egress_gb = price(options.price_egress);
  if (!options.api_key_file.empty()) cloud.keys = serve::ApiKeys::read(options.api_key_file);
}

void load_models(Cloud& cloud, const Options& options) {
  for (const std::string& argument : options.models) load_model(cloud, options, argument);
  if (options.blob_cache.empty()) {
    log_warning(
        "neither XDG_CACHE_HOME nor HOME is set: converted weights are kept in memory "
        "(--blob-cache DIR)");
  }
  uint64_t kv = 0;
  for (const auto& model : cloud.models) kv += model->kv_budget();
  cloud.memory.set_limit(options.memory_budget > 0 ? options.memory_budget
                                                   : memory_left_for_requests(kv));
  log_info(cat("memory: ", human_bytes(cloud.memory.limit()), " for requests, ", human_bytes(kv),
               " for keys and values, of ", human_bytes(granted_memory())));
  open_models(cloud);
}

// Runs every shape once, so that the first request finds everything loaded; then measures costs for
// edges.
void warm_up(Cloud& cloud, const Interrupt& interrupt, const std::string& url) {
  try {
    for (auto& model : cloud.models) model->warm_up();
    if (interrupt.signal() == 0) {
      cloud.ready = true;
      log_info(cat("ready at ", url, "; try: curl '", url, "/'"));
    }
    for (auto& model : cloud.models) {
      if (interrupt.signal() == 0) model->measure();
    }
  } catch (const std::exception& error) {
    log_error(plain_words(error.what()));
  }
}

// Ends a draining server once nobody's text runs any more or its time is over, with the signal of a
// second Ctrl-C, so that requests in flight still have their time to end.
void end_drained(const Cloud& cloud, const http::Server& server, Interrupt& interrupt,
                 std::chrono::seconds timeout) {
  constexpr std::chrono::milliseconds kLook{100};
  const auto end = std::chrono::steady_clock::now() + timeout;
  while (interrupt.wait(kLook)) {
    const bool done = server.stats().inflight == 0 && cloud.is_drained();
    if (!done && std::chrono::steady_clock::now() < end) continue;
    log_info(cat(done ? "drained" : "the time to drain is over", ": ", cloud.sessions.size(),
                 " sessions are left"));
    ::kill(::getpid(), SIGTERM);
    return;
  }
}

// Reads keys and certificates again; wrong ones change nothing.
void reload(const Options& options, Cloud& cloud, http::Server& server) {
  try {
    if (!options.api_key_file.empty()) {
      cloud.renew_keys(serve::ApiKeys::read(options.api_key_file));
    }
    server.renew_tls();
    log_info(cat("SIGHUP: ", options.api_key_file.empty() && options.tls_cert.empty()
                                 ? "there are no keys or certificates to read again"
                                 : "keys and certificates were read again"));
  } catch (const Error& error) {
    log_error(cat("SIGHUP: nothing has changed: ", plain_words(error.what())));
  }
}

// The work of a signal, which may come before the server exists.
class Reloading {
 public:
  void set(std::function<void()> call) {
    const std::lock_guard lock(mutex_);
    call_ = std::move(call);
  }
  void operator()() {
    const std::lock_guard lock(mutex_);
    if (call_) call_();
  }

 private:
  std::mutex mutex_;
  std::function<void()> call_;
};

}  // namespace

int serve_command(Options options) {
  keep_little_free_memory();
  allow_connections();
  if (options.log_format == "json") {
    end_on_lost_pages("{\"level\":\"error\",\"message\":\"", "\"}");
  }
  complete_options(options);

  Interrupt interrupt;
  Reloading reloading;
  const SignalWatch watch(interrupt, std::chrono::seconds(options.shutdown_timeout),
                          [&reloading] { reloading(); });
  ::signal(SIGPIPE, SIG_IGN);

  Cloud cloud;
  configure(cloud, options);
  http::Server::Options server_flags = server_options(options);
  server_flags.memory = &cloud.memory;
  http::Server server(server_flags);
  const int port = server.bind();  // before weights are read, so that a taken port is noticed

  set_log_format(options.log_format == "json" ? LogFormat::kJson : LogFormat::kText);
  const Interrupt::Hook stop(interrupt, [&] {
    cloud.ready = false;
    log_info(cat("stopping: ", server.stats().inflight, " requests in flight have ",
                 options.shutdown_timeout, " s to end"));
    server.stop();
  });
  std::jthread drain;
  const Interrupt::Diversion drains(interrupt, [&](int signal) {
    if (options.drain_timeout == 0 || signal != SIGTERM || !cloud.ready || cloud.drains()) {
      return false;
    }
    try {
      drain = started<std::jthread>([&] {
        end_drained(cloud, server, interrupt, std::chrono::seconds(options.drain_timeout));
      });
    } catch (const Error&) {  // without a thread: it stops as without the flag
      return false;
    }
    cloud.drains_since = cloud.clock();
    log_info(cat("draining: ", cloud.sessions.size(), " sessions have ", options.drain_timeout,
                 " s to end; a second signal stops it"));
    return true;
  });
  reloading.set([&] { reload(options, cloud, server); });
  const std::shared_ptr<void> no_reloading(nullptr, [&](void*) { reloading.set({}); });
  add_routes(server, cloud);
  const bool local = http::is_loopback(options.host), tls = !options.tls_cert.empty();
  const std::string url = http::origin_of(tls, options.host, port);
  if (cloud.keys.empty() && (local || !options.allowed_hosts.empty())) {
    server.router().set_guard(http::local_guard(options.allowed_hosts, options.cors_origins));
  }
  if (!cloud.keys.empty() && !tls && !local) {
    log_warning(
        "keys and texts travel in the clear: --tls-cert and --tls-key, or a proxy with TLS");
  }
  // Loads beside the server, which reports meanwhile that it lives.
  std::exception_ptr failure;
  std::jthread loading = started<std::jthread>([&] {
    try {
      load_models(cloud, options);
      log_info(cat("listening on ", url, local ? " (this machine only; --host to change)" : ""));
    } catch (...) {
      failure = std::current_exception();
      server.stop();
      return;
    }
    warm_up(cloud, interrupt, url);
  });
  server.run();
  loading.join();
  if (failure) {
    if (log_format() == LogFormat::kText) set_log_format(LogFormat::kPlain);
    std::rethrow_exception(failure);
  }
  log_info("stopped");
  return exit_code_of_signal(interrupt.signal());
}

}  // namespace split::cloud
