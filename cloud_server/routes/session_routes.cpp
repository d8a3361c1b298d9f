// Sessions: the cloud's part of somebody's answer, kept between steps.
#include <random>

#include "cloud_server/routes/job.h"
#include "cloud_server/routes/routes.h"
#include "cloud_server/routes/session_text.h"
#include "serve/completions.h"
#include "wire/codes.h"
#include "wire/fields.h"
#include "wire/step.h"

namespace split::cloud {
namespace {

using http::HttpError;

const std::string& checked_id(const http::Request& request, size_t param = 0) {
  const std::string& id = request.path_params[param];
  if (!is_lower_hex(id, 32)) {
    throw HttpError(400, "invalid_session_id", "expected 32 hex digits (0-9, a-f)", "id");
  }
  return id;
}

SessionName name_of(const http::Request& request) {
  return {checked_id(request), request.principal};
}

[[noreturn]] void mismatch(uint32_t past, uint32_t have, std::string_view what = "past") {
  throw HttpError(409, wire::codes::kPositionMismatch, cat(what, " is ", past, ", have is ", have),
                  "past", {{"Split-Have", cat(have)}}, {{"have", have}});
}

// Returns whether it is new.
bool open_session(Cloud& cloud, const SessionName& name, ServedModel& model,
                  const StageRange& range) {
  const uint64_t most = cloud.keys.most_sessions(name.owner);
  const auto outcome = cloud.sessions.put(name, model.id(), range, model.batcher(), most);
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
  const bool created = open_session(cloud, {id, request.principal}, model, asked.range);
  const Json json = {{"id", id},
                     {"object", "session"},
                     {"model", model.id()},
                     {"from", from.block()},
                     {"to", to.block()}};
  http::Response response = http::Response::json(created ? 201 : 200, json.dump() + "\n");
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
    throw HttpError(400, wire::codes::kContextExceeded,
                    cat("past ", rows.past, " and ", rows.count(),
                        " rows are more than the context of ", config.context),
                    "past");
  }
}

[[noreturn]] void lacks_rows(uint32_t past, uint32_t have, Point to) {
  throw HttpError(409, wire::codes::kDepthMismatch,
                  cat("past is ", past, ", have is ", have, " in the blocks before ", to.name()),
                  "past", {{"Split-Have", cat(have)}}, {{"have", have}});
}

// Returns how far a step goes: as it says, no farther than its session; to the norm and the head
// from a session's end that is the last block's.
Point to_of(const wire::StepRequest& asked, const StageRange& session, int layers) {
  const Point to = asked.to.value_or(session.to);
  const bool behind = to > Point(layers), whole = session.to == Point(layers);
  if (to < session.from.block() || (behind ? !whole : to > session.to)) {
    wire::Fields::refuse("to", cat("expected ", session.from.block(), "..", session.to.name(),
                                   whole ? ", \"norm\" or \"head\"" : ""));
  }
  return to;
}

// The results of a session's rows, and how the client is told them.
class StepAnswer {
 public:
  // `wire`: the format of hidden states.
  StepAnswer(const http::Request& request, Shard& shard, Point to, size_t rows, DType wire)
      : to_(to),
        rows_(rows),
        width_(shard.width(to)),
        format_(to == Point::head() ? DType::kF32 : wire),
        out_(take(request)) {
    const auto accept = request.headers.get("Accept");
    json_ = accept && accept->find(wire::kJsonType) != std::string_view::npos;
    if (json_ && wire != DType::kF32) {
      wire::Fields::refuse("wire", cat("is for Accept: ", wire::kTensorType));
    }
  }

  std::span<float> out() { return out_; }
  http::Response response(uint32_t past, uint32_t have) const {
    http::Response response;
    if (rows_ == 0) {
      response.status = 204;
    } else if (json_) {
      response = http::Response::json(200, json(past, have));
    } else {
      response.content_type = wire::kTensorType;
      response.body =
          wire::frame(wire::result_name(to_), static_cast<uint32_t>(rows_),
                      static_cast<uint32_t>(width_), out_, {.format = format_, .field = "wire"});
    }
    return response;
  }

