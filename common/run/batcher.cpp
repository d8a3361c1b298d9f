#include "run/batcher.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "tensor/topk.h"

namespace split {
namespace {

// A job of so few rows is somebody's next token, perhaps with drafts: it is not kept waiting.
constexpr uint32_t kFewRows = 8;
// While jobs of few rows came this lately, the next one is expected during the next step.
constexpr std::chrono::milliseconds kLately{250};
constexpr std::chrono::milliseconds kMostPatience{10};
constexpr size_t kMostHabits = 4096;

double ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

}  // namespace

size_t Batcher::depth() const {
  const std::lock_guard lock(mutex_);
  return queue_.size() + running_;
}

// Jobs that can share a step: the top of some is found among all logits that others want.
bool Batcher::alike(const Job& a, const Job& b) const {
  const auto to = [](const Job& job) { return std::min(job.rows.range.to, Point::head()); };
  return (a.rows.phase == b.rows.phase || shard_.same_bits_in_both_phases()) &&
         a.rows.range.from == b.rows.range.from && to(a) == to(b);
}

// Refuses a job that would break a step, and with it the others in it, before it is queued.
void Batcher::check(const Job& job) const {
  const ModelConfig& config = shard_.model().config();
  const uint64_t end = uint64_t{shard_.pages().length(job.sequence)} + job.rows.count();
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

void Batcher::run(Job& job) {
  if (job.rows.count() == 0) return;
  check(job);
  const auto start = Clock::now();
  Ticket ticket;
  ticket.job = &job;
  {
    const std::lock_guard lock(mutex_);
    enter(ticket);
    if (!led_) ticket.state = Ticket::kLeads;
    led_ = true;
  }
  ticket.state.wait(Ticket::kWaiting);
  if (ticket.state == Ticket::kLeads) lead(ticket);
  job.queue_ms = std::max(0.0, ms_since(start) - job.compute_ms);
  if (ticket.error != nullptr) std::rethrow_exception(ticket.error);
}

// Runs steps until its own job is done, then hands over.
void Batcher::lead(Ticket& ticket) {
  for (bool leads = true; leads;) {
    std::unique_lock lock(mutex_);
    gather(lock);
    std::vector<Share> shares;
    try {
      drop_gone();
      shares = pick();
    } catch (...) {  // out of memory: this one's, nothing was begun
      ticket.error = std::current_exception();
      if (std::erase(queue_, &ticket) > 0) finish(ticket);
    }
    if (!shares.empty()) run_step(lock, shares);
    std::vector<Ticket*> finished = std::exchange(finished_, {});
    leads = std::erase(finished, &ticket) == 0;
    if (!leads) led_ = !queue_.empty();
    Ticket* const next = !leads && led_ ? queue_.front() : nullptr;
    lock.unlock();
    // Who is told may be gone at once: after that only its address is used.
    const auto tell = [](Ticket& other, Ticket::State state) {
      other.state.store(state);
      other.state.notify_one();
    };
    if (next != nullptr) tell(*next, Ticket::kLeads);
    for (Ticket* other : finished) tell(*other, Ticket::kFinished);
  }
}

void Batcher::run_step(std::unique_lock<std::mutex>& lock, const std::vector<Share>& shares) {
  running_ = shares.size();
  lock.unlock();
  const auto began = Clock::now();
  try {
    step(shares);
  } catch (...) {  // out of memory, say: theirs, and the next step is others'
    for (const Share& share : shares) share.ticket->error = std::current_exception();
  }
  const auto ended = Clock::now();
  lock.lock();
  running_ = 0;
  step_ended_ = ended;
  patience_ =
      fixed_patience_.value_or(std::min<Clock::duration>((ended - began) / 4, kMostPatience));
  finish_step(shares);
}

void Batcher::enter(Ticket& ticket) {
  Turn& turn = turns_[ticket.job->requester.owner];
  CallerHabit& habit = habits_[ticket.job->sequence];
  queue_.push_back(&ticket);
  if (turn.jobs++ == 0) turn.served = virtual_now_;  // who was away saved nothing up
  if (!habit.away) return;
  habit.away = false;
  const bool expected = habit.quick && habit.left == step_ended_ && expected_ > 0;
  habit.quick = Clock::now() - habit.left <= patience_;
  if (expected && --expected_ == 0) gathered_.notify_one();
}

void Batcher::gather(std::unique_lock<std::mutex>& lock) {
  gathered_.wait_until(lock, step_ended_ + patience_, [&] { return expected_ == 0; });
  expected_ = 0;
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
  expected_ = 0;
  if (habits_.size() > kMostHabits) {
    std::erase_if(habits_, [](const auto& habit) { return habit.second.away; });
  }
  for (const Share& share : shares) {
    Ticket& ticket = *share.ticket;
    if (ticket.job->rows.count() <= kFewRows) few_seen_ = step_ended_;
    if (ticket.error == nullptr && ticket.left() > 0) {
      queue_.push_back(&ticket);  // behind those that waited meanwhile
      continue;
    }
    if (ticket.error == nullptr) {
      CallerHabit& habit = habits_.at(ticket.job->sequence);
      habit.away = true;
      habit.left = step_ended_;
      if (habit.quick) ++expected_;
    }
    finish(ticket);
  }
}

void Batcher::finish(Ticket& ticket) {
  const auto turn = turns_.find(ticket.job->requester.owner);
  if (--turn->second.jobs == 0) turns_.erase(turn);
  finished_.push_back(&ticket);
}

// After its sequence was lost.
void Batcher::lose(Ticket& ticket) const {
  if (ticket.job->rows.past > 0) ticket.error = std::make_exception_ptr(SequenceLost());
  ticket.done = ticket.delivered = 0;
}

// Somebody's next token waits, or is about to come.
bool Batcher::bounded() const {
  return Clock::now() - few_seen_ < kLately ||
         std::any_of(queue_.begin(), queue_.end(),
                     [](const Ticket* ticket) { return ticket->job->rows.count() <= kFewRows; });
}

// Returns the part of a ticket that fits into `room` rows, with at most `most_wanted` results.
Batcher::Share Batcher::share_of(Ticket& ticket, uint32_t room, uint32_t most_wanted) const {
  const SequenceRows& job = ticket.job->rows;
  const auto wanted_of = [&](uint32_t rows) {
    return static_cast<uint32_t>(job.wanted.slice(job.count(), ticket.done, rows).count(rows));
  };
  uint32_t rows = std::min(ticket.left(), room), wanted = wanted_of(rows);
  while (rows > 0 && wanted > most_wanted) {
    rows -= std::min(rows, wanted - most_wanted);
    wanted = wanted_of(rows);
  }
  return {&ticket, rows, wanted};
}

std::vector<Batcher::Share> Batcher::pick() {
  if (queue_.empty()) return {};
  const auto behind = [&](const std::string* a, const std::string* b) {
    return turns_.at(*a).served < turns_.at(*b).served;
  };
  const auto owner_of = [](const Ticket* ticket) { return &ticket->job->requester.owner; };
  const Job& first = *(*std::min_element(queue_.begin(), queue_.end(), [&](auto* a, auto* b) {
                        return behind(owner_of(a), owner_of(b));
                      }))->job;
  // The jobs like it, in a line for each owner; who waits longest has the first line.
  std::vector<std::deque<Ticket*>> lines;
  for (Ticket* ticket : queue_) {
    if (!alike(first, *ticket->job)) continue;
    const auto line = std::find_if(lines.begin(), lines.end(), [&](const auto& other) {
      return *owner_of(other.front()) == *owner_of(ticket);
    });
    (line == lines.end() ? lines.emplace_back() : *line).push_back(ticket);
  }
  const bool company = queue_.size() > 1, slices = bounded();
  uint32_t room = shard_.options().max_rows, room_of_long = slices ? slice_ : room;
  uint32_t most_wanted = shard_.max_wanted(first.rows.range.to);
  std::vector<Share> shares;
  while (!lines.empty() && room > 0) {
    const auto line =
        std::min_element(lines.begin(), lines.end(), [&](const auto& a, const auto& b) {
          return behind(owner_of(a.front()), owner_of(b.front()));
        });
    Ticket& ticket = *line->front();
    line->pop_front();
    if (line->empty()) lines.erase(line);
    Turn& turn = turns_.at(*owner_of(&ticket));
    const bool few = ticket.left() <= kFewRows;
    const uint32_t fits = few ? room : std::min({room, room_of_long, company ? slice_ : room});
    const Share share = share_of(ticket, fits, most_wanted);
    if (share.rows == 0) {
      if (few) break;  // no more results fit
      continue;        // long ones have their rows
    }
    shares.push_back(share);
    room -= share.rows;
    if (!few) room_of_long -= share.rows;
    most_wanted -= share.wanted;
    virtual_now_ = std::max(virtual_now_, turn.served);
    turn.served += share.rows;
  }
  std::erase_if(queue_, [&](const Ticket* ticket) {
    return std::any_of(shares.begin(), shares.end(),
                       [&](const Share& share) { return share.ticket == ticket; });
  });
  return shares;
}

void Batcher::step(const std::vector<Share>& shares) {
  const auto start = Clock::now();
  std::vector<ShardRows> parts;
  std::vector<const Share*> running;
  size_t total = 0;
  for (const Share& share : shares) {
    Ticket& ticket = *share.ticket;
    const Job& job = *ticket.job;
    const uint32_t past = shard_.pages().length(job.sequence);
    if (past != job.rows.past + ticket.done) {
      lose(ticket);
      continue;
    }
    const uint32_t length = past + share.rows;
    bool reserved = shard_.pages().reserve(job.sequence, length);
    while (!reserved && make_room_ && make_room_()) {
      reserved = shard_.pages().reserve(job.sequence, length);
    }
    if (!reserved) {
      ticket.error = std::make_exception_ptr(
          Error(ErrorKind::kBusy, "the KV budget is spent, try again later"));
      continue;
    }
    total += share.wanted;
    parts.push_back({job.sequence, job.rows.slice(ticket.done, share.rows)});
    running.push_back(&share);
  }
  if (parts.empty()) return;
  Point to = parts[0].rows.range.to;
  for (const ShardRows& part : parts) to = std::min(to, part.rows.range.to);
  for (ShardRows& part : parts) part.rows.range.to = to;
  const size_t width = shard_.width(to);
  // One part alone is written where it belongs.
  Ticket& only = *running[0]->ticket;
  float* out = nullptr;
  if (parts.size() == 1) {
    out = only.job->out == nullptr ? nullptr : only.job->out + only.delivered * width;
  } else {
    out_.resize(total * width);
    out = out_.data();
  }
  try {
    try {
      shard_.forward(parts, out);
    } catch (const Error& error) {
      if (!shard_.recover(error)) throw;
      for (const Share* share : running) lose(*share->ticket);
      return;
    }
  } catch (...) {
    for (const Share* share : running) {
      share->ticket->error = std::current_exception();
      // The pages of rows that were not computed are free again.
      const SequenceId id = share->ticket->job->sequence;
      shard_.pages().truncate(id, shard_.pages().length(id));
    }
    return;
  }
  const double ms = ms_since(start);
  StepSeen seen{ms, static_cast<uint32_t>(running.size())};
  for (const Share* share : running) {
    Ticket& ticket = *share->ticket;
    for (uint32_t i = 0; parts.size() > 1 && i < share->wanted; ++i, out += width) {
      const size_t own = shard_.width(ticket.job->rows.range.to);
      float* const row = ticket.job->out + (ticket.delivered + i) * own;
      if (ticket.job->rows.range.to == to) {
        std::copy_n(out, width, row);
      } else {
        topk_row({out, width}, {row, own});
      }
    }
    ticket.done += share->rows;
    ticket.delivered += share->wanted;
    ticket.job->compute_ms += ms;
    const bool prompt = ticket.job->rows.phase == Phase::kPrompt;
    (prompt ? seen.prompt_rows : seen.generated_rows) += share->rows;
  }
  if (seen_) seen_(seen);
}

}  // namespace split
