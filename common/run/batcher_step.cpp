// One step of a batcher: the rows of its shares go through the shard, and back to their callers.
#include <algorithm>

#include "base/resources/clock.h"
#include "base/sort.h"
#include "run/batcher.h"
#include "tensor/topk.h"

namespace split {

// The cost of a share of a step.
struct Batcher::Paid {
  double ms, share_ms;
  uint64_t layer_rows;
};

// Prepares the sequence for a share: cuts it back to the rows before, unless for a fill, and
// reserves pages and states. Returns false, with the error in the ticket, if that is impossible.
bool Batcher::begin(const Share& share) {
  Ticket& ticket = *share.ticket;
  const Job& job = *ticket.job;
  KvPages& pages = shard_.pages();
  const uint32_t past = job.rows.past + ticket.done, end = past + share.rows;
  const auto has = [&](uint32_t rows) {
    return pages.length(job.sequence) >= rows && pages.filled(job.sequence, job.rows.range) >= past;
  };
  bool there = has(job.fill ? end : past);
  if (there && !job.fill) {
    pages.truncate(job.sequence, past);
    there = has(past);  // unless a state did not go back that far
  }
  if (!there) {
    lose(ticket);
    return false;
  }
  const auto reserve = [&] { return pages.reserve(job.sequence, end, job.rows.range, past); };
  bool reserved = reserve();
  const bool asks = !job.requester.self;  // the program's measuring evicts nobody
  while (!reserved && asks && make_room(pages.lacks_pages(job.sequence, end))) {
    reserved = reserve();
  }
  // Behind reserve(), which may evict a snapshot.
  const KvPages::Again again = pages.again(job.sequence, job.rows.range, past);
  there = again.from == past && again.end >= end;
  // Rows that wait for a snapshot keep it: its room may be what they lack.
  if (!there || (!reserved && pages.drop_waiting(job.sequence))) {
    lose(ticket);
    return false;
  }
  if (!reserved) {
    ticket.error =
        std::make_exception_ptr(Error(ErrorKind::kBusy, "the KV budget is spent, try again later"));
  }
  CHECK(pages.owns(job.sequence, past, end));  // no other sequence reads where this one writes
  return reserved;
}

bool Batcher::make_room(bool of_pages) {
  return (of_pages && prefixes_ && prefixes_->evict_one()) || (make_room_ && make_room_());
}

// Gives a share its rows, which lie at `from` unless they are in place already.
void Batcher::deliver(const ShardRows& part, const Share& share, const float* from,
                      const Paid& paid) const {
  Ticket& ticket = *share.ticket;
  Job& job = *ticket.job;
  const size_t width = shard_.width(part.rows.range.to), own = shard_.width(job.rows.range.to);
  for (uint32_t i = 0; from != nullptr && i < share.wanted; ++i, from += width) {
    float* const row = job.out + (ticket.delivered + i) * own;
    if (part.rows.range.to == job.rows.range.to) {
      std::copy_n(from, width, row);
    } else {
      topk_row({from, width}, {row, own});
    }
  }
  ticket.done += share.rows;
  ticket.delivered += share.wanted;
  job.compute_ms += paid.ms;
  job.share_ms += paid.share_ms;
  job.layer_rows += paid.layer_rows;
}

void Batcher::step(const std::vector<Share>& shares) {
  const auto start = Clock::now();
  std::vector<const Share*> running;
  for (const Share& share : shares) {
    if (begin(share)) running.push_back(&share);
  }
  if (running.empty()) return;
  const auto to_of = [](const Share* share) { return share->ticket->job->rows.range.to; };
  if (!std::ranges::is_sorted(running, std::greater(), to_of)) {
    sort_stably(running, std::greater(), to_of);
  }
  const bool logits = std::ranges::find(running, Point::head(), to_of) != running.end();
  std::vector<ShardRows> parts;
  size_t floats = 0;
  for (const Share* share : running) {
    const Job& job = *share->ticket->job;
    ShardRows part{job.sequence, job.rows.slice(share->ticket->done, share->rows)};
    if (logits) part.rows.range.to = job.depth();
    floats += share->wanted * shard_.width(part.rows.range.to);
    parts.push_back(std::move(part));
  }
  // A single share's rows are written straight to its job.
  const Ticket& only = *running[0]->ticket;
  float* out = nullptr;
  if (parts.size() > 1) {
    out_.resize(floats);
    out = out_.data();
  } else if (only.job->out != nullptr) {
    out = only.job->out + only.delivered * shard_.width(to_of(running[0]));
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
      // Frees the pages of rows that were not computed.
      const SequenceId id = share->ticket->job->sequence;
      shard_.pages().truncate(id, shard_.pages().length(id));
    }
    return;
  }
  StepSeen seen{ms_since(start)};
  seen.to = to_of(running[0]);
  const float* from = parts.size() > 1 ? out_.data() : nullptr;
  const auto layer_rows_of = [&](size_t i) {
    return shard_.layer_rows(parts[i].rows.range, running[i]->rows, running[i]->wanted);
  };
  uint64_t work = 0;
  for (size_t i = 0; i < parts.size(); ++i) work += work_of(*running[i], layer_rows_of(i));
  for (size_t i = 0; i < parts.size(); ++i) {
    const Share& share = *running[i];
    const Job& job = *share.ticket->job;
    const Point to = parts[i].rows.range.to;
    const uint64_t layer_rows = layer_rows_of(i);
    const double part = static_cast<double>(work_of(share, layer_rows)) / static_cast<double>(work);
    deliver(parts[i], share, from, {seen.ms, seen.ms * part, layer_rows});
    if (from != nullptr) from += share.wanted * shard_.width(to);
    if (whole()) shard_.pages().truncate(parts[i].sequence, 0);
    if (job.requester.self) continue;
    ++seen.sequences;
    if (i == 0 || parts[i - 1].rows.range.to != to) ++seen.depths;
    seen.layer_rows += layer_rows;
    const bool prompt = job.rows.phase == Phase::kPrompt;
    (job.fill ? seen.fill_rows : prompt ? seen.prompt_rows : seen.generated_rows) += share.rows;
  }
  const bool tells = seen.prompt_rows >= shard_.options().max_rows / 2;
  if (parts.size() == 1 && tells && seen.layer_rows > 0) {
    layer_row_ms_ = seen.ms / static_cast<double>(seen.layer_rows);
  }
  if (seen.sequences == 0) return;
  for (const auto& told : seen_) told(seen);
}

}  // namespace split
