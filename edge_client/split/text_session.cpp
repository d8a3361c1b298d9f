#include "edge_client/split/text_session.h"

#include <algorithm>
#include <cmath>

namespace split::edge {
namespace {

bool is_finite(float value) { return std::isfinite(value); }

// The deepest of all cuts, which sessions are opened for; for cuts beyond the last block that is
// all blocks.
int deepest_of(const Model& model, Cut cut, const MoveOptions* moves) {
  if (moves != nullptr) {
    cut = std::max(cut, moves->deepest);
    for (const Target& target : moves->targets) {
      if (target.cut.is_cloud()) cut = target.cut;
    }
  }
  return cut.blocks(model.config().layers);
}

}  // namespace

TextSession::TextSession(const Model& model, Cut cut, Batcher* tail, const RetryOptions& retry,
                         SplitCounts& counts, Requester requester, const MoveOptions* moves)
    : retry_(retry),
      counts_(counts),
      sides_(model, cut, deepest_of(model, cut, moves), tail, std::move(requester)),
      cloud_(sides_, flow_, retry_, counts),
      shared_(sides_) {
  CHECK(cut != 0 || tail != nullptr);
  if (moves == nullptr) return;
  CHECK(sides_.cut.is_cloud() || head_here() || moves->targets.empty());
  cloud_.mover = &mover_.emplace(sides_, *moves, retry);
}

std::vector<std::string> TextSession::leave() {
  std::vector<std::string> sessions;
  if (mover_) {
    counts_ += mover_->take_counts();
    sessions = mover_->leave();
  }
  CloudSide& cloud = sides_.cloud;
  if (std::exchange(cloud.open, false) && cloud.reachable) sessions.push_back(cloud.session);
  return sessions;
}

Flow& TextSession::run(const SequenceRows& rows) {
  flow_.start(run_rows(rows));
  return flow_;
}

// Notes rows that led to the text, with the number of layers that ran on the cloud.
void TextSession::lead(std::span<const int32_t> tokens, Phase phase, int cloud_layers) {
  sides_.history.append(tokens, phase);
  led_layers_ = static_cast<uint64_t>(cloud_layers);
  counts_.work.rows += tokens.size();
  counts_.work.cloud_layer_rows += tokens.size() * led_layers_;
}

// Takes back the rows behind `past`, which the last calls of lead() noted.
void TextSession::forget_rows(uint32_t past) {
  const uint32_t rows = sides_.history.size() - std::min(sides_.history.size(), past);
  sides_.history.cut_back(past);
  counts_.work.rows -= rows;
  counts_.work.cloud_layer_rows -= rows * led_layers_;
}

Flow& TextSession::meet(uint32_t past) {
  CHECK(past >= sides_.prompt_rows);
  out_ = past + 1 - sides_.prompt_rows;
  const uint32_t guesses = sides_.history.size() - std::min(sides_.history.size(), past);
  // A mover that waits may have rows to bring now.
  if (std::exchange(sides_.guesses, guesses) != guesses) ++sides_.version;
  flow_.start(meet_mover());
  return flow_;
}

Flow& TextSession::stream(std::span<const int32_t> ids, size_t prompt,
                          const GenerateOptions& options) {
  CHECK(sides_.cut.is_cloud());
  streamed_.ids.assign(ids.begin(), ids.end());
  streamed_.finish_reason = FinishReason::kNone;
  flow_.start(run_stream(prompt, options));
  return flow_;
}

// Runs a token and its guesses, or rows of a prompt. At a token the cut may move.
Task<void> TextSession::run_rows(SequenceRows rows) {
  CHECK(!sides_.cut.is_cloud() && !rows.tokens.empty());
  ++counts_.steps;
  const SequenceRows all = rows;
  const Cut cut = sides_.cut;
  std::optional<PrefixCache::Taken> known;  // lives until the rows are computed
  co_await shared_.take(rows, known);
  if (known && known->rows > 0) {
    kept_rows_ = known->rows;
    cloud_.begins_behind();
  }
  if (const uint32_t kept = std::exchange(kept_rows_, 0); kept > rows.past) {
    CHECK(rows.wanted == Wanted::kLast && kept < rows.past + rows.count());
    rows = rows.slice(kept - rows.past, rows.past + rows.count() - kept);
  }
  const bool head_away = rows.range.to == Point::head() && !head_here();
  if (head_away) rows.range.to = sides_.layers();
  if (mover_ && rows.phase == Phase::kGenerate) {
    forget_guesses(rows.past);
    out_ = rows.past + 1 - sides_.prompt_rows;
    sides_.guesses = static_cast<uint32_t>(rows.count()) - 1;
  }
  for (bool done = false; !done;) {
    try {
      co_await pass(rows);
      done = true;
    } catch (const CloudLost&) {
    }
    if (!done) leave_cloud(rows.past);
    if (done && known && known->rows > 0 && !std::ranges::all_of(results_, is_finite)) {
      shared_.forget();
      forget_rows(known->rows);
      sides_.history.cut_back(0);
      known.reset();
      rows = all;
      done = false;
    }
  }
  if (all.phase == Phase::kPrompt && all.past == 0) count_cached(known ? known->rows : 0, cut);
  if (head_away) co_await run_head();
  if (mover_) settle_moves();
}

// Counts the rows of the prompt that no side computed: the tail had `here` of them cached, if it
// has blocks.
void TextSession::count_cached(uint32_t here, Cut cut) {
  if (counts_.cached_rows > 0 || sides_.cut != cut) return;
  counts_.cached_rows = cut == 0                 ? here
                        : cut == sides_.layers() ? cloud_.cached()
                                                 : std::min(here, cloud_.cached());
  if (cut == sides_.layers()) counts_.spare(counts_.cached_rows, led_layers_);
}

// Replaces the results by their logits, which the cloud computes until the text leaves it.
Task<void> TextSession::run_head() {
  const std::vector<float> hidden = std::exchange(results_, {});
  const SequenceRows rows{.range = {sides_.layers(), Point::head()},
                          .hidden = hidden,
                          .width = static_cast<uint32_t>(sides_.width(sides_.layers())),
                          .wanted = Wanted::kAll};
  cloud_.is_asked();
  for (Backoff backoff(retry_); !head_here();) {
    std::optional<RemoteError> error;
    const Send asked{Send::kForward, {}, rows, &counts_.traffic};
    try {
      results_ = co_await asked;
      cloud_.answered();
      co_return;
    } catch (const RemoteError& refused) {
      error = refused;
    }
    if (!co_await cloud_.is_lost(*error, backoff)) continue;
    backoff.gave_up();
    leave_cloud(sides_.history.size());
  }
  results_.resize(rows.count() * sides_.tail->shard().width(rows.range.to));
  co_await run_here(rows, results_.data(), sides_.tail->passing());
}

// Drops the rows behind `past`, which came from wrong guesses.
void TextSession::forget_guesses(uint32_t past) {
  forget_rows(past);
  sides_.guesses = 0;
}

// Notes a move, whose cost lasts until the next token is there.
void TextSession::note(Move move) {
  if (unsettled_.moves.empty()) {
    unsettled_.since = flow_.now();
    unsettled_.bytes_before = counts_.traffic.bytes_up + counts_.traffic.bytes_down;
  }
  unsettled_.moves.push_back(move);
}

void TextSession::leave_cloud(uint32_t rows) {
  cloud_.is_left();
  note(mover_->leave_cloud(out_, rows));
}

// Counts what each move has spared the cloud, with so many rows that lead to the text.
void TextSession::count_saved(uint32_t rows) {
  for (Move& move : counts_.moves) {
    const int64_t since = int64_t{rows} - (int64_t{sides_.prompt_rows} + move.at - 1);
    move.cloud_layer_rows_saved = (sides_.blocks(move.from) - sides_.blocks(move.to)) * since;
  }
}

void TextSession::end(uint32_t rows) {
  rows = std::min(rows, sides_.history.size());
  forget_guesses(rows);
  count_saved(rows);
}

void TextSession::settle_moves() {
  counts_ += mover_->take_counts();
  if (unsettled_.moves.empty()) return count_saved(sides_.sure_rows());
  Move& last = unsettled_.moves.back();
  last.bytes += counts_.traffic.bytes_up + counts_.traffic.bytes_down - unsettled_.bytes_before;
  last.pause_ms = std::chrono::duration<double, std::milli>(flow_.now() - unsettled_.since).count();
  counts_.moves.insert(counts_.moves.end(), unsettled_.moves.begin(), unsettled_.moves.end());
  unsettled_.moves.clear();
  count_saved(sides_.sure_rows());
}

// Moves the cut if the mover is ready. Waits for a target that is due while that makes progress.
Task<void> TextSession::meet_mover() {
  if (!mover_) co_return;
  counts_ += mover_->take_counts();
  if (!sides_.cut.is_cloud()) mover_->token(out_, flow_.now());
  while (!mover_->can_switch(out_, flow_.now()) && mover_->is_waited_for(out_)) {
    if (sides_.interrupted) throw RemoteError("[edge] interrupted", 0, "");
    co_await Wait{};
  }
  if (mover_->can_switch(out_, flow_.now())) note(mover_->take(out_, flow_.now()));
}

// Takes the cloud's tokens until the text ends or goes on elsewhere.
Task<void> TextSession::run_stream(size_t prompt, GenerateOptions options) {
  const size_t end = streamed_.ids.size() + static_cast<size_t>(options.max_tokens);
  if (streamed_.ids.size() > prompt) {
    const auto past = static_cast<uint32_t>(streamed_.ids.size()) - 1;
    forget_guesses(past);
    while (sides_.held()) co_await Wait{};
    forget_tail(past);
  }
  cloud_.is_asked();
  for (Backoff backoff(retry_);;) {
    options.generated = streamed_.ids.size() - prompt;
    options.max_tokens = static_cast<int>(end - streamed_.ids.size());
    std::optional<RemoteError> error;
    try {
      co_await stream_tokens(prompt, options, backoff);
      co_return;
    } catch (const RemoteError& refused) {
      error = refused;
    }
    const bool lost = co_await cloud_.is_lost(*error, backoff);
    if (lost) backoff.gave_up();
    if (lost) leave_cloud(sides_.history.size());
    if (lost || to_switch()) co_return;
    if (sides_.history.size() > 0) cloud_.begins_again();
  }
}

// Whether a streamed text is to switch its cut.
bool TextSession::to_switch() const {
  return mover_ && out_ > 0 &&
         (mover_->can_switch(out_, flow_.now()) || mover_->is_waited_for(out_));
}

Task<void> TextSession::stream_tokens(size_t prompt, GenerateOptions options, Backoff& backoff) {
  ++counts_.trips;
  const Stream asked{sides_.cloud.session, streamed_.ids,    std::move(options), &counts_,
                     cloud_.can(),         cloud_.is_again()};
  sides_.cloud.open = true;  // possibly, from now on
  StreamEvent event = co_await asked;
  for (; event.token; event = co_await NextToken{}) {
    backoff.succeeded();
    cloud_.heed_load();
    streamed(*event.token, prompt);
    if (to_switch()) co_return;
  }
  streamed_.finish_reason = event.finish_reason;
}

// Notes that the session has the rows that led to the token.
void TextSession::streamed(const ScoredToken& token, size_t prompt) {
  ++counts_.steps;
  SequenceHistory& history = sides_.history;
  const uint32_t past = history.size();
  const auto rows = std::span<const int32_t>(streamed_.ids).subspan(past);
  const size_t of_prompt = past < prompt ? std::min(rows.size(), prompt - past) : 0;
  lead(rows.first(of_prompt), Phase::kPrompt, sides_.layers());
  lead(rows.subspan(of_prompt), Phase::kGenerate, sides_.layers());
  ++counts_.work.heads;
  ++counts_.work.cloud_heads;
  sides_.prompt_rows = static_cast<uint32_t>(prompt);
  cloud_.answered();
  sides_.cloud.rows.step(0, history.size(), sides_.layers());  // also rows that it lacked
  counts_.cloud_layer_rows += rows.size() * led_layers_;
  if (past == 0 && flow_.load()) {
    counts_.cached_rows = std::min<uint64_t>(flow_.load()->cached, prompt);
    counts_.spare(counts_.cached_rows, led_layers_);
  }
  streamed_.ids.push_back(token.id);
  out_ = static_cast<uint32_t>(streamed_.ids.size() - prompt);
  ++sides_.version;
  if (!mover_) return;
  settle_moves();
  mover_->token(out_, flow_.now());
}

// Puts the rows that one side lacks at a new cut in front of `rows`, and returns their number. A
// side that lacks more has just lost them, and gets them again as at any token.
uint32_t TextSession::add_lag(SequenceRows& rows) {
  if (rows.phase != Phase::kGenerate) return 0;
  uint32_t past = rows.past;
  const auto include = [&](uint32_t there) {
    if (there >= sides_.prompt_rows && sides_.near_end(there)) past = std::min(past, there);
  };
  if (sides_.cut < sides_.layers()) include(sides_.tail->rows_from(sides_.blocks()));
  if (sides_.cut > 0) include(sides_.cloud.rows.below(sides_.blocks()));
  const uint32_t lag = rows.past - past;
  if (lag == 0) return 0;
  if (!unsettled_.moves.empty()) {
    unsettled_.moves.back().cloud_layer_rows_cost +=
        uint64_t{lag} * static_cast<uint64_t>(sides_.blocks());
  }
  const SequenceRows before = sides_.history.piece(past, rows.past);
  with_lag_.assign(before.tokens.begin(), before.tokens.end());
  with_lag_.insert(with_lag_.end(), rows.tokens.begin(), rows.tokens.end());
  rows.past = past;
  rows.tokens = with_lag_;
  return lag;
}

// Drops the tail's rows behind `past`; returns how many are left, fewer where others read their
// pages, and these are computed again. The sequence must be in no job.
uint32_t TextSession::forget_tail(uint32_t past) {
  return sides_.tail ? sides_.tail->pages().own(sides_.tail->sequence(), past) : past;
}

// Passes the rows through both sides into results_.
Task<void> TextSession::pass(SequenceRows rows) {
  while (sides_.held()) co_await Wait{};
  const uint32_t lag = mover_ ? add_lag(rows) : 0;
  forget_rows(rows.past + lag);
  sides_.cloud.rows.cut_back(rows.past);
  const Point to = rows.range.to;
  const bool local = sides_.tail != nullptr && to > sides_.blocks();
  const bool keeps_rows = local && sides_.cut < sides_.layers();  // the tail has a KV cache
  // A tail that gets none of these rows may have some from wrong guesses.
  forget_tail(keeps_rows ? rows.past : rows.past + lag);
  const size_t width = local ? sides_.tail->shard().width(to) : sides_.width(sides_.blocks());
  results_.resize(rows.wanted_count() * width);
  float* out = results_.data();
  const bool prompt = rows.phase == Phase::kPrompt;
  if (!prompt && keeps_rows && unsettled_.moves.empty()) shared_.put_far();
  for (uint32_t at = 0, end; at < rows.count(); at = end) {
    if (sides_.interrupted) throw RemoteError("[edge] interrupted", 0, "");
    const uint32_t stop = prompt ? shared_.step_end(rows.past + at) - rows.past : UINT32_MAX;
    end = std::min({at + SequenceHistory::kPieceRows, rows.count(), stop});
    const SequenceRows piece = rows.slice(at, end - at);
    SequenceRows ours = piece;
    std::vector<float> hidden;
    if (sides_.cut > 0) {
      // Without blocks here only the rows whose results are wanted need to travel.
      hidden = co_await cloud_.ask(piece, keeps_rows || rows.wanted == Wanted::kAll);
      ours = sides_.behind(sides_.blocks(), piece, hidden);
    }
    if (keeps_rows) {
      co_await run_here(ours, out, sides_.tail->sequence());
    } else if (piece.wanted_count() > 0 && local) {
      ours.past = 0;
      co_await run_here(ours, out, sides_.tail->passing());
    } else if (piece.wanted_count() > 0) {
      std::ranges::copy(hidden, out);
    }
    out += piece.wanted_count() * width;
    const size_t skipped = std::min<size_t>(lag - std::min(lag, at), piece.count());
    lead(piece.tokens.subspan(skipped), piece.phase, sides_.blocks());
    if (prompt) {
      sides_.prompt_rows = sides_.history.size();
      const bool last = end == rows.count();
      if (unsettled_.moves.empty()) {
        shared_.put(last ? std::nullopt : std::optional(end == stop ? rows.past + end : 0));
      }
    }
    ++sides_.version;
  }
  if (rows.wanted != Wanted::kAll) co_return;
  results_.erase(results_.begin(), results_.begin() + static_cast<ptrdiff_t>(lag * width));
}

// Computes the rows on the tail, and earlier ones again if it lost them. The passing sequence keeps
// no rows.
Task<void> TextSession::run_here(SequenceRows rows, float* out, SequenceId sequence) {
  TailSide& tail = *sides_.tail;
  Job job{sequence, rows, out, sides_.requester};
  const bool keeps_rows = sequence == tail.sequence();
  for (;;) {
    if (!keeps_rows) tail.pages().cut_back(sequence, 0);
    try {
      while (sides_.held()) co_await Wait{};
      const auto hold = sides_.hold();
      co_await Compute{&tail.batcher(), &job, &counts_.edge_ms};
      co_return;
    } catch (const SequenceLost&) {
    }
    // The cloud computes the hidden states of lost rows once more.
    for (uint32_t at; keeps_rows && (at = tail.rows_from(sides_.blocks())) < rows.past;) {
      SequenceRows piece = sides_.history.piece(at, rows.past);
      piece.range.to = sides_.layers();
      std::vector<float> hidden;
      if (sides_.cut > 0) {
        hidden = co_await cloud_.ask(piece, true);
        piece = sides_.behind(sides_.blocks(), piece, hidden);
      }
      co_await run_here(piece, nullptr, sequence);
    }
  }
}

}  // namespace split::edge
