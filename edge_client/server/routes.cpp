#include "edge_client/server/serve.h"

#include <thread>

#include "base/log.h"
#include "base/resources/granted.h"
#include "base/resources/threads.h"
#include "base/revision.h"
#include "edge_client/server/page.h"
#include "http/network.h"
#include "http/server/local_guard.h"
#include "serve/compat/responses.h"
#include "serve/completions.h"
#include "serve/embeddings.h"
#include "serve/models.h"
#include "serve/observe.h"
#include "serve/openapi.h"
#include "serve/tokens.h"
#include "wire/fields.h"

namespace split::edge {
namespace {

using http::Request;
using http::Response;

http::Server::Options server_options(const Options& options, MemoryBudget& memory) {
  http::Server::Options server;
  server.host = options.host;
  server.port = options.port;
  server.memory = &memory;
  server.cors_origins = options.cors_origins;
  server.max_connections = 512;  // of a person's machine
  server.max_inflight = 128;
  server.shutdown_timeout = SignalWatch::kPatience;
  server.begin_traces = true;  // so that the cloud's log names the same request as this one's
  // A step runs on its caller's stack, drivers' compilers included.
  server.worker_stack_bytes = 1 << 20;
  return server;
}

// Nothing says how big a model may be here: the service knows how many blocks its own has.
constexpr int kMostBlocks = 1024;

// A number of blocks, or Move::kCloud for the whole model; `chosen` where it is "auto".
int read_cut(wire::Fields& fields, bool* chosen) {
  const auto is = [&](const char* word) { return fields.has("cut") && fields.raw("cut") == word; };
  *chosen = is("auto");
  if (*chosen || is("cloud")) return Move::kCloud;
  return static_cast<int>(fields.integer("cut", 0, kMostBlocks));
}

// Names the caller whose texts may go on from one another's rows. The edge has no keys of its own,
// but programs that send different keys are different callers.
std::string owner_of(const Request& request) {
  const auto key = request.headers.get("Authorization");
  return cat(request.principal, "\n", key ? Sha256::hex_of(as_bytes_of(*key)) : "");
}

Response put_cut(Placements& placements, const Request& request) {
  wire::Fields fields(request.body, request.memory.get());
  bool chosen = false;
  const int cut = read_cut(fields, &chosen);
  const bool running = fields.boolean_or("running", false);
  fields.finish();
  const std::shared_ptr<Service> service = placements.present();
  chosen ? service->choose_cut() : service->move_cut(cut, running);
  return Response::json(200, placements.status());
}

Response put_placement(Placements& placements, const Request& request) {
  wire::Fields fields(request.body, request.memory.get());
  Wish wish;
  if (fields.has("cut")) {
    const int cut = read_cut(fields, &wish.chosen);
    if (!wish.chosen) wish.cut = cut;
  }
  for (const auto& [name, text] : {std::pair{"model", &Wish::model},
                                   {"head", &Wish::head},
                                   {"format", &Wish::format},
                                   {"device", &Wish::device}}) {
    if (fields.has(name)) wish.*text = fields.text(name);
  }
  fields.finish();
  placements.place(wish);
  return Response::json(200, placements.status());
}

// 404: another model; 502: what the cloud refuses or answers without sense; 503 any route may.
// 501: what a chat's template has.
const std::vector<int>& statuses(bool of_a_chat) {
  static const std::vector<int> text = {200, 404, 502}, chat = {200, 404, 501, 502};
  return of_a_chat ? chat : text;
}

// OpenAI's routes, and Ollama's on them.
std::vector<http::Route> model_routes(Placements& placements) {
  const serve::FindModel find = [&placements](const std::string& id) {
    return placements.present()->find(id);
  };
  const auto writer = [&placements](const Request& request, bool opens = false) {
    return [&placements, owner = owner_of(request), opens](const std::string& id) {
      return placements.present()->find_writer(id, owner, opens);
    };
  };
  const http::Handler completions = [writer](const Request& request) {
    return serve::completions(request, writer(request));
  };
  const http::Handler chat = [writer](const Request& request) {
    return serve::chat_completions(request, writer(request));
  };
  const http::Handler embeddings = [find](const Request& request) {
    return serve::embeddings(request, find);
  };
  std::vector<http::Route> routes = {
      {.method = "GET",
       .path = "/v1/models",
       .summary = "Lists the model.",
       .handler =
           [find](const Request&) {
             const std::string id = find("").id;
             return serve::model_list({&id, 1});
           }},
      {.method = "GET",
       .path = "/v1/models/{id}",
       .summary = "Describes the model.",
       .statuses = {200, 404},
       .handler =
           [find](const Request& request) {
             return serve::model_entry(find(request.path_params[0]).id);
           }},
      {.method = "POST",
       .path = "/v1/completions",
       .summary = "Completes texts, as OpenAI's route of this name does.",
       .statuses = statuses(false),
       .body = serve::completion_fields(),
       .handler =
           [writer](const Request& request) {
             return serve::completions(request, writer(request, true));
           }},
      {.method = "POST",
       .path = "/v1/chat/completions",
       .summary = "Answers messages, as OpenAI's route of this name does.",
       .statuses = statuses(true),
       .body = serve::chat_fields(),
       .handler =
           [writer](const Request& request) {
             return serve::chat_completions(request, writer(request, true));
           }},
      {.method = "POST",
       .path = "/v1/responses",
       .summary = "Answers with text, as OpenAI's route of this name does.",
       .statuses = statuses(true),
       .body = serve::response_fields(),
       .handler = [chat](const Request& request) { return serve::responses(request, chat); }}};
  std::ranges::move(serve::token_routes(find, statuses(false)), std::back_inserter(routes));
  std::ranges::move(
      serve::ollama_routes({SPLIT_VERSION,
                            [&placements] { return placements.present()->ollama_model(); },
                            completions, chat, embeddings}),
      std::back_inserter(routes));
  routes.push_back({.method = "POST",
                    .path = "/v1/embeddings",
                    .summary = "Returns an embedding of each text.",
                    .statuses = statuses(false),
                    .body = serve::embedding_fields(),
                    .handler = embeddings});
  return routes;
}

// This program's own routes.
std::vector<http::Route> split_routes(Placements& placements) {
  // The same words as a completion's or a chat's, and nothing of them here: what the split is
  // compared with.
  const serve::FindModel alone = [&placements](const std::string& id) {
    return placements.present()->unsplit(id);
  };
  return {
      {.method = "GET",
       .path = "/split/status",
       .summary = "Returns where each stage is to be (where), where it runs for the next token "
                  "(runs: cloud or here), how much of it has landed here (landing: percent, and "
                  "seconds_left or null), and the last answer's receipt.",
       .handler =
           [&placements](const Request&) {
             Response response = Response::json(200, placements.status());
             response.headers.set("Cache-Control", "no-store");
             return response;
           }},
      {.method = "POST",
       .path = "/split/unsplit",
       .summary = "Completes texts on the cloud alone, to compare with the split.",
       .statuses = statuses(false),
       .body = serve::completion_fields(),
       .handler = [alone](const Request& request) { return serve::completions(request, alone); }},
      {.method = "POST",
       .path = "/split/unsplit/chat",
       .summary = "Answers messages on the cloud alone, to compare with the split.",
       .statuses = statuses(true),
       .body = serve::chat_fields(),
       .handler =
           [alone](const Request& request) { return serve::chat_completions(request, alone); }},
      {.method = "PUT",
       .path = "/split/cut",
       .summary = "Sets where later answers are cut.",
       .statuses = {200, 409, 502},
       .body = {{"cut", "",
                 "The number of blocks on the cloud, \"cloud\" for the whole model, or \"auto\": "
                 "where the weights have come to.",
                 true},
                {"running", "boolean", "Whether running answers move there too."}},
       .handler = [&placements](const Request& request) { return put_cut(placements, request); }},
      {.method = "PUT",
       .path = "/split/placement",
       .summary = "Sets what later answers run on; running ones end as they began.",
       .statuses = {200, 409, 502},
       .body = {{"model", "string", "One of /split/status's models."},
                {"cut", "", "As PUT /split/cut has it."},
                {"head", "string", "Where the vocabulary's matrix is: \"edge\" or \"cloud\"."},
                {"format", "string", "Of the weights, as --format says it."},
                {"device", "string", "One of /split/status's devices."}},
       .handler = [&placements](const Request& request) {
         return put_placement(placements, request);
       }}};
}

}  // namespace

void add_routes(http::Server& server, Placements& placements) {
  std::vector<http::Route> routes =
      serve::health_routes([&placements] { return placements.ready(); });
  std::ranges::move(page_routes(), std::back_inserter(routes));
  routes.push_back(serve::metrics_route(placements.metrics().metrics));
  routes.push_back(
      serve::props_route(SPLIT_VERSION, [&placements] { return placements.present()->props(); }));
  std::ranges::move(model_routes(placements), std::back_inserter(routes));
  std::ranges::move(split_routes(placements), std::back_inserter(routes));
  serve::add_routes(server, "SplitCompute edge", SPLIT_VERSION, std::move(routes), {403});
  serve::observe(server, placements.metrics().metrics,
                 {"split_edge_build_info", SPLIT_VERSION,
                  [&placements] { return placements.present()->served(); },
                  [&placements](std::string_view line) { placements.present()->write_log(line); }});
}

void serve_until_interrupted(const Options& options, const World& world, Interrupt& interrupt) {
  set_log_format(options.log_format == "json" ? LogFormat::kJson : LogFormat::kText);
  Placements placements(options, world.console, world.environment, interrupt);
  return_free_memory();
  MemoryBudget memory;
  http::Server server(server_options(options, memory));
  const int port = server.bind();  // early: a taken port is known before anything is downloaded
  add_routes(server, placements);
  serve::observe_memory(placements.metrics().metrics, memory);
  if (http::is_loopback(options.host) || !options.allowed_hosts.empty()) {
    server.set_guard(http::local_guard(options.allowed_hosts, options.cors_origins));
  }
  const auto say = [&](const std::string& line) {
    placements.present()->write_log(log_line("info", line));
  };
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