 private:
  std::vector<float> take(const http::Request& request) const {
    expect_answer(rows_, width_ * sizeof(float));
    // The rows and their answer.
    request.memory->take(rows_ * width_ * (sizeof(float) + kJsonBytesAFloat));
    return std::vector<float>(rows_ * width_);
  }
  std::string json(uint32_t past, uint32_t have) const {
    std::string json = cat("{\"past\":", past, ",\"have\":", have, ",\"shape\":[", rows_, ",",
                           width_, "],\"dtype\":\"f32\",\"", wire::result_name(to_), "\":[");
    json.reserve(json.size() + rows_ * width_ * kJsonBytesAFloat);
    for (size_t row = 0; row < rows_; ++row) {
      if (row > 0) json += ',';
      wire::append_floats(json, std::span(out_).subspan(row * width_, width_));
    }
    json += "]}\n";
    return json;
  }

  const Point to_;
  const size_t rows_, width_;
  const DType format_;
  std::vector<float> out_;
  bool json_ = false;
};

// Runs a job of a request for a session's rows, which are to be numbers.
void run_step(Cloud& cloud, Session& session, const http::Request& request, ServedModel& model,
              Job& job, std::span<const float> out) {
  // A fill that the cloud asked for is its own affair.
  if (!job.fill || !model.wishes().asks(session.sequence)) {
    charge_rows(cloud, request, model, job.rows);
  }
  job.requester = requester_of(request);
  run_in_session(session, model, job);
  if (!all_finite(out)) refuse_overflow(model, !job.rows.hidden.empty());
}

// Counts a step, and says in its answer what it took and how loaded the model is.
void end_step(const Cloud& cloud, Session& session, ServedModel& model,
              const http::Request& request, const Job& job, http::Response& response) {
  describe_run(response, job);
  response.headers.set(wire::kLoadHeader, to_text(tell_load(cloud, model, session)));
  ++session.receipt.steps;
  session.receipt.bytes_in += request.body.size();
  session.receipt.bytes_out += response.body.size();
}

void cut_back(Session& session, KvPages& pages, uint32_t past) {
  pages.truncate(session.sequence, past);
  if (session.range.from.is_tokens()) session.history.cut_back(past);
}

http::Response step(Cloud& cloud, Session& session, ServedModel& model,
                    const http::Request& request, SequenceRows rows, DType wire) {
  check_rows(rows, model.config());
  model.wishes().comes(session.sequence, rows.range.to);
  Shard& shard = model.batcher().shard();
  KvPages& pages = shard.pages();
  if (pages.length(session.sequence) < rows.past) {
    mismatch(rows.past, pages.length(session.sequence));
  }
  if (const uint32_t have = pages.filled(session.sequence, rows.range); have < rows.past) {
    lacks_rows(rows.past, have, rows.range.to);
  }
  StepAnswer answer(request, shard, rows.range.to, rows.wanted_count(), wire);
  cut_back(session, pages, rows.past);
  Job job{session.sequence, rows, answer.out().data()};
  try {
    run_step(cloud, session, request, model, job, answer.out());
  } catch (const SequenceLost&) {
    mismatch(rows.past, pages.length(session.sequence));
  } catch (...) {
    // The session keeps nothing of rows that are no numbers.
    if (!all_finite(answer.out())) cut_back(session, pages, rows.past);
    throw;
  }
  http::Response response = answer.response(rows.past, rows.past + rows.count());
  end_step(cloud, session, model, request, job, response);
  return response;
}

// A request to fill, as far as it has come. It has its session for one slice at a time, so that
// steps of the same text run between.
class Fill {
 public:
  Fill(const wire::StepRequest& asked, StageRange range)
      : past_(asked.received.rows.past),
        count_(asked.count),
        wanted_(asked.received.rows.wanted),
        wire_(asked.wire),
        range_(range) {}

