#include "run/batcher.h"

#include <algorithm>
#include <chrono>

namespace split {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// Jobs that can share a step.
bool alike(const Job& a, const Job& b) {
  return a.phase == b.phase && a.from == b.from && a.to == b.to &&
         (a.tokens != nullptr) == (b.tokens != nullptr);
}

}  // namespace

size_t Batcher::depth() const {
  const std::lock_guard lock(mutex_);
  return queue_.size() + running_;
}

// What would break a step, and with it the others in it, is refused before it is queued.
void Batcher::check(const Job& job) const {
  const ModelConfig& config = shard_.model().config();
  const uint64_t end = uint64_t{shard_.pages().length(job.sequence)} + job.rows;
  if (end > static_cast<uint64_t>(config.context)) {
    throw Error(ErrorKind::kInput, cat("[batcher] expected at most ", config.context,
                                       " tokens in a sequence, got ", end));
  }
  for (uint32_t i = 0; job.tokens != nullptr && i < job.rows; ++i) {
    if (job.tokens[i] < 0 || job.tokens[i] >= config.vocab) {
      throw Error(ErrorKind::kInput, cat("[batcher] token id: expected 0..", config.vocab - 1,
                                         ", got ", job.tokens[i]));
    }
  }
}

void Batcher::run(Job& job) {
  if (job.rows == 0) return;
  check(job);
  const auto start = Clock::now();
  Ticket ticket;
  ticket.job = &job;
  std::unique_lock lock(mutex_);
  queue_.push_back(&ticket);
  while (!ticket.finished) {
    if (led_) {
      ticket.changed.wait(lock);
      continue;
    }
    led_ = true;
    const std::vector<Share> shares = pick();
    running_ = shares.size();
    lock.unlock();
    try {
      step(shares);
    } catch (...) {  // out of memory, say: theirs, and the next leader goes on
      for (const Share& share : shares) share.ticket->error = std::current_exception();
    }
    lock.lock();
    led_ = false;
    running_ = 0;
    for (const Share& share : shares) {
      Ticket& other = *share.ticket;
      if (other.error != nullptr || other.done == other.job->rows) {
        other.finished = true;
        if (&other != &ticket) other.changed.notify_one();
      } else {
        queue_.push_back(&other);  // behind those that waited meanwhile
      }
    }
  }
  if (!led_ && !queue_.empty()) queue_.front()->changed.notify_one();
  lock.unlock();
  job.queue_ms = std::max(0.0, ms_since(start) - job.compute_ms);
  if (ticket.error != nullptr) std::rethrow_exception(ticket.error);
}

// The rows among the next `rows` of a job whose result is wanted, counted from the first of them.
std::vector<uint32_t> Batcher::wanted_in(const Ticket& ticket, uint32_t rows) const {
  const Job& job = *ticket.job;
  std::vector<uint32_t> wanted;
  switch (job.wanted) {
    case Wanted::kNone:
      break;
    case Wanted::kLast:
      if (ticket.done + rows == job.rows) wanted.push_back(rows - 1);
      break;
    case Wanted::kAll:
      for (uint32_t i = 0; i < rows; ++i) wanted.push_back(i);
      break;
    case Wanted::kList:
      for (const uint32_t row : job.list) {
        if (row >= ticket.done && row < ticket.done + rows) wanted.push_back(row - ticket.done);
      }
      break;
  }
  return wanted;
}

std::vector<Batcher::Share> Batcher::pick() {
  std::vector<Share> shares;
  const Job& first = *queue_.front()->job;
  const uint32_t max_wanted = shard_.max_wanted(first.to);
  const bool company = queue_.size() > 1;
  uint32_t rows = 0, wanted = 0;
  for (auto at = queue_.begin(); at != queue_.end() && rows < shard_.options().max_rows;) {
    Ticket& ticket = **at;
    if (!alike(first, *ticket.job)) {
      ++at;
      continue;
    }
    uint32_t count = std::min(ticket.job->rows - ticket.done, shard_.options().max_rows - rows);
    if (company) count = std::min(count, slice_);
    uint32_t want = static_cast<uint32_t>(wanted_in(ticket, count).size());
    while (count > 0 && wanted + want > max_wanted) {
      count -= std::min(count, wanted + want - max_wanted);
      want = static_cast<uint32_t>(wanted_in(ticket, count).size());
    }
    if (count == 0) break;
    shares.push_back({&ticket, count, want});
    rows += count;
    wanted += want;
    at = queue_.erase(at);
  }
  return shares;
}

void Batcher::step(const std::vector<Share>& shares) {
  const auto start = Clock::now();
  std::vector<ShardRows> parts;
  std::vector<const Share*> running;
  const Job& like = *shares[0].ticket->job;
  const size_t width = shard_.width(like.to);
  const auto channels = static_cast<size_t>(shard_.model().config().channels);
  size_t total = 0;
  for (const Share& share : shares) {
    Ticket& ticket = *share.ticket;
    const Job& job = *ticket.job;
    const uint32_t length = shard_.pages().length(job.sequence) + share.rows;
    bool reserved = shard_.pages().reserve(job.sequence, length);
    while (!reserved && make_room_ && make_room_()) {
      reserved = shard_.pages().reserve(job.sequence, length);
    }
    if (!reserved) {
      ticket.error = std::make_exception_ptr(
          Error(ErrorKind::kBusy, "the KV budget is spent, try again later"));
      continue;
    }
    ShardRows part;
    part.sequence = job.sequence;
    part.count = share.rows;
    if (job.tokens != nullptr) part.tokens = job.tokens + ticket.done;
    if (job.hidden != nullptr) part.hidden = job.hidden + ticket.done * channels;
    part.wanted = wanted_in(ticket, share.rows);
    total += share.wanted;
    parts.push_back(std::move(part));
    running.push_back(&share);
  }
  if (parts.empty()) return;
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
    shard_.forward(like.phase, like.from, like.to, parts, out);
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
  for (const Share* share : running) {
    Ticket& ticket = *share->ticket;
    if (parts.size() > 1) {
      std::copy_n(out, share->wanted * width, ticket.job->out + ticket.delivered * width);
      out += share->wanted * width;
    }
    ticket.done += share->rows;
    ticket.delivered += share->wanted;
    ticket.job->compute_ms += ms;
  }
}

}  // namespace split
