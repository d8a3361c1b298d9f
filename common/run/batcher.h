// Makes steps out of waiting jobs: rows of many sequences in one run of the shard, long prompts in
// slices, so that no one waits for more than a bounded step. A row's bits depend neither on the
// other rows of its step (device/device.h) nor on how far these go: jobs to different points share
// a step, and rows leave it at their own.
//
// Order: jobs of the owner that had the fewest rows lately, counted in layers, come first, then the
// oldest. Jobs of few rows join a step at once; beside them, long prompts share `slice` rows of it,
// so that no text's next token waits for a whole prompt. A caller that came straight back after its
// last step is waited for, a quarter of that step at most: two half-empty steps cost more. Callers
// that have gone leave before the next step.
//
// A fill gives rows that a sequence has to blocks that lack them: it computes these rows again, in
// place, and keeps the rows behind them. No token waits for a fill: fills get a slice of a step
// that has room left, and a step of their own after several in which they had no part.
// Has no thread of its own: one of the waiting callers runs the step for all and then hands over.
// With one caller that costs nothing, where a scheduler thread costs two wake-ups a token.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "base/resources/clock.h"
#include "base/resources/fibres.h"
#include "run/caller_habits.h"
#include "run/fair_turns.h"
#include "run/prefix_cache.h"
#include "run/shard/shard.h"

namespace split {

// The device failed and lost every sequence (Shard::recover): this one has to be computed again
// from its start.
class SequenceLost : public Error {
 public:
  SequenceLost() : Error(ErrorKind::kBusy, "the device was lost: the sequence starts again") {}
};

// The client that a job is for.
struct Requester {
  std::string owner;           // owners take turns: an API key's name, or empty
  std::function<bool()> gone;  // true once nobody waits for the result; any thread, cheap
  bool self = false;           // the program itself, for measuring: no step reports its rows
};

// The requester has gone: nobody reads this error.
struct RequesterGone : Error {
  RequesterGone() : Error(ErrorKind::kBusy, "the client has gone") {}
};

// Rows that one caller wants behind the first rows.past of a sequence, which it expects to be there
// in all blocks of the range; rows behind these are forgotten.
struct Job {
  SequenceId sequence = 0;
  SequenceRows rows;
  float* out = nullptr;  // [wanted rows, width(rows.range.to)]
  Requester requester = {};
  bool fill = false;  // the sequence has these rows, with equal tokens and phase
  // Where the rows leave the blocks. The top is found among all logits if others want these.
  Point depth() const { return std::min(rows.range.to, Point::head()); }

  double compute_ms = 0;    // results: the time of the steps it was part of,
  double queue_ms = 0;      // the time of waiting for them, also if it failed,
  double share_ms = 0;      // the steps' time in proportion to its layer-rows,
  uint64_t layer_rows = 0;  // its layer-rows (Shard::layer_rows)
};

// A summary of one step.
struct StepSeen {
  double ms = 0;
  uint32_t sequences = 0;
  uint32_t prompt_rows = 0, generated_rows = 0, fill_rows = 0;
  uint32_t depths = 0;      // different end points of its rows
  Point to = 0;             // the deepest of them
  uint64_t layer_rows = 0;  // Shard::layer_rows() of all rows
};

// Any number of threads; a sequence is in one job at a time.
class Batcher {
 public:
  // `slice`: rows of a prompt that run together while others wait. `patience`: how long callers
  // that come straight back are waited for; none: a quarter of the last step. `long_step`: the
  // longest step of one prompt alone, which bounds how long a caller that comes meanwhile waits.
  explicit Batcher(Shard& shard, uint32_t slice = 64, std::optional<Clock::duration> patience = {},
                   std::chrono::milliseconds long_step = std::chrono::milliseconds(50))
      : shard_(shard), slice_(slice), long_step_(long_step), habits_(patience) {}

  Shard& shard() { return shard_; }
  const KvPages& pages() const { return shard_.pages(); }
  // Keeps prefixes of texts from now on, in pages and room for states that are otherwise free.
  // Before the first run().
  void keep_prefixes(std::function<Clock::time_point()> clock = Clock::now);
  // Null if they are not kept.
  PrefixCache* prefixes() { return prefixes_ ? &*prefixes_ : nullptr; }