  bool done() const { return at_ == count_; }
  // The next slice; the answer, once all are done.
  http::Response slice(Cloud& cloud, Session& session, ServedModel& model,
                       const http::Request& request) {
    Shard& shard = model.batcher().shard();
    const KvPages& pages = shard.pages();
    const uint32_t have = pages.length(session.sequence), past = past_ + at_;
    if (past_ + count_ > have) mismatch(past_ + count_, have, "the end of the fill");
    if (const uint32_t there = pages.filled(session.sequence, range_); there < past) {
      lacks_rows(past, there, range_.to);
    }
    if (!answer_) answer_.emplace(request, shard, range_.to, wanted_.count(count_), wire_);
    SequenceRows rows = session.history.piece(past, past + std::min(count_ - at_, kSliceRows));
    rows.range = range_;
    rows.wanted = wanted_.slice(count_, at_, rows.count());
    const std::span<float> out =
        answer_->out().subspan(delivered_, rows.wanted_count() * shard.width(range_.to));
    Job job{session.sequence, rows, out.data()};
    job.fill = true;
    try {
      run_step(cloud, session, request, model, job, out);
    } catch (const SequenceLost&) {
      mismatch(past, pages.length(session.sequence));
    }
    at_ += rows.count();
    delivered_ += out.size();
    spent_.queue_ms += job.queue_ms;
    spent_.compute_ms += job.compute_ms;
    spent_.share_ms += job.share_ms;
    if (!done()) return {};
    http::Response response = answer_->response(past_, have);
    end_step(cloud, session, model, request, spent_, response);
    return response;
  }

 private:
  static constexpr uint32_t kSliceRows = 64;  // of the batcher's too

  const uint32_t past_, count_;
  const Wanted wanted_;
  const DType wire_;
  const StageRange range_;
  std::optional<StepAnswer> answer_;
  uint32_t at_ = 0;
  size_t delivered_ = 0;  // floats
  Job spent_;
};

// A text on a session, which is opened where there is none.
http::Response complete_on_session(Cloud& cloud, const http::Request& request) {
  cloud.keys.expect_rows(request.principal);
  ServedModel& model = cloud.find(request.path_params[0]);
  if (model.config().encodes()) refuse_session();
  const SessionName name(checked_id(request, 1), request.principal);
  const auto beside = std::make_shared<LoadBeside>();
  serve::TextModel work = serve::local_backend(
      model.id(), model.config(), model.tokenizer(),
      [&cloud, &model, name, requester = requester_of(request), beside](size_t generated_from) {
        return std::make_unique<SessionForward>(cloud, model, name, requester, beside,
                                                generated_from);
      },
      model.device().name());
  work.comment = [beside] { return beside->comment(); };
  beside->note = model.wishes().told();
  beside->note.want.reset();  // its session has made no step
  http::Response response =
      serve::session_completions(request, std::move(work), [&](std::optional<int> can) {
        beside->can = can;
        open_session(cloud, name, model, {.to = model.config().layers});
      });
  response.headers.set(wire::kLoadHeader, to_text(beside->note));
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
                {"share_ms", session.receipt.share_ms},
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
  std::optional<Fill> fill;
  const SessionName name = name_of(request);
  const auto begin = [&](Session& session) {
    ServedModel& model = cloud.find(session.model);
    const ModelConfig& config = model.config();
    take_hidden(request);
    const wire::StepRequest asked =
        sends_tensors(request)
            ? wire::parse_step(request.query_params, as_bytes_of(request.body), config)
            : wire::parse_step(request.body, config, request.memory.get());
    const StageRange range{session.range.from, to_of(asked, session.range, config.layers)};
    if (asked.can) session.can = asked.can;
    if (asked.fill) {
      if (!range.from.is_tokens()) {
        wire::Fields::refuse("fill", "is for a session that starts at the embedding");
      }
      response = fill.emplace(asked, range).slice(cloud, session, model, request);
    } else {
      SequenceRows rows = asked.received.rows;
      rows.range = range;
      response = step(cloud, session, model, request, rows, asked.wire);
    }
  };
  const auto go_on = [&](Session& session) {
    response = fill->slice(cloud, session, cloud.find(session.model), request);
  };
  bool found = cloud.sessions.with(name, begin);
  while (found && fill && !fill->done()) found = cloud.sessions.with(name, go_on);
  if (!found) unknown_session();
  return response;
}

}  // namespace

namespace {

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
      {"cut", "integer", "The same as to."}};
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
                {"wire", "string",
                 "How hidden states come back in safetensors: f32, or rounded to f16 or q8_0."},
                {"fill", "boolean",
                 "Runs rows that the session has again, in place, up to the point to."},
                {"count", "integer", "The number of rows of a fill, in place of tokens."}},
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
