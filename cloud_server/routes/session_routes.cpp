// Sessions: the cloud's part of somebody's answer, kept between steps.
#include <random>

#include "cloud_server/routes/job.h"
#include "cloud_server/routes/routes.h"
#include "cloud_server/routes/session_steps.h"
#include "cloud_server/routes/session_text.h"
#include "serve/completions.h"
#include "wire/codes.h"
#include "wire/fields.h"

namespace split::cloud {
namespace {

using http::HttpError;

// Returns whether the session is new.
bool open_session(Cloud& cloud, const SessionName& name, ServedModel& model,
                  const StageRange& range, std::optional<PrefixRoot> root = {}) {
  if (!cloud.sessions.has(name)) cloud.expect_no_drain();
  const uint64_t most = cloud.keys.most_sessions(name.owner);
  const auto outcome =
      cloud.sessions.put(name, model.id(), range, model.batcher(), most, std::move(root));
  if (outcome == Sessions::Put::kOwnerFull) {
    throw HttpError(429, wire::codes::kTooManySessions,
                    cat("this key has all its ", most, " sessions"), {}, {{"Retry-After", "1"}});
  }
  if (outcome == Sessions::Put::kConflict) {
    throw HttpError(409, wire::codes::kSessionConflict,
                    "the session exists with a different range");
  }
  return outcome == Sessions::Put::kCreated;
}

[[noreturn]] void refuse_session() {
  throw http::HttpError(400, "no_session",
                        "the model is an encoder, which keeps nothing: POST its texts to /forward");
}

http::Response put_session(Cloud& cloud, const http::Request& request, const std::string& id) {
  const wire::SessionRequest asked =
      wire::parse_session_request(request.body, request.memory.get());
  ServedModel& model = cloud.find(asked.model);
  if (model.config().encodes()) refuse_session();
  const int layers = model.config().layers;
  const auto [from, to] = asked.range;
  if (from > layers) wire::Fields::refuse("from", cat("expected 0..", layers));
  if (to < from || to > layers) {
    wire::Fields::refuse(asked.cut ? "cut" : "to", cat("expected ", from.block(), "..", layers));
  }
  std::optional<PrefixRoot> root;
  if (asked.cache_prompt) root = {request.principal, asked.cache_salt};
  const bool created = open_session(cloud, {id, request.principal}, model, asked.range, root);
  const Json json = {{"id", id},
                     {"object", "session"},
                     {"model", model.id()},
                     {"from", from.block()},
                     {"to", to.block()}};
  return unkept_json(created ? 201 : 200, json.dump());
}

std::string drawn_id() {
  std::random_device device;
  std::string bytes;
  for (int i = 0; i < 4; ++i) {
    const uint32_t word = device();
    bytes.append(reinterpret_cast<const char*>(&word), sizeof word);
  }
  return to_hex(as_bytes_of(bytes));
}

// Generates a text on a session, which is opened if need be.
http::Response complete_on_session(Cloud& cloud, const http::Request& request) {
  cloud.keys.expect_rows(request.principal);
  ServedModel& model = cloud.find(request.path_params[0]);
  if (model.config().encodes()) refuse_session();
  const SessionName name(checked_id(request, 1), request.principal);
  const auto beside = std::make_shared<LoadBeside>();
  serve::TextModel work = serve::local_backend(
      model.id(), model.config(), model.tokenizer(),
      [&cloud, &model, name, requester = requester_of(request), beside](
          size_t generated_from, const GenerateOptions& options) {
        return std::make_unique<SessionForward>(cloud, model, name, requester, beside,
                                                generated_from, prefix_root(requester, options));
      },
      model.device().name());
  work.chat = model.chat();
  work.format = &model.answer_format();
  work.comment = [beside] { return beside->comment(); };
  beside->note = model.cut_requests().told();
  beside->note.want.reset();  // the session has made no step
  http::Response response =
      serve::session_completions(request, std::move(work), [&](const serve::SessionClient& client) {
        beside->can = client.can;
        beside->again = client.again;
        open_session(cloud, name, model, {.to = model.config().layers});
      });
  response.headers.set(wire::kLoadHeader, to_text(beside->note));
  return response;
}

http::Response describe_session(Cloud& cloud, const http::Request& request) {
  Json json;
  const bool found = cloud.sessions.with(name_of(request), [&](Session& session) {
    json = Json{{"id", session.name.id},
                {"object", "session"},
                {"model", session.model},
                {"from", session.range.from.block()},
                {"to", session.range.to.block()},
                {"have", session.batcher->pages().length(session.sequence)},
                {"steps", session.receipt.steps},
                {"layer_rows", session.receipt.layer_rows},
                {"queue_ms", session.receipt.queue_ms},
                {"compute_ms", session.receipt.compute_ms},
                {"share_ms", session.receipt.share_ms},
                {"bytes_in", session.receipt.bytes_in},
                {"bytes_out", session.receipt.bytes_out}};
  });
  if (!found) unknown_session();
  return unkept_json(200, json.dump());
}

http::Response end_session(Cloud& cloud, const http::Request& request) {
  const SessionName name = name_of(request);
  cloud.sessions.with(name, [](Session& session) { keep_rows(session, session.range); });
  if (!cloud.sessions.remove(name)) unknown_session();
  http::Response response;
  response.status = 204;
  return response;
}

// A balancer routes by the id in the path, and has routed this request before there is one: the
// session would be at one replica, and its steps at another.
void refuse_behind_balancer(const http::Request& request) {
  for (const char* header : {"X-Forwarded-For", "Forwarded"}) {
    if (!request.headers.get(header)) continue;
    throw http::HttpError(405, "id_expected",
                          "behind a balancer a session's id is the client's to draw, so that the "
                          "balancer can route by it: PUT /v1/sessions/{id}, 32 hex digits",
                          {}, {{"Allow", "PUT"}});
  }
}

}  // namespace

Routes session_routes(Cloud& cloud) {
  const std::vector<http::RequestField> range = {
      {"model", "string", "A model's id (GET /v1/models); the first one by default."},
      {"from", "integer", "The point that rows enter the session at; 0 takes tokens."},
      {"to", "integer", "The point that they leave it at."},
      {"cut", "integer", "The same as to."},
      {"cache_prompt", "boolean",
       "False: no row is taken from another text's, nor kept for others."},
      {"cache_salt", "string",
       "Rows are shared with texts of the same key and salt alone; at most 128 bytes."}};
  return {
      {.method = "PUT",
       .path = "/v1/sessions/{id}",
       .summary = "Opens a session with this id: 32 hex digits.",
       .statuses = {200, 201, 404, 409},
       .body = range,
       .one_of = {"to", "cut"},
       .handler =
           [&cloud](const http::Request& request) {
             return put_session(cloud, request, checked_id(request));
           }},
      {.method = "POST",
       .path = "/v1/sessions",
       .summary = "Opens a session with an id that the server draws.",
       .statuses = {201, 404},
       .body = range,
       .one_of = {"to", "cut"},
       .handler =
           [&cloud](const http::Request& request) {
             refuse_behind_balancer(request);
             return put_session(cloud, request, drawn_id());
           }},
      {.method = "GET",
       .path = "/v1/sessions/{id}",
       .summary = "Describes a session and what it has cost.",
       .statuses = {200, 404},
       .handler = std::bind_front(describe_session, std::ref(cloud))},
      {.method = "DELETE",
       .path = "/v1/sessions/{id}",
       .summary = "Ends a session.",
       .answers = "",
       .statuses = {204, 404},
       .handler = std::bind_front(end_session, std::ref(cloud))},
      {.method = "POST",
       .path = "/v1/sessions/{id}/forward",
       .summary = "Runs one step of a session; or a fill, which runs rows that it has through more "
                  "blocks.",
       .answers = wire::kTensorType,
       .statuses = {200, 204, 404, 409},
       .query = {{"past", "integer", "As in a JSON body, where the body is safetensors."},
                 {"phase", "string", "As in a JSON body, where the body is safetensors."},
                 {"rows", "string", "As in a JSON body, where the body is safetensors."},
                 {"to", "string", "As in a JSON body, where the body is safetensors."},
                 {"wire", "string", "As in a JSON body, where the body is safetensors."}},
       .body = {{"past", "integer",
                 "The number of positions to keep; the new rows stand behind them.", true},
                {"tokens", "array", "The token ids of the new rows."},
                {"phase", "string", "prompt or generate."},
                {"rows", "string", "The rows to return: all, last or none."},
                {"to", "", "The point that these rows go to; by default where the session goes."},
                {"can", "integer", "The lowest cut that this client could take over at."},
                {"again", "boolean", "Another session had these rows, and was lost: they count."},
                {"wire", "string",
                 "How hidden states come back in safetensors: f32, or rounded to f16 or q8_0."},
                {"fill", "boolean",
                 "Runs rows that the session has again, in place, up to the point to."},
                {"count", "integer", "The number of rows of a fill, in place of tokens."},
                {"digest", "string",
                 "16 hex digits: FNV-1a over the ids that the client has before these rows, of a "
                 "fill in them too; a session of other ids is refused (409)."}},
       .one_of = {"tokens", "count"},
       .other_body_types = {wire::kTensorType},
       .frequent = true,
       .handler = std::bind_front(step_session, std::ref(cloud))},
      {.method = "POST",
       .path = "/v1/models/{id}/sessions/{sid}/completions",
       .summary = "Completes a text on a session, which is opened if need be and stays.",
       .statuses = {200, 404, 409},
       .body = serve::session_completion_fields(),
       .handler = std::bind_front(complete_on_session, std::ref(cloud))}};
}

}  // namespace split::cloud