  // Called, by whichever thread runs a step, when a sequence gets no pages although the prefixes
  // have given theirs: frees some and returns true, or false if there are none to free. Set before
  // the first run().
  void on_pages_spent(std::function<bool()> make_room) { make_room_ = std::move(make_room); }
  // Adds a callback after each computed step, on the thread that ran it. Set before the first
  // run().
  void on_step(std::function<void(const StepSeen&)> seen) { seen_.push_back(std::move(seen)); }

  // Runs the job to its end. Throws Error(kInput) for a token outside of the vocabulary or more
  // rows than the context holds, with nothing done; Error(kBusy) when the sequence gets no pages,
  // RequesterGone, Error(kDevice): the sequence then has the rows of the steps before, or fewer.
  // Throws SequenceLost if a device was lost and the sequence was not empty, or if a block of the
  // range lacks rows before `past`, or the sequence a fill's rows, or if a state does not go back
  // that far (KvPages::again for a fill); a job at a sequence's start runs again.
  void run(Job& job);
  // Runs several jobs, which wait together and so may share steps. Throws the first error, once all
  // have ended.
  void run(std::span<Job> jobs);

  // Jobs waiting or running, and waiting alone.
  size_t depth() const;
  size_t waiting() const;
  // Sequences that had a row in a step of the last second.
  size_t running() const;

 private:
  // The caller of one or more jobs. It sleeps on its own state, not on the lock, which many callers
  // would contend for.
  struct Caller {
    enum State : int { kWaiting, kLeads, kFinished };
    std::atomic<int> state{kWaiting};
    size_t jobs = 0;  // its unfinished jobs
    Caller* next_told = nullptr;
  };
  struct Ticket {
    Job* job = nullptr;
    Caller* caller = nullptr;
    uint32_t done = 0;       // rows
    uint32_t delivered = 0;  // wanted rows
    std::exception_ptr error;

    uint32_t left() const { return job->rows.count() - done; }
  };
  struct Share {
    Ticket* ticket;
    uint32_t rows;
    uint32_t wanted;
  };
  struct Room;
  void check(const Job& job) const;
  bool alike(const Job& a, const Job& b) const;
  void lose(Ticket& ticket) const;
  bool whole() const;
  // Whether its caller may come back for the next row.
  bool has_habit(const Job& job) const { return !job.fill && !whole(); }
  bool begin(const Share& share);
  struct Paid;
  void deliver(const ShardRows& part, const Share& share, const float* from,
               const Paid& paid) const;
  void step(const std::vector<Share>& shares);  // without the lock
  void lead(Caller& caller);
  void run_step(std::unique_lock<std::mutex>& lock, const std::vector<Share>& shares);
  // Called with the lock held:
  void enter(std::span<Ticket> tickets, Caller& caller);
  void drop_jobs(const Caller& caller, const std::exception_ptr& error);
  void drop_gone();
  void finish_step(const std::vector<Share>& shares);
  void finish(Ticket& ticket);
  void forget_seen() const;
  std::vector<Share> pick();
  const Job* next_job(bool fill) const;
  void take(const Job& first, bool fill, Room& room, std::vector<Share>& shares);
  Share share_of(Ticket& ticket, const Room& room) const;
  static uint64_t work_of(const Share& share, uint64_t layer_rows);
  bool bounded() const;
  uint32_t rows_alone(const Job& job) const;

  bool make_room(bool of_pages);

  Shard& shard_;
  std::optional<PrefixCache> prefixes_;
  const uint32_t slice_;
  const std::chrono::milliseconds long_step_;
  std::function<bool()> make_room_;
  std::vector<std::function<void(const StepSeen&)>> seen_;
  mutable std::mutex mutex_;
  std::vector<Ticket*> queue_;  // its capacity covers all tickets
  bool led_ = false;            // a caller runs a step, is about to, or was told to
  Caller* finished_ = nullptr;  // callers that the leader has yet to tell
  size_t running_ = 0;          // jobs in that step
  FairTurns turns_;
  double layer_row_ms_ = 0;   // time of a prompt's row in a block, from its last step alone
  uint32_t passed_over_ = 0;  // consecutive steps in which a fill waited and none ran
  CallerHabits habits_;
  mutable std::unordered_map<SequenceId, Clock::time_point> seen_at_;  // recent steps' sequences
  Clock::time_point few_seen_;  // when a job of few rows ended
  std::vector<float> out_;
};

}  // namespace split
