#include "run/batcher.h"

#include <algorithm>
#include <utility>

#include "base/resources/clock.h"

namespace split {
namespace {

// A job of at most so many rows is a text's next token, perhaps with drafts, and is not delayed.
constexpr uint32_t kFewRows = 8;
// While jobs of few rows came this lately, the next one is expected during the next step.
constexpr std::chrono::milliseconds kLately{250};
// Different end points in a step: a device with a queue takes a submission and a wait for each.
constexpr size_t kMostDepths = 4;
constexpr uint32_t kMostPassedOver = 4;  // steps
constexpr size_t kMostSeen = 4096;       // sequences, before old ones are forgotten

// Whether the job is a text's next tokens.
bool is_few(const Job& job) { return job.rows.count() <= kFewRows && !job.fill; }

}  // namespace

// The room that a step still has.
struct Batcher::Room {
  uint32_t rows, long_rows, logits;
  uint32_t most_long;  // rows of one long job
  size_t most_depths;
  std::vector<Point> depths = {};

  bool knows(Point depth) const { return std::ranges::find(depths, depth) != depths.end(); }
  bool admits(Point depth) const { return depths.size() < most_depths || knows(depth); }
};

void Batcher::keep_prefixes(std::function<Clock::time_point()> clock) {
  constexpr uint64_t kPart = 50;  // 1/50 of the pages' bytes are the index's limit
  prefixes_.emplace(
      shard_.pages(),
      PrefixCache::Options{.phases_alike = [this] { return shard_.same_bits_in_both_phases(); },
                           .index_bytes = shard_.page_bytes() * pages().total() / kPart,
                           .clock = std::move(clock),
                           .leave = [this](SequenceId id, const StageRange& range,
                                           uint32_t row) { return shard_.leave(id, range, row); }});
}

size_t Batcher::depth() const {
  const std::lock_guard lock(mutex_);
  return queue_.size() + running_;
}

size_t Batcher::waiting() const {
  const std::lock_guard lock(mutex_);
  return queue_.size();
}

size_t Batcher::running() const {
  const std::lock_guard lock(mutex_);
  forget_seen();
  return seen_at_.size();
}

void Batcher::forget_seen() const {
  const auto since = Clock::now() - std::chrono::seconds(1);
  std::erase_if(seen_at_, [&](const auto& seen) { return seen.second < since; });
}

// Jobs that can share a step.
bool Batcher::alike(const Job& a, const Job& b) const {
  return (a.rows.phase == b.rows.phase || shard_.same_bits_in_both_phases()) &&
         a.rows.range.from == b.rows.range.from;
}

// Refuses, before it is queued, a job that would fail its step and the others in it.
void Batcher::check(const Job& job) const {
  const ModelConfig& config = shard_.model().config();
  const uint64_t end = uint64_t{job.rows.past} + job.rows.count();
  if (end > static_cast<uint64_t>(config.context)) {
    throw Error(ErrorKind::kInput, cat("[batcher] expected at most ", config.context,
                                       " tokens in a sequence, got ", end));
  }
  for (const int32_t token : job.rows.tokens) {
    if (token < 0 || token >= config.vocab) {
      throw Error(ErrorKind::kInput,
                  cat("[batcher] token id: expected 0..", config.vocab - 1, ", got ", token));
    }
  }
}

void Batcher::run(Job& job) { run(std::span(&job, 1)); }

void Batcher::run(std::span<Job> jobs) {
  for (const Job& job : jobs) check(job);
  const auto start = Clock::now();
  std::vector<Ticket> tickets;
  tickets.reserve(jobs.size());
  for (Job& job : jobs) {
    if (job.rows.count() > 0) tickets.emplace_back().job = &job;
  }
  if (tickets.empty()) return;
  Caller caller;
  {
    const std::lock_guard lock(mutex_);
    enter(tickets, caller);
    if (!led_) caller.state = Caller::kLeads;
    led_ = true;
  }
  fibres::wait<int>(caller.state, Caller::kWaiting);
  if (caller.state == Caller::kLeads) lead(caller);
  for (Job& job : jobs) job.queue_ms = std::max(0.0, ms_since(start) - job.compute_ms);
  for (const Ticket& ticket : tickets) {
    if (ticket.error != nullptr) std::rethrow_exception(ticket.error);
  }
}

// Runs steps until its own jobs are done, then hands over.
void Batcher::lead(Caller& caller) {
  for (bool leads = true; leads;) {
    std::unique_lock lock(mutex_);
    habits_.gather(lock);
    std::vector<Share> shares;
    try {
      drop_gone();
      shares = pick();
    } catch (...) {  // out of memory: this caller's error; nothing was begun
      drop_jobs(caller, std::current_exception());
    }
    if (!shares.empty()) run_step(lock, shares);
    Caller* finished = std::exchange(finished_, nullptr);
    leads = caller.jobs > 0;
    if (!leads) led_ = !queue_.empty();
    Caller* const next = !leads && led_ ? queue_.front()->caller : nullptr;
    lock.unlock();
    // A caller that is told may be gone at once: after that only its address is used.
    const auto tell = [](Caller& other, Caller::State state) {
      other.state.store(state);
      fibres::wake_one(other.state);
    };
    if (next != nullptr) tell(*next, Caller::kLeads);
    while (finished != nullptr) {
      Caller& other = *std::exchange(finished, finished->next_told);
      if (&other != &caller) tell(other, Caller::kFinished);
    }
    fibres::yield();
  }
}

// Fails the jobs of a caller whose step could not begin.
void Batcher::drop_jobs(const Caller& caller, const std::exception_ptr& error) {
  std::erase_if(queue_, [&](Ticket* ticket) {
    if (ticket->caller != &caller) return false;
    ticket->error = error;
    finish(*ticket);
    return true;
  });
}

void Batcher::run_step(std::unique_lock<std::mutex>& lock, const std::vector<Share>& shares) {
  running_ = shares.size();
  lock.unlock();
  const auto began = Clock::now();
  try {
    step(shares);
  } catch (...) {  // out of memory, for example: these shares fail, other jobs get the next step
    for (const Share& share : shares) share.ticket->error = std::current_exception();
  }
  const auto ended = Clock::now();
  lock.lock();
  running_ = 0;
  habits_.end_step(began, ended);
  if (std::ranges::any_of(shares, [](const Share& share) { return is_few(*share.ticket->job); })) {
    few_seen_ = ended;
  }
  finish_step(shares);
}

// Whether a text's rows must be in one step: an encoder keeps nothing of them.
bool Batcher::whole() const { return shard_.model().config().encodes(); }

// Allocates before it changes anything, all that its jobs' steps need: the leader cannot fail.
void Batcher::enter(std::span<Ticket> tickets, Caller& caller) {
  for (const Ticket& ticket : tickets) {
    turns_.know(ticket.job->requester.owner);
    if (has_habit(*ticket.job)) habits_.know(ticket.job->sequence);
  }
  if (const size_t all = queue_.size() + running_ + tickets.size(); all > queue_.capacity()) {
    queue_.reserve(2 * all);  // running tickets may come back to it
  }
  caller.jobs = tickets.size();
  for (Ticket& ticket : tickets) {
    ticket.caller = &caller;
    queue_.push_back(&ticket);
    turns_.enter(ticket.job->requester.owner);
    if (has_habit(*ticket.job)) habits_.come_back(ticket.job->sequence);
  }
}

void Batcher::drop_gone() {
  std::vector<Ticket*> gone;
  for (Ticket* ticket : queue_) {
    const auto& asked = ticket->job->requester.gone;
    if (asked && asked()) gone.push_back(ticket);
  }
  for (Ticket* ticket : gone) {
    std::erase(queue_, ticket);
    ticket->error = std::make_exception_ptr(RequesterGone());
    finish(*ticket);
  }
}

void Batcher::finish_step(const std::vector<Share>& shares) {
  for (const Share& share : shares) {
    Ticket& ticket = *share.ticket;
    const auto seen = seen_at_.find(ticket.job->sequence);
    if (seen != seen_at_.end()) seen->second = Clock::now();
    if (ticket.error == nullptr && ticket.left() > 0) {
      queue_.push_back(&ticket);  // behind the tickets that came meanwhile
      continue;
    }
    if (ticket.error == nullptr && has_habit(*ticket.job)) habits_.leave(ticket.job->sequence);
    finish(ticket);
  }
}

void Batcher::finish(Ticket& ticket) {
  turns_.leave(ticket.job->requester.owner);
  Caller& caller = *ticket.caller;
  if (--caller.jobs == 0) caller.next_told = std::exchange(finished_, &caller);
}

// Starts a ticket again whose sequence was lost, or fails it if rows before it are gone.
void Batcher::lose(Ticket& ticket) const {
  if (ticket.job->rows.past > 0 || ticket.job->fill)
    ticket.error = std::make_exception_ptr(SequenceLost());
  ticket.done = ticket.delivered = 0;
}

// Whether a text's next token waits or is expected soon.
bool Batcher::bounded() const {
  return Clock::now() - few_seen_ < kLately ||
         std::any_of(queue_.begin(), queue_.end(),
                     [](const Ticket* ticket) { return is_few(*ticket->job); });
}

// Returns the part of a ticket that there is room for.
Batcher::Share Batcher::share_of(Ticket& ticket, const Room& room) const {
  const Job& job = *ticket.job;
  if (!room.admits(job.depth())) return {&ticket, 0, 0};
  const uint32_t most_wanted = job.depth() == Point::head() ? room.logits : room.rows;
  const auto wanted_of = [&](uint32_t rows) {
    const SequenceRows& all = job.rows;
    return static_cast<uint32_t>(all.wanted.slice(all.count(), ticket.done, rows).count(rows));
  };
  const bool few = whole() || (ticket.left() <= kFewRows && !job.fill);
  const uint32_t fits = few ? room.rows : std::min({room.rows, room.long_rows, room.most_long});
  uint32_t rows = std::min(ticket.left(), fits), wanted = wanted_of(rows);
  if (whole() && rows < ticket.left()) return {&ticket, 0, 0};
  while (rows > 0 && wanted > most_wanted) {
    rows -= std::min(rows, wanted - most_wanted);
    wanted = wanted_of(rows);
  }
  return {&ticket, rows, wanted};
}

// The oldest job, or fill, of the owner whose turn it is; null where none waits.
const Job* Batcher::next_job(bool fill) const {
  const Job* next = nullptr;
  const auto served = [&](const Job& job) { return turns_.given(job.requester.owner); };
  for (const Ticket* ticket : queue_) {
    const Job& job = *ticket->job;
    if (job.fill == fill && (next == nullptr || served(job) < served(*next))) next = &job;
  }
  return next;
}

// Counts rows that pass no block too.
uint64_t Batcher::work_of(const Share& share, uint64_t layer_rows) {
  return std::max<uint64_t>(share.rows, layer_rows);
}

// Adds jobs, or fills, that can share a step with `first`, as far as there is room.
void Batcher::take(const Job& first, bool fill, Room& room, std::vector<Share>& shares) {
  const auto owner_of = [](const Ticket* ticket) { return &ticket->job->requester.owner; };
  // One queue for each owner, in order of arrival.
  std::vector<std::deque<Ticket*>> lines;
  for (Ticket* ticket : queue_) {
    if (ticket->job->fill != fill || !alike(first, *ticket->job)) continue;
    const auto line = std::find_if(lines.begin(), lines.end(), [&](const auto& other) {
      return *owner_of(other.front()) == *owner_of(ticket);
    });
    (line == lines.end() ? lines.emplace_back() : *line).push_back(ticket);
  }
  while (!lines.empty() && room.rows > 0 && !(whole() && shares.size() == kMostTexts)) {
    const auto line =
        std::min_element(lines.begin(), lines.end(), [&](const auto& a, const auto& b) {
          return turns_.given(*owner_of(a.front())) < turns_.given(*owner_of(b.front()));
        });
    Ticket& ticket = *line->front();
    line->pop_front();
    if (line->empty()) lines.erase(line);
    const Job& job = *ticket.job;
    const bool few = whole() || (ticket.left() <= kFewRows && !fill);
    const Share share = share_of(ticket, room);
    if (share.rows == 0) continue;  // the long rows are used up, or no more results fit
    shares.push_back(share);
    room.rows -= share.rows;
    if (!few) room.long_rows -= share.rows;
    if (job.depth() == Point::head()) room.logits -= share.wanted;
    if (!room.knows(job.depth())) room.depths.push_back(job.depth());
    turns_.give(job.requester.owner,
                work_of(share, shard_.layer_rows(job.rows.range, share.rows, share.wanted)));
  }
}

// Rows of a step that one prompt has alone.
uint32_t Batcher::rows_alone(const Job& job) const {
  const uint32_t least = shard_.options().max_rows, most = shard_.long_rows();
  if (job.rows.phase != Phase::kPrompt || job.fill || layer_row_ms_ <= 0) return least;
  const auto layers = static_cast<double>(shard_.layer_rows(job.rows.range, 1, 0));
  const double rows =
      static_cast<double>(long_step_.count()) / (layer_row_ms_ * std::max(1.0, layers));
  return rows >= most ? most : std::max(least, static_cast<uint32_t>(rows));
}

std::vector<Batcher::Share> Batcher::pick() {
  const auto fills = static_cast<size_t>(
      std::ranges::count_if(queue_, [](const Ticket* ticket) { return ticket->job->fill; }));
  const bool fills_due = fills > 0 && passed_over_ >= kMostPassedOver;
  const Job* first = next_job(fills_due);
  if (first == nullptr) first = next_job(true);
  if (first == nullptr) return {};
  const bool company = queue_.size() - fills > 1, slices = bounded();
  const bool alone = queue_.size() == 1 && !slices;
  const uint32_t rows = alone ? rows_alone(*first) : shard_.options().max_rows;
  Room room{.rows = rows,
            .long_rows = slices ? slice_ : rows,
            .logits = shard_.max_wanted(Point::head()),
            .most_long = company ? slice_ : rows,
            .most_depths = shard_.device().can_be_lost() ? kMostDepths : SIZE_MAX};
  std::vector<Share> shares;
  take(*first, false, room, shares);
  if (!slices || fills_due) room.long_rows = slice_;
  const size_t others = shares.size();
  if (fills > 0) take(*first, true, room, shares);
  passed_over_ = fills > 0 && shares.size() == others ? passed_over_ + 1 : 0;
  if (seen_at_.size() > kMostSeen) forget_seen();
  for (const Share& share : shares) {
    const Job& job = *share.ticket->job;
    if (!job.requester.self) seen_at_[job.sequence] = Clock::time_point::max();  // in this step
  }
  std::erase_if(queue_, [&](const Ticket* ticket) {
    return std::any_of(shares.begin(), shares.end(),
                       [&](const Share& share) { return share.ticket == ticket; });
  });
  return shares;
}

}  // namespace split
