#include "edge_client/split/cut_mover.h"

#include <algorithm>
#include <array>

#include "wire/codes.h"

namespace split::edge {
namespace {

// Effectively unlimited: transient errors are always retried.
constexpr std::chrono::hours kPatience{24};

// A text that outruns the mover for so many pieces is left alone for a while.
constexpr int kLostRaces = 3;
constexpr std::chrono::seconds kRest{1};

// How often a text that is all here for the cloud's sake asks whether that is still the cloud's
// wish. The cloud moves a tenth of its texts in half a second, and so they come back no faster than
// they went.
constexpr std::chrono::seconds kBetweenLooks{10};
// How often a text that fled from a lost cloud asks whether that answers again.
constexpr std::chrono::seconds kBetweenTries{2};

// The text goes on meanwhile, so that retries may take any time.
RetryOptions patient(RetryOptions options) {
  options.budget = kPatience;
  options.on_lost = {};
  options.on_found = {};
  return options;
}

}  // namespace

CutMover::CutMover(SplitState& sides, const MoveOptions& options, const RetryOptions& retry)
    : sides_(sides),
      options_(options),
      backoff_(patient(retry)),
      place_({.layers = sides.layers(),
              .cut = sides.cut,
              .named = !options.targets.empty(),
              .pace = options.pace,
              .between_ms = static_cast<double>(options.between.count()),
              .between_wishes_ms = static_cast<double>(options.between_wishes.count())}),
      targets_(options.targets),
      next_cloud_(sides.layers()) {
  next_target();
  flow_.start(run());
}

void CutMover::aim(Cut cut, Batcher* tail, std::shared_ptr<void> keeps) {
  place_.in.named = true;
  Target target{.cut = cut};
  TailSide* const here = sides_.tail.get();
  const bool same = here != nullptr && (tail == nullptr || &here->batcher() == tail);
  if (!cut.is_cloud() && !same && (here == nullptr || !here->has(cut.blocks()))) {
    CHECK(tail != nullptr);
    target.tail = std::make_shared<TailSide>(*tail, std::move(keeps));
  }
  targets_ = {std::move(target)};
  next_target();
}

void CutMover::next_target() {
  target_.reset();
  while (!target_ && !targets_.empty()) {
    target_ = std::move(targets_.front());
    targets_.pop_front();
    if (target_->cut == sides_.cut) target_.reset();
  }
  ++aims_;
  work_ = {};
  backoff_.succeeded();
  state_ = State::kIdle;
  ++sides_.version;
}

void CutMover::offer(Batcher& tail, std::shared_ptr<void> keeps, const LocalWeights& offer) {
  const bool same = sides_.tail && &sides_.tail->batcher() == &tail;
  if (same) offered_ = sides_.tail;
  if (!offered_ || &offered_->batcher() != &tail) {
    offered_ = std::make_shared<TailSide>(tail, std::move(keeps));
  }
  place_.offer(offer);
  decide();
}

std::optional<int> CutMover::can() const {
  if (!offered_ || !offered_->has(sides_.layers())) return std::nullopt;
  const Point floor = offered_->shard().floor();
  return place_.lowest(floor.is_tokens() ? 0 : floor.block());
}

void CutMover::wish(std::optional<int> want) {
  if (std::exchange(place_.in.want, want) != want) decide();
}

void CutMover::decide() {
  PlaceInput& in = place_.in;
  in.rows = sides_.sure_rows();
  in.going = target_ ? std::optional(Decision{target_->cut, target_->why}) : std::nullopt;
  in.prepared_rows = rows_there();
  in.prepared_layer_rows = work_.layer_rows;
  in.lowest = can();
  const std::optional<Decision> next = place_.next();
  if (next == in.going) return;
  targets_.clear();
  if (next) {
    targets_.push_back({.cut = next->cut, .why = next->why});
    const bool same = sides_.tail && offered_ && &sides_.tail->batcher() == &offered_->batcher();
    if (next->cut < sides_.cut) targets_.back().tail = same ? sides_.tail : offered_;
  }
  next_target();
}

void CutMover::enter(State state) {
  if (std::exchange(state_, state) != state) ++sides_.version;
}

std::string CutMover::state() const {
  constexpr std::array kNames = {"idle", "weights", "filling", "ready", "waiting"};
  std::string name = kNames.at(static_cast<size_t>(state_));
  if (state_ != State::kFilling) return name;
  return cat(name, " ", std::min(rows_there(), sides_.sure_rows()), "/", sides_.sure_rows());
}

// Leading rows that the blocks which change sides have at the target.
uint32_t CutMover::rows_there() const {
  if (!target_) return 0;
  if (target_->cut > sides_.cut) return cloud().rows.below(sides_.blocks(target_->cut));
  return tail() ? tail()->rows_from(sides_.blocks(target_->cut)) : 0;
}

void CutMover::token(uint32_t out, Moment now) {
  if (std::exchange(moved_at_, std::nullopt)) ++sides_.version;
  const std::optional<double> token_ms = place_.token(out, now);
  if (token_ms && options_.stays && !std::exchange(told_stays_, true)) {
    options_.stays(*place_.in.quicker, *token_ms);
  }
  decide();
}

bool CutMover::weights_there() const {
  return target_->cut.is_cloud() || (tail() && tail()->has(target_->cut.blocks()));
}

bool CutMover::can_switch(uint32_t out, Moment now) const {
  if (!target_ || stays() || appending_ || out < target_->at.value_or(0)) return false;
  if (!weights_there() || !sides_.near_end(rows_there())) return false;
  return place_.may_switch({target_->cut, target_->why}, target_->at.has_value(), now);
}

uint32_t CutMover::tokens_until_due(uint32_t out) const {
  if (!target_ || stays() || !target_->at) return UINT32_MAX;
  return *target_->at - std::min(out, *target_->at);
}

bool CutMover::is_waited_for(uint32_t out) const {
  return target_ && target_->at && out >= *target_->at && !stays() && !backoff_.failing();
}

Move CutMover::take(uint32_t out, Moment now) {
  const uint32_t all = sides_.sure_rows();
  const PlaceInput& in = place_.in;
  Move move{.at = out,
            .from = sides_.cut,
            .to = target_->cut,
            .why = target_->why,
            .token_ms = in.token_ms.value_or(0),
            .there_ms = in.fled_from ? in.fled_token_ms.value_or(0)
                        : in.quicker ? in.quicker->token_ms
                                     : 0,
            .rows = work_.rows + all - std::min(rows_there(), all),
            .bytes = work_.bytes,
            .cloud_layer_rows_cost = std::exchange(spent_, 0)};
  if (sides_.cut == 0) {
    sides_.cloud = std::exchange(next_cloud_, CloudSide(sides_.layers()));
    next_asked_ = false;
  } else if (target_->cut == 0) {
    CloudSide old = std::exchange(sides_.cloud, CloudSide(sides_.layers()));
    if (old.open && old.reachable) ended_.push_back(std::move(old.session));
  }
  if (target_->tail) sides_.tail = target_->tail;
  place_.moved({target_->cut, target_->why}, now);
  sides_.cut = target_->cut;
  moved_at_ = out;
  next_target();
  decide();
  return move;
}

SplitCounts CutMover::take_counts() {
  SplitCounts all = std::exchange(settled_, {});
  all.beside_cloud_ms = all.traffic.cloud_ms;
  all.beside_wire_ms = all.traffic.wire_ms;
  all.beside_edge_ms = all.edge_ms;
  return all;
}

std::shared_ptr<TailSide> CutMover::whole() const {
  for (const auto& tail : {sides_.tail, target_ ? target_->tail : nullptr, offered_, rescue_}) {
    if (tail && tail->has(0)) return tail;
  }
  return nullptr;
}

void CutMover::rescued(std::shared_ptr<TailSide> whole) {
  is_beyond_rescue_ = whole == nullptr;
  rescue_ = std::move(whole);
}

Move CutMover::leave_cloud(uint32_t out, uint32_t rows) {
  place_.fled();
  sides_.tail = whole();
  Move move{.at = out,
            .from = sides_.cut,
            .to = 0,
            .why = Why::kCloudLost,
            .rows = rows - std::min(rows, sides_.tail->rows_from(0)),
            .cloud_layer_rows_cost = std::exchange(spent_, 0)};
  // The server still has the session if only the connection was lost.
  CloudSide old = std::exchange(sides_.cloud, CloudSide(sides_.layers()));
  if (old.open) ended_.push_back(std::move(old.session));
  sides_.cut = 0;
  if (target_ && target_->why != Why::kFastest) targets_.push_front(*target_);
  next_target();
  return move;
}

std::vector<std::string> CutMover::leave() {
  std::vector<std::string> all = std::exchange(ended_, {});
  if (std::exchange(next_asked_, false)) all.push_back(next_cloud_.session);
  return all;
}

Task<void> CutMover::run() {
  for (;;) {
    std::optional<RemoteError> error;
    try {
      co_await close_old();
      if (hopes()) {
        co_await look();
      } else if (!target_) {
        co_await Wait{};
      } else {
        co_await prepare();
      }
    } catch (const RemoteError& refused) {
      error = refused;
    } catch (const SequenceLost&) {  // retried with the rows that are left
    } catch (const Error& failed) {  // out of memory, for example
      error.emplace(failed.what(), 503, "");
    }
    if (error) co_await wait_after(*error);
  }
}

// Ends the sessions that the text left.
Task<void> CutMover::close_old() {
  while (!ended_.empty()) {
    const Send asked{Send::kClose, ended_.back(), {}, &flying_.traffic};
    co_await asked;
    std::erase(ended_, asked.session);
  }
}

// Whether only a question can bring the end of the cloud's wish: the text has no steps or fills
// there.
bool CutMover::hopes() const {
  return !target_ && sides_.cut == 0 && (place_.in.before_wish || place_.in.fled_from);
}

// Asks the cloud some time later, unless something else comes first. Only the end of its wish
// counts: a load that is told in a look is meant for no particular text.
Task<void> CutMover::look() {
  for (const Moment due = flow_.now() + (place_.in.fled_from ? kBetweenTries : kBetweenLooks);
       flow_.now() < due;) {
    co_await Wait{.until = due, .hears = true};
    if (!hopes() || !ended_.empty()) co_return;
  }
  const Send asked{Send::kLook, {}, {}, &flying_.traffic};
  try {
    co_await asked;
  } catch (const RemoteError&) {  // the text needs no cloud now
    co_return;
  }
  place_.in.cloud_is_back = place_.in.fled_from.has_value();
  if (place_.in.cloud_is_back) decide();
  if (hopes() && flow_.load() && !flow_.load()->want) wish({});
}

// Brings the target one step nearer: weights, a piece of rows, or nothing for now.
Task<void> CutMover::prepare() {
  // The token behind a move does not wait for the next move, unless that is due at once.
  if (moved_at_ && target_->at.value_or(UINT32_MAX) > *moved_at_) {
    co_await Wait{};
    co_return;
  }
  const bool there = weights_there();
  if (!there || sides_.near_end(rows_there(), kEnough)) {
    if (there) backoff_.succeeded();
    enter(there ? State::kReady : State::kWeights);
    co_await Wait{};
    co_return;
  }
  enter(State::kFilling);
  // Copies the tokens: the history may reallocate while they are on their way.
  const bool here = target_->cut < sides_.cut;
  SequenceRows piece = sides_.history.piece(
      here ? tail()->again(target_->cut.blocks(), rows_there()).from : rows_there(),
      sides_.sure_rows());
  const std::vector<int32_t> tokens(piece.tokens.begin(), piece.tokens.end());
  piece.tokens = tokens;
  const uint64_t aim = aims_;
  if (target_->cut > sides_.cut) {
    co_await fill_cloud(piece);
  } else {
    co_await fill_tail(piece);
  }
  if (aim != aims_) co_return;
  backoff_.succeeded();
  co_await rest_after_races();
}

// Rests where a target that the text does not wait for cannot be reached at the present rate.
Task<void> CutMover::rest_after_races() {
  const uint32_t lag = sides_.sure_rows() - std::min(rows_there(), sides_.sure_rows());
  work_.lost_races = lag >= std::exchange(work_.last_lag, lag) ? work_.lost_races + 1 : 0;
  if (target_->at || work_.lost_races < kLostRaces) co_return;
  work_.lost_races = 0;
  enter(State::kWaiting);
  co_await Wait{flow_.now() + kRest};
}

// Fills the cloud's session: blocks from the target's cut on stay here, the cloud computes the ones
// before.
Task<void> CutMover::fill_cloud(SequenceRows piece) {
  piece.range.to = sides_.blocks(target_->cut);
  const bool opens = sides_.cut == 0 && !next_cloud_.open;
  if (opens) {
    next_cloud_.rows.cut_back(0);
    next_asked_ = true;
    piece = {.range = {.to = sides_.deepest}};
  }
  co_await ask(sides_.cut > 0 ? Send::kFill : opens ? Send::kOpen : Send::kStep, piece);
  if (opens) next_cloud_.open = true;
}

// Sends rows to the session, and notes that it has them.
Task<std::vector<float>> CutMover::ask(Send::Call call, SequenceRows rows) {
  const std::string session = cloud().session;
  const bool alone = sides_.cut == 0;
  const uint32_t known = rows.past + (call == Send::kFill ? rows.count() : 0);
  const Send asked{call, session, rows, &flying_.traffic, {}, sides_.history.digest(known)};
  std::vector<float> values;
  std::exception_ptr error;
  appending_ = call != Send::kFill;
  try {
    values = co_await asked;
  } catch (...) {
    error = std::current_exception();
  }
  appending_ = false;
  const Traffic traffic = std::exchange(flying_.traffic, {});
  settled_.traffic += traffic;
  work_.bytes += traffic.bytes_up + traffic.bytes_down;
  if (error) std::rethrow_exception(error);
  CloudSide& side = alone ? next_cloud_ : sides_.cloud;
  if (call == Send::kOpen || side.session != session) co_return values;
  const int to = rows.range.to.block();
  const uint64_t layer_rows = uint64_t{rows.count()} * static_cast<uint64_t>(to);
  settled_.cloud_layer_rows += layer_rows;
  work_.layer_rows += layer_rows;
  spent_ += layer_rows;
  work_.rows += rows.count();
  const auto note = call == Send::kStep ? &FilledRows::step : &FilledRows::fill;
  (side.rows.*note)(rows.past, rows.past + rows.count(), to);
  ++sides_.version;
  co_return values;
}

// Fills the blocks that the tail gets, from the hidden states in front of them or from the tokens.
Task<void> CutMover::fill_tail(SequenceRows piece) {
  const uint64_t aim = aims_;
  const int cut = target_->cut.blocks();
  std::vector<float> hidden;
  if (cut > 0) {
    SequenceRows below = piece;
    below.range.to = cut;
    below.wanted = Wanted::kAll;
    hidden = co_await ask(Send::kFill, below);
    piece = sides_.behind(cut, piece, hidden);
  } else {
    work_.rows += piece.count();
  }
  for (uint32_t at = 0; at < piece.count() && aim == aims_;) {
    while (sides_.held()) co_await Wait{};
    if (aim != aims_) co_return;
    const uint32_t past = piece.past + at, length = tail()->pages().length(tail()->sequence());
    if (tail()->rows_from(cut) < past) co_return;  // dropped meanwhile
    uint32_t count = std::min(kSliceRows, piece.count() - at);
    if (past < length) count = std::min(count, length - past);
    const KvPages::Again again = tail()->again(cut, past);
    if (again.from < past) co_return;
    count = std::min(count, again.end - past);
    co_await run_slice(piece.slice(at, count));
    at += count;
  }
}

// Computes the rows that the tail has once more, up to the first block that lacks none of them,
// unless others read their pages; behind them it gets new rows in all blocks, which the text does
// not need yet.
Task<void> CutMover::run_slice(SequenceRows slice) {
  const std::shared_ptr<TailSide> side = tail();
  KvPages& pages = side->pages();
  const bool fill = slice.past < pages.length(side->sequence());
  if (fill && !pages.owns(side->sequence(), slice.past, slice.past + slice.count())) {
    target_->tail = std::make_shared<TailSide>(side->batcher(), side->keeps());
    co_return;
  }
  slice.range.to = fill ? side->lagging(target_->cut.blocks()).to : Point(sides_.layers());
  slice.wanted = Wanted::kNone;
  Job job{side->sequence(), slice, nullptr, sides_.requester};
  job.fill = fill;
  const auto hold = sides_.hold();
  co_await Compute{&side->batcher(), &job, &flying_.edge_ms};
  settled_.edge_ms += std::exchange(flying_.edge_ms, 0);
}

// Waits before a retry. The text's own session is checked by its next step, apart from its depth.
Task<void> CutMover::wait_after(const RemoteError& error) {
  CloudSide seen = cloud();
  const int to = sides_.blocks(target_ ? target_->cut : sides_.cut);
  const bool passes = seen.heed(error, sides_.blocks(), to) || error.transient();
  if (!passes) {
    next_target();
    co_return;
  }
  if (sides_.cut == 0 || error.code == wire::codes::kDepthMismatch) cloud() = std::move(seen);
  const auto wait = backoff_.failed(error, true, flow_.now());
  enter(State::kWaiting);
  co_await Wait{flow_.now() + wait};
  backoff_.again(error);
}

}  // namespace split::edge
