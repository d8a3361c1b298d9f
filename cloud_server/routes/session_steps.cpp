// Steps of sessions, and fills.
#include "cloud_server/routes/session_steps.h"

#include <utility>

#include "cloud_server/routes/job.h"
#include "wire/codes.h"
#include "wire/fields.h"
#include "wire/step.h"

namespace split::cloud {
namespace {

using http::HttpError;

[[noreturn]] void mismatch(uint32_t past, uint32_t have, std::string_view what = "past") {
  throw HttpError(409, wire::codes::kPositionMismatch, cat(what, " is ", past, ", have is ", have),
                  "past", {{"Split-Have", cat(have)}}, {{"have", have}});
}

// Throws unless the rows match their session and the model.
void check_rows(const SequenceRows& rows, const ModelConfig& config) {
  const Point from = rows.range.from;
  if (rows.hidden.empty() && !from.is_tokens()) {
    throw HttpError(
        400, "hidden_expected",
        cat("this session starts at block ", from.block(),
            ": send safetensors with `hidden` [rows, ", config.row_width(from.block()), "]"),
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

// Throws if the session has other ids than the client's text: rows of wrong guesses, left by a text
// that went on elsewhere.
void check_digest(const Session& session, std::optional<uint64_t> digest, uint32_t rows) {
  if (!digest) return;
  if (!session.range.from.is_tokens()) {
    wire::Fields::refuse("digest", "is for a session that starts at the embedding");
  }
  if (session.history.size() >= rows && session.history.digest(rows) == *digest) return;
  throw HttpError(409, wire::codes::kPositionMismatch,
                  cat("the session's first ", rows, " rows are of other ids"), "digest",
                  {{"Split-Have", "0"}}, {{"have", 0}});
}

[[noreturn]] void lacks_rows(uint32_t past, uint32_t have, Point to) {
  throw HttpError(409, wire::codes::kDepthMismatch,
                  cat("past is ", past, ", have is ", have, " in the blocks before ", to.name()),
                  "past", {{"Split-Have", cat(have)}}, {{"have", have}});
}

// Returns where a step ends: where it asks to, at most at the session's end; at the norm or the
// head only if the session ends behind the last block.
Point to_of(const wire::StepRequest& asked, const StageRange& session, int layers) {
  const Point to = asked.to.value_or(session.to);
  const bool behind = to > Point(layers), whole = session.to == Point(layers);
  if (to < session.from.block() || (behind ? !whole : to > session.to)) {
    wire::Fields::refuse("to", cat("expected ", session.from.block(), "..", session.to.name(),
                                   whole ? ", \"norm\" or \"head\"" : ""));
  }
  return to;
}

// The results of a session's rows, and their answer.
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
      response = rows_in_json(cat("\"past\":", past, ",\"have\":", have, ","),
                              wire::result_name(to_), rows_, width_, out_);
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
  const Point to_;
  const size_t rows_, width_;
  const DType format_;
  std::vector<float> out_;
  bool json_ = false;
};

// Fills rows in pages that others read: a fork of the sequence computes them in pages of its own,
// which the session takes if it lacks these rows.
void fill_apart(Session& session, ServedModel& model, Job& job) {
  Shard& shard = model.batcher().shard();
  KvPages& pages = shard.pages();
  StageRange blocks = job.rows.range;
  blocks.to = std::min(blocks.to, Point(model.config().layers));
  const uint32_t first = job.rows.past / kPageTokens * kPageTokens;
  const uint32_t end = job.rows.past + job.rows.count();
  const OneSequence fork(pages);
  if (!pages.fork(fork.id, session.sequence, blocks, first)) throw SequenceLost();
  const auto compute_to = [&](uint32_t row) {
    session.history.replay(
        row, [&] { return pages.filled(fork.id, blocks); },
        [&](SequenceRows piece) {
          piece.range = blocks;
          Job before{fork.id, piece, nullptr, job.requester};
          model.batcher().run(before);
        });
  };
  compute_to(job.rows.past);
  job.sequence = fork.id;
  job.fill = false;
  run_in_session(session, model, job);
  const uint32_t have = pages.length(session.sequence);
  if (have < end) throw SequenceLost();
  // The next slice goes on from there.
  shard.leave(fork.id, blocks, end / kPageTokens * kPageTokens);
  pages.name_latest(session.sequence, fork.id);
  if (pages.filled(session.sequence, blocks) >= end) return;
  const uint32_t page = (end + kPageTokens - 1) / kPageTokens * kPageTokens;
  compute_to(std::min(have, page));
  if (!shard.join(session.sequence, fork.id, blocks, first)) throw SequenceLost();
}

// Runs a request's job for a session's rows, and refuses results that are not finite.
void run_step(Cloud& cloud, Session& session, const http::Request& request, ServedModel& model,
              Job& job, std::span<const float> out) {
  // Fills that the cloud asked for are free.
  if (!job.fill || !model.cut_requests().asks(session.sequence)) {
    charge_rows(cloud, request, model, job.rows);
  }
  job.requester = requester_of(request);
  const uint32_t end = job.rows.past + job.rows.count();
  if (job.fill && !model.batcher().pages().owns(session.sequence, job.rows.past, end)) {
    fill_apart(session, model, job);
  } else {
    run_in_session(session, model, job);
  }
  if (!all_finite(out)) refuse_overflow(model, !job.rows.hidden.empty());
}

// Counts a step, and adds its time and the model's load to the answer.
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
                    const http::Request& request, const wire::StepRequest& asked,
                    StageRange range) {
  SequenceRows rows = asked.received.rows;
  rows.range = range;
  check_rows(rows, model.config());
  model.cut_requests().comes(session.sequence, rows.range.to);
  Shard& shard = model.batcher().shard();
  KvPages& pages = shard.pages();
  if (pages.length(session.sequence) < rows.past) {
    mismatch(rows.past, pages.length(session.sequence));
  }
  check_digest(session, asked.digest, rows.past);
  if (const uint32_t have = pages.filled(session.sequence, rows.range); have < rows.past) {
    lacks_rows(rows.past, have, rows.range.to);
  }
  StepAnswer answer(request, shard, rows.range.to, rows.wanted_count(), asked.wire);
  if (session.range.from.is_tokens()) {
    session.history.cut_back(rows.past);  // own_rows() cuts the pages, and computes what it must
  } else {
    pages.truncate(session.sequence, rows.past);
    // A state may not go back that far.
    const uint32_t have = pages.length(session.sequence);
    if (have < rows.past) mismatch(rows.past, have);
  }
  Job spent;
  uint32_t cached = 0;
  try {
    own_rows(session, rows, requester_of(request));
    const PrefixCache::Taken taken = take_rows(session, rows, requester_of(request));
    cached = taken.rows;
    const bool prompt = rows.phase == Phase::kPrompt;
    // A whole piece of a prompt may have more of it behind it, else the answer's first step leaves
    // the snapshot.
    const bool lacks = prompt && rows.count() == SequenceHistory::kPieceRows;
    if (std::exchange(session.lacks_snapshot, lacks) && !prompt) keep_rows(session, rows.range);
    if (!prompt) keep_far(session, rows.range);
    size_t delivered = 0;  // floats
    for (uint32_t at = cached, end; at < rows.count(); at = end) {
      const uint32_t row = rows.past + at,
                     stop =
                         prompt ? step_end(session, rows.range, row, taken.parts_at) : UINT32_MAX;
      end = std::min(rows.count(), stop - rows.past);
      const SequenceRows piece = rows.slice(at, end - at);
      const std::span<float> out =
          answer.out().subspan(delivered, piece.wanted_count() * shard.width(rows.range.to));
      Job job{session.sequence, piece, out.data()};
      run_step(cloud, session, request, model, job, out);
      delivered += out.size();
      spent.queue_ms += job.queue_ms;
      spent.compute_ms += job.compute_ms;
      spent.share_ms += job.share_ms;
      if (end < rows.count() || (lacks && rows.past + end == stop)) {
        keep_rows(session, rows.range, stop);
      }
    }
    if (prompt) keep_rows(session, rows.range, lacks ? std::optional(0u) : std::nullopt);
  } catch (const SequenceLost&) {
    mismatch(rows.past, pages.length(session.sequence));
  } catch (...) {
    // Rows that are not finite are dropped, from the session and from the prompt cache they came
    // from.
    if (!all_finite(answer.out())) {
      cut_back(session, pages, rows.past);
      if (cached > 0) model.batcher().prefixes()->forget(*session.root);
    }
    throw;
  }
  if (asked.again) model.count_again(session, rows.count() - cached);
  http::Response response = answer.response(rows.past, rows.past + rows.count());
  end_step(cloud, session, model, request, spent, response);
  if (cached > 0) response.headers.set(wire::kCachedHeader, cat(cached));
  return response;
}

// A fill in progress. It locks its session for one slice at a time, so that steps of the same text
// run between.
class Fill {
 public:
  Fill(const wire::StepRequest& asked, StageRange range)
      : past_(asked.received.rows.past),
        count_(asked.count),
        wanted_(asked.received.rows.wanted),
        wire_(asked.wire),
        digest_(asked.digest),
        range_(range) {}

  bool done() const { return at_ == count_; }
  // Runs the next slice; returns the answer after the last.
  http::Response slice(Cloud& cloud, Session& session, ServedModel& model,
                       const http::Request& request) {
    Shard& shard = model.batcher().shard();
    const KvPages& pages = shard.pages();
    const uint32_t have = pages.length(session.sequence), past = past_ + at_;
    if (past_ + count_ > have) mismatch(past_ + count_, have, "the end of the fill");
    if (at_ == 0) check_digest(session, digest_, past_ + count_);
    if (const uint32_t there = pages.filled(session.sequence, range_); there < past) {
      lacks_rows(past, there, range_.to);
    }
    if (!answer_) answer_.emplace(request, shard, range_.to, wanted_.count(count_), wire_);
    // A state that is past these rows comes to them from earlier ones, which are not asked for.
    KvPages::Again again = pages.again(session.sequence, range_, past);
    const uint32_t end = past + std::min(count_ - at_, kSliceRows);
    // A fork has states of its own.
    if (!pages.owns(session.sequence, again.from, end)) again = {.from = past, .to = range_.to};
    const bool before = again.from < past;
    const uint32_t most = before ? again.from + kSliceRows : end;
    SequenceRows rows = session.history.piece(again.from, std::min(most, again.end));
    rows.range = {range_.from, again.to};
    rows.wanted = before ? Wanted(Wanted::kNone) : wanted_.slice(count_, at_, rows.count());
    const std::span<float> out =
        answer_->out().subspan(delivered_, rows.wanted_count() * shard.width(range_.to));
    Job job{session.sequence, rows, out.data()};
    job.fill = true;
    try {
      run_step(cloud, session, request, model, job, out);
    } catch (const SequenceLost&) {
      mismatch(past, pages.length(session.sequence));
    }
    if (!before) at_ += rows.count();
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
  static constexpr uint32_t kSliceRows = 64;  // the batcher's slice too

  const uint32_t past_, count_;
  const Wanted wanted_;
  const DType wire_;
  const std::optional<uint64_t> digest_;
  const StageRange range_;
  std::optional<StepAnswer> answer_;
  uint32_t at_ = 0;
  size_t delivered_ = 0;  // floats
  Job spent_;
};

}  // namespace

const std::string& checked_id(const http::Request& request, size_t param) {
  const std::string& id = request.path_params[param];
  if (!is_lower_hex(id, 32)) {
    throw HttpError(400, "invalid_session_id", "expected 32 hex digits (0-9, a-f)", "id");
  }
  return id;
}

SessionName name_of(const http::Request& request) {
  return {checked_id(request), request.principal};
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
        sends_tensors(request) ? wire::parse_step(request.query_params, as_bytes_of(request.body),
                                                  config, session.range.from)
                               : wire::parse_step(request.body, config, request.memory.get());
    const StageRange range{session.range.from, to_of(asked, session.range, config.layers)};
    if (asked.can) session.can = asked.can;
    if (asked.fill) {
      if (!range.from.is_tokens()) {
        wire::Fields::refuse("fill", "is for a session that starts at the embedding");
      }
      response = fill.emplace(asked, range).slice(cloud, session, model, request);
    } else {
      response = step(cloud, session, model, request, asked, range);
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

}  // namespace split::cloud
