#include "edge_client/server/routes.h"

#include "base/json.h"
#include "serve/compat/messages.h"
#include "serve/compat/rerank.h"
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

// An upper bound alone: the service knows how many blocks its model has.
constexpr int kMostBlocks = 1024;

// Reads a cut; nullopt for "auto".
std::optional<Cut> read_cut(wire::Fields& fields) {
  const auto is = [&](const char* word) { return fields.has("cut") && fields.raw("cut") == word; };
  if (is("auto")) return std::nullopt;
  if (is("cloud")) return Cut::cloud();
  return static_cast<int>(fields.integer("cut", 0, kMostBlocks));
}

// Names the caller, among whose texts rows are shared. The edge checks no keys, but different keys
// are different callers.
std::string owner_of(const Request& request) {
  auto key = request.headers.get("Authorization");
  if (!key) key = request.headers.get("x-api-key");
  return cat(request.principal, "\n", key ? Sha256::hex_of(as_bytes_of(*key)) : "");
}

Response put_cut(Placements& placements, const Request& request) {
  wire::Fields fields(request.body, request.memory.get());
  const std::optional<Cut> cut = read_cut(fields);
  const bool running = fields.boolean_or("running", false);
  fields.finish();
  placements.present()->place(cut, running);
  return Response::json(200, placements.status());
}

Head read_head(wire::Fields& fields) {
  const std::string head = fields.text("head");
  if (head != "edge" && head != "cloud") {
    wire::Fields::refuse("head", "expected \"edge\" or \"cloud\"");
  }
  return head == "cloud" ? Head::kCloud : Head::kEdge;
}

Response put_placement(Placements& placements, const Request& request) {
  wire::Fields fields(request.body, request.memory.get());
  PlacementChange wanted;
  if (fields.has("cut")) {
    wanted.cut = read_cut(fields);
    wanted.chosen = !wanted.cut;
  }
  for (const auto& [name, text] : {std::pair{"model", &PlacementChange::model},
                                   {"format", &PlacementChange::format},
                                   {"device", &PlacementChange::device}}) {
    if (fields.has(name)) wanted.*text = fields.text(name);
  }
  if (fields.has("head")) wanted.head = read_head(fields);
  fields.finish();
  placements.place(wanted);
  return Response::json(200, placements.status());
}

Response kept_json(const WeightStore::Kept& kept) {
  return Response::json(200, Json{{"bytes", kept.bytes}, {"files", kept.files}}.dump() + "\n");
}

Response describe(const serve::TextModel& model) {
  const bool writes = !model.config->encodes();
  return serve::model_entry(model.id,
                            writes ? serve::describe_chat(model.chat, *model.format) : Json());
}

// 404: another model; 502: an error or nonsense from the cloud; 503 is possible for any route; 501:
// features of a chat's template.
const std::vector<int>& statuses(bool of_a_chat) {
  static const std::vector<int> text = {200, 404, 502}, chat = {200, 404, 501, 502};
  return of_a_chat ? chat : text;
}

// OpenAI's routes, and Ollama's on top of them.
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
       .summary = "Lists the model, or the two that a tail of one's own makes of it.",
       .handler = [&placements](
                      const Request&) { return serve::model_list(placements.present()->ids()); }},
      {.method = "GET",
       .path = "/v1/models/{id}",
       .summary = "Describes the model.",
       .statuses = {200, 404},
       .handler =
           [find](const Request& request) { return describe(find(request.path_params[0])); }},
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
  std::ranges::move(
      serve::message_routes(
          chat, [find](const Request& request) { return serve::count_chat_tokens(request, find); },
          statuses(true)),
      std::back_inserter(routes));
  routes.push_back(serve::audit_route(statuses(false), [&placements](const Request& request) {
    return placements.present()->audit(request, owner_of(request));
  }));
  std::ranges::move(serve::token_routes(find, statuses(false)), std::back_inserter(routes));
  std::ranges::move(
      serve::ollama_routes(
          {SPLIT_VERSION, [&placements] { return placements.present()->ollama_models(); },
           completions, chat, embeddings, placements.present()->options().any_model}),
      std::back_inserter(routes));
  routes.push_back({.method = "POST",
                    .path = "/v1/embeddings",
                    .summary = "Returns an embedding of each text.",
                    .statuses = statuses(false),
                    .body = serve::embedding_fields(),
                    .handler = embeddings});
  routes.push_back(
      {.method = "POST",
       .path = "/v1/rerank",
       .summary = "Ranks documents by a query, as Jina's and Cohere's routes do.",
       .statuses = statuses(false),
       .body = serve::rerank_fields(),
       .handler = [find](const Request& request) { return serve::rerank(request, find); }});
  return routes;
}

// The program's own routes.
std::vector<http::Route> split_routes(Placements& placements) {
  // The words of a completion or a chat without this machine, to compare the split with.
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
      {.method = "GET",
       .path = "/split/cache",
       .summary = "Returns how many bytes and files of weights this machine's disk keeps.",
       .handler = [&placements](
                      const Request&) { return kept_json(placements.present()->engine().kept()); }},
      {.method = "DELETE",
       .path = "/split/cache",
       .summary = "Deletes these, but for downloads that run, and returns what is left.",
       .handler =
           [&placements](const Request&) {
             return kept_json(placements.present()->engine().forget());
           }},
      {.method = "PUT",
       .path = "/split/placement",
       .summary = "Sets what later answers run on; running ones end as they began.",
       .statuses = {200, 404, 409, 502},
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

void add_routes(http::Router& router, Placements& placements, std::vector<http::Route> more) {
  std::vector<http::Route> routes = serve::health_routes([&placements] {
    return placements.ready() ? serve::Health::kReady : serve::Health::kNotReady;
  });
  std::ranges::move(more, std::back_inserter(routes));
  routes.push_back(serve::metrics_route(placements.metrics().metrics));
  routes.push_back(
      serve::props_route(SPLIT_VERSION, [&placements] { return placements.present()->props(); }));
  std::ranges::move(model_routes(placements), std::back_inserter(routes));
  std::ranges::move(split_routes(placements), std::back_inserter(routes));
  serve::add_routes(router, "SplitCompute edge", SPLIT_VERSION, std::move(routes), {403});
  serve::observe(router, placements.metrics().metrics,
                 {"split_edge_build_info", SPLIT_VERSION,
                  [&placements] { return placements.present()->served(); },
                  [&placements](std::string_view line) { placements.present()->write_log(line); }});
}

}  // namespace split::edge
