// Sessions: the cloud's part of somebody's answer, kept between steps.
#include <random>

#include "cloud_server/job.h"
#include "cloud_server/routes.h"
#include "wire/fields.h"
#include "wire/step.h"

namespace split::cloud {
namespace {

using http::HttpError;

const std::string& checked_id(const http::Request& request) {
  const std::string& id = request.path_params[0];
  if (!is_lower_hex(id, 32)) {
    throw HttpError(400, "invalid_session_id", "expected 32 hex digits (0-9, a-f)", "id");
  }
  return id;
}

SessionName name_of(const http::Request& request) {
  return {checked_id(request), request.principal};
}

[[noreturn]] void unknown_session() {
  throw HttpError(404, "session_unknown", "no such session: PUT it and send its tokens again");
}

[[noreturn]] void mismatch(uint32_t past, uint32_t have) {
  throw HttpError(409, "position_mismatch", cat("past is ", past, ", have is ", have), "past",
                  {{"Split-Have", cat(have)}}, {{"have", have}});
}

http::Response put_session(Cloud& cloud, const http::Request& request, const std::string& id) {
  const wire::SessionRequest asked = wire::parse_session_request(request.body);
  ServedModel& model = cloud.find(asked.model);
  const int layers = model.config().layers;
  const auto [from, to] = asked.range;
  if (from > layers) wire::Fields::refuse("from", cat("expected 0..", layers));
  if (to < from || to > layers) {
    wire::Fields::refuse(asked.cut ? "cut" : "to", cat("expected ", from.block(), "..", layers));
  }
  const uint64_t most = cloud.keys.most_sessions(request.principal);
  const auto outcome =
      cloud.sessions.put({id, request.principal}, model.id(), asked.range, model.batcher(), most);
  if (outcome == Sessions::Put::kOwnerFull) {
    throw HttpError(429, "too_many_sessions", cat("this key has all its ", most, " sessions"), {},
                    {{"Retry-After", "1"}});
  }
  if (outcome == Sessions::Put::kConflict) {
    throw HttpError(409, "session_conflict", "the session exists with a different range");
  }
  const Json json = {{"id", id},
                     {"object", "session"},
                     {"model", model.id()},
                     {"from", from.block()},
                     {"to", to.block()}};
  http::Response response =
      http::Response::json(outcome == Sessions::Put::kCreated ? 201 : 200, json.dump() + "\n");
  response.headers.set("Cache-Control", "no-store");
  return response;
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

// Refuses rows that are not of their session's kind, or none of the model's.
void check_rows(const SequenceRows& rows, const ModelConfig& config) {
  const Point from = rows.range.from;
  if (rows.hidden.empty() && !from.is_tokens()) {
    throw HttpError(400, "hidden_expected",
                    cat("this session starts at block ", from.block(),
                        ": send safetensors with `hidden` [rows, ", config.channels, "]"),
                    "hidden");
  }
  if (!rows.hidden.empty() && from.is_tokens()) {
    throw HttpError(400, "tokens_expected", "this session starts at the embedding: send tokens",
                    "tokens");
  }
  if (rows.count() == 0) wire::Fields::refuse("tokens", "expected at least one");
  for (const int32_t token : rows.tokens) {
    if (token >= config.vocab)
      wire::Fields::refuse("tokens", cat("expected ids in 0..", config.vocab - 1));
  }
  if (uint64_t{rows.past} + rows.count() > static_cast<uint64_t>(config.context)) {
    throw HttpError(400, "context_exceeded",
                    cat("past ", rows.past, " and ", rows.count(),
                        " rows are more than the context of ", config.context),
                    "past");
  }
}

http::Response step(Cloud& cloud, Session& session, const http::Request& request) {
  ServedModel& model = cloud.find(session.model);
  const auto channels = static_cast<uint32_t>(model.config().channels);
  take_hidden(request);
  wire::ReceivedRows received =
      sends_tensors(request)
          ? wire::parse_step(request.query_params, as_bytes_of(request.body), model.config())
          : wire::parse_step(request.body, request.memory.get());
  SequenceRows& rows = received.rows;
  rows.range = session.range;
  check_rows(rows, model.config());
  KvPages& pages = model.batcher().shard().pages();
  if (!pages.cut_back(session.sequence, rows.past)) {
    mismatch(rows.past, pages.length(session.sequence));
  }

  const auto out_rows = static_cast<uint32_t>(rows.wanted_count());
  // The rows and their answer.
  request.memory->take(size_t{out_rows} * channels * (sizeof(float) + kJsonBytesAFloat));
  std::vector<float> out(size_t{out_rows} * channels);
  Job job{session.sequence, rows, out.data()};
  try {
    run_job(cloud, request, model, job);
  } catch (const SequenceLost&) {
    mismatch(rows.past, pages.length(session.sequence));
  }
  if (!all_finite(out)) {
    // The session keeps nothing of such rows.
    pages.cut_back(session.sequence, rows.past);
    refuse_overflow(model, !rows.hidden.empty());
  }

  http::Response response;
  const auto accept = request.headers.get("Accept");
  if (accept && accept->find(wire::kJsonType) != std::string_view::npos) {
    std::string json =
        cat("{\"past\":", rows.past, ",\"have\":", rows.past + rows.count(), ",\"shape\":[",
            out_rows, ",", channels, "],\"dtype\":\"f32\",\"hidden\":[");
    for (uint32_t r = 0; r < out_rows; ++r) {
      if (r > 0) json += ',';
      wire::append_floats(json, std::span(out).subspan(size_t{r} * channels, channels));
    }
    response = http::Response::json(200, json + "]}\n");
  } else {
    response.content_type = wire::kTensorType;
    response.body = wire::frame("hidden", out_rows, channels, out);
  }
  describe_run(response, job);
  SessionReceipt& receipt = session.receipt;
  ++receipt.steps;
  receipt.layer_rows +=
      uint64_t{rows.count()} * static_cast<uint64_t>(rows.range.blocks(model.config().layers));
  receipt.queue_ms += job.queue_ms;
  receipt.compute_ms += job.compute_ms;
  receipt.bytes_in += request.body.size();
  receipt.bytes_out += response.body.size();
  return response;
}

http::Response describe_session(Cloud& cloud, const http::Request& request) {
  std::string json;
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
                {"bytes_in", session.receipt.bytes_in},
                {"bytes_out", session.receipt.bytes_out}}
               .dump();
  });
  if (!found) unknown_session();
  http::Response response = http::Response::json(200, json + "\n");
  response.headers.set("Cache-Control", "no-store");
  return response;
}

