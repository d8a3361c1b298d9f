#include "cloud_server/routes/job.h"

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "tensor/blocks.h"
#include "wire/codes.h"
#include "wire/fields.h"

namespace split::cloud {
namespace {

constexpr size_t kMaxAnswerBytes = 64 << 20;
constexpr const char* kHalfOverflow = "f16_overflow";
constexpr float kMostHalf = 65504;  // the largest number of f16
constexpr size_t kFewRows = 8;      // like the batcher's next tokens

// The blocks of a range, without the head.
StageRange blocks_of(const Session& session, StageRange range) {
  range.to = std::min(range.to, Point(session.batcher->shard().model().config().layers));
  return range;
}

}  // namespace

Requester requester_of(const http::Request& request) {
  return {request.principal, request.client_gone};
}

std::optional<PrefixRoot> prefix_root(const Requester& requester, const GenerateOptions& options) {
  if (!options.cache_prompt) return {};
  return PrefixRoot{requester.owner, options.cache_salt};
}

void charge_rows(const Cloud& cloud, const http::Request& request, ServedModel& model,
                 const SequenceRows& rows) {
  cloud.keys.expect_rows(request.principal);
  cloud.keys.took_rows(request.principal, model.batcher().shard().whole_rows(rows));
}

void run_job(const Cloud& cloud, const http::Request& request, ServedModel& model, Job& job) {
  charge_rows(cloud, request, model, job.rows);
  job.requester = requester_of(request);
  model.batcher().run(job);
}

void run_in_session(Session& session, ServedModel& model, Job& job) {
  const SequenceRows& rows = job.rows;
  Shard& shard = model.batcher().shard();
  const auto remember = [&] {
    session.receipt.layer_rows += job.layer_rows;
    session.receipt.share_ms += job.share_ms;
    const uint32_t have = shard.pages().length(session.sequence);
    if (job.fill || job.sequence != session.sequence) return;
    if (rows.tokens.empty() || have <= rows.past) return;
    session.history.append(rows.tokens.first(have - rows.past), rows.phase);
  };
  try {
    model.batcher().run(job);
  } catch (...) {
    remember();
    throw;
  }
  remember();
  session.receipt.queue_ms += job.queue_ms;
  session.receipt.compute_ms += job.compute_ms;
  if (rows.phase == Phase::kGenerate && rows.count() <= kFewRows && !job.fill) {
    model.token_waited(job.queue_ms + job.compute_ms);
  }
}

void own_rows(Session& session, const SequenceRows& rows, const Requester& requester) {
  if (!session.range.from.is_tokens()) return;
  KvPages& pages = session.batcher->shard().pages();
  const bool deep = pages.filled(session.sequence, session.range) >= rows.past;
  const StageRange range = deep ? session.range : blocks_of(session, rows.range);
  if (pages.own(session.sequence, rows.past) == rows.past) return;
  session.history.replay(
      rows.past, [&] { return pages.filled(session.sequence, range); },
      [&](SequenceRows piece) {
        piece.range = range;
        Job job{session.sequence, piece, nullptr, requester};
        session.batcher->run(job);
      });
}

PrefixCache::Taken take_rows(Session& session, const SequenceRows& rows,
                             const Requester& requester) {
  PrefixCache* const prefixes = session.batcher->prefixes();
  if (!session.root || prefixes == nullptr || rows.tokens.empty()) return {};
  if (rows.phase != Phase::kPrompt || rows.past % kPageTokens != 0) return {};
  SequenceHistory all = session.history;
  all.append(rows.tokens, rows.phase);
  PrefixCache::Taken taken = prefixes->take(
      *session.root, session.sequence, rows.past, all, blocks_of(session, rows.range),
      rows.past + rows.wanted.first(rows.count()), requester.gone);
  session.history.append(rows.tokens.first(taken.rows), rows.phase);
  return taken;
}

uint32_t step_end(const Session& session, const StageRange& range, uint32_t row,
                  uint32_t parts_at) {
  const PrefixCache* const prefixes = session.batcher->prefixes();
  if (!session.root || prefixes == nullptr || !session.range.from.is_tokens()) return UINT32_MAX;
  return prefixes->step_end(blocks_of(session, range), row, parts_at);
}

void keep_rows(Session& session, const StageRange& range, std::optional<uint32_t> snapshot) {
  PrefixCache* const prefixes = session.batcher->prefixes();
  if (!session.root || prefixes == nullptr || !session.range.from.is_tokens()) return;
  const uint32_t deep = session.batcher->pages().filled(session.sequence, session.range);
  session.kept = session.history.size();
  prefixes->put(*session.root, session.sequence, session.history,
                deep >= session.history.size() ? session.range : blocks_of(session, range),
                snapshot.value_or(PrefixCache::end_of(session.history)));
}

void keep_far(Session& session, const StageRange& range) {
  session.kept = std::min(session.kept, session.history.size());
  if (session.history.size() < session.kept + PrefixCache::kSnapshotEvery) return;
  if (session.batcher->pages().keeps_states(session.range)) keep_rows(session, range);
}

wire::LoadNote tell_load(const Cloud& cloud, ServedModel& model, const Session& session) {
  const Priority priority = cloud.keys.priority(session.name.owner);
  wire::LoadNote note = model.cut_requests().told(session.sequence, priority, session.can);
  if (model.batcher().shard().was_lost()) note.bits = wire::bits_mark(model.bits());
  return note;
}

void unknown_session() {
  throw http::HttpError(404, wire::codes::kSessionUnknown,
                        "no such session: PUT it and send its tokens again");
}

void describe_run(http::Response& response, const Job& job) {
  response.headers.set("Cache-Control", "no-store");
  response.headers.set("Server-Timing", cat("queue;dur=", job.queue_ms, ", compute;dur=",
                                            job.compute_ms, ", share;dur=", job.share_ms));
}

http::Response rows_in_json(const std::string& fields, std::string_view name, size_t rows,
                            size_t width, std::span<const float> values) {
  std::string json =
      cat("{", fields, "\"shape\":[", rows, ",", width, "],\"dtype\":\"f32\",\"", name, "\":[");
  json.reserve(json.size() + rows * width * kJsonBytesAFloat);
  for (size_t row = 0; row < rows; ++row) {
    if (row > 0) json += ',';
    wire::append_floats(json, values.subspan(row * width, width));
  }
  return http::Response::json(200, json + "]}\n");
}

http::Response unkept_json(int status, const std::string& json) {
  http::Response response = http::Response::json(status, json + "\n");
  response.headers.set("Cache-Control", "no-store");
  return response;
}

void pool_texts(const Sentences& sentences, std::span<const uint32_t> lengths,
                std::span<const float> states, size_t columns, bool normalize,
                std::vector<float>& out) {
  size_t at = 0;
  for (const uint32_t length : lengths) {
    const auto one = sentences.pool(states.subspan(at, length * columns), normalize);
    out.insert(out.end(), one.begin(), one.end());
    at += length * columns;
  }
}

void take_hidden(const http::Request& request) {
  if (sends_tensors(request)) request.memory->take(4 * request.body.size());  // q8_0 becomes floats
}

void expect_answer(size_t rows, size_t row_bytes) {
  if (rows * row_bytes <= kMaxAnswerBytes) return;
  throw http::HttpError(400, "answer_too_large",
                        cat("the answer would be over ", kMaxAnswerBytes >> 20,
                            " MiB: ask for fewer `rows`, or for Accept: application/octet-stream"),
                        "rows");
}

bool wants_tensors(const http::Request& request) {
  const auto accept = request.headers.get("Accept");
  return accept && accept->find(wire::kTensorType) != std::string_view::npos;
}

bool sends_tensors(const http::Request& request) {
  const auto type = request.headers.get("Content-Type");
  return type && type->starts_with(wire::kTensorType);
}

bool all_finite(std::span<const float> values) {
  return values_are_finite({DType::kF32, {}, std::as_bytes(values)});
}

void refuse_overflow(ServedModel& model, bool from_hidden) {
  if (const std::string& name = model.damaged_weight(); !name.empty()) {
    throw http::HttpError(500, "weights_damaged",
                          cat("the weights of the model ", shown(model.id()),
                              " are damaged: ", shown(name), " holds a value that is not finite"));
  }
  if (from_hidden)
    wire::Fields::refuse("hidden", "its values are so large that the result is not finite");
  const ShardOptions& options = model.batcher().shard().options();
  if (rounds_to_int8(options.profile) && options.kv != DType::kF16) {
    throw http::HttpError(500, wire::codes::kOverflow,
                          "the model computes values beyond 2^60, where rows in int8 end: serve it "
                          "with --profile bf16 or f32");
  }
  if (options.profile == Profile::kF32 && options.kv != DType::kF16) {
    throw Error(ErrorKind::kDevice, "[forward] the result is not finite");
  }
  throw http::HttpError(500, kHalfOverflow,
                        cat("the model computes values beyond f16, which ends at ", kMostHalf,
                            ": serve it with --profile bf16 or f32"));
}

void expect_halves(std::span<const float> values) {
  const auto beyond =
      std::ranges::find_if(values, [](float value) { return std::abs(value) > kMostHalf; });
  if (beyond == values.end()) return;
  throw http::HttpError(500, kHalfOverflow,
                        cat("a value of ", *beyond, " is beyond f16, which ends at ", kMostHalf,
                            ": ask for f32, and serve the model in bf16 or f32"));
}

}  // namespace split::cloud