http::Response end_session(Cloud& cloud, const http::Request& request) {
  if (!cloud.sessions.remove(name_of(request))) unknown_session();
  http::Response response;
  response.status = 204;
  return response;
}

http::Response step_session(Cloud& cloud, const http::Request& request) {
  http::Response response;
  const bool found = cloud.sessions.with(
      name_of(request), [&](Session& session) { response = step(cloud, session, request); });
  if (!found) unknown_session();
  return response;
}

}  // namespace

Routes session_routes(Cloud& cloud) {
  const std::vector<http::RequestField> range = {
      {"model", "string", "of GET /v1/models; without it the first"},
      {"from", "integer", "the point that this session's rows enter at (0: tokens)"},
      {"to", "integer", "the point that they leave at"},
      {"cut", "integer", "the same as to"}};
  return {
      {.method = "PUT",
       .path = "/v1/sessions/{id}",
       .summary = "opens a session of this id: 32 hex digits",
       .statuses = {200, 201, 404, 409},
       .body = range,
       .one_of = {"to", "cut"},
       .handler =
           [&cloud](const http::Request& request) {
             return put_session(cloud, request, checked_id(request));
           }},
      {.method = "POST",
       .path = "/v1/sessions",
       .summary = "opens a session",
       .statuses = {201, 404},
       .body = range,
       .one_of = {"to", "cut"},
       .handler =
           [&cloud](const http::Request& request) {
             return put_session(cloud, request, drawn_id());
           }},
      {.method = "GET",
       .path = "/v1/sessions/{id}",
       .summary = "a session and what it cost so far",
       .statuses = {200, 404},
       .handler = std::bind_front(describe_session, std::ref(cloud))},
      {.method = "DELETE",
       .path = "/v1/sessions/{id}",
       .summary = "ends a session",
       .answers = "",
       .statuses = {204, 404},
       .handler = std::bind_front(end_session, std::ref(cloud))},
      {.method = "POST",
       .path = "/v1/sessions/{id}/forward",
       .summary = "one step of a session",
       .answers = wire::kTensorType,
       .statuses = {200, 404, 409},
       .query = {{"past", "integer", "with hidden states, as in the body"},
                 {"phase", "string", "with hidden states, as in the body"},
                 {"rows", "string", "with hidden states, as in the body"}},
       .body = {{"past", "integer", "positions that stay; what was behind them is forgotten", true},
                {"tokens", "array", "ids behind these", true},
                {"phase", "string", "prompt or generate"},
                {"rows", "string", "all or last"}},
       .other_body_types = {wire::kTensorType},
       .handler = std::bind_front(step_session, std::ref(cloud))}};
}

}  // namespace split::cloud
