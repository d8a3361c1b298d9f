// Makes steps out of what is waiting: rows of many sequences in one run of the shard, long prompts
// in slices, so that no one waits for more than a bounded step. A row's bits do not depend on the
// company it keeps (device/device.h).
//
// There is no thread of its own: one of the waiting callers runs the step for all and then hands
// over. With one caller that costs nothing, where a scheduler thread costs two wake-ups a token.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>

#include "run/shard.h"

namespace split {

enum class Wanted : uint8_t { kNone, kLast, kAll, kList };

// What one caller wants computed: rows appended to one sequence.
struct Job {
  Phase phase = Phase::kPrompt;
  int from = 0, to = 0;
  SequenceId sequence = 0;
  uint32_t rows = 0;
  const int32_t* tokens = nullptr;  // [rows], or
  const float* hidden = nullptr;    // [rows, C]
  Wanted wanted = Wanted::kLast;
  std::vector<uint32_t> list;  // for kList: rows, ascending
  float* out = nullptr;        // [wanted rows, width(to)]

  double compute_ms = 0;  // results: the time of the steps it was part of,
  double queue_ms = 0;    // and of waiting for them
};

// Any number of threads; a sequence is in one job at a time.
class Batcher {
 public:
  // `slice`: rows of a prompt that run together while others wait.
  explicit Batcher(Shard& shard, uint32_t slice = 64) : shard_(shard), slice_(slice) {}

  Shard& shard() { return shard_; }
  const KvPages& pages() const { return shard_.pages(); }

  // Called, by whichever thread runs a step, when a sequence gets no pages: frees some and returns
  // true, or false when there are none to free. Set before the first run().
  void on_pages_spent(std::function<bool()> make_room) { make_room_ = std::move(make_room); }

  // Runs the job to its end. Throws Error(kInput) for a token outside of the vocabulary or more
  // rows than the context holds, with nothing done; Error(kBusy) when the sequence gets no pages,
  // Error(kDevice): the sequence then has the rows of the steps before, or fewer.
  void run(Job& job);

  // Jobs waiting or running.
  size_t depth() const;

 private:
  struct Ticket {
    Job* job = nullptr;
    uint32_t done = 0;       // rows
    uint32_t delivered = 0;  // wanted rows
    bool finished = false;
    std::exception_ptr error;
    std::condition_variable changed;
  };
  struct Share {
    Ticket* ticket;
    uint32_t rows;
    uint32_t wanted;
  };
  void check(const Job& job) const;
  std::vector<Share> pick();                    // with the lock held
  void step(const std::vector<Share>& shares);  // without
  std::vector<uint32_t> wanted_in(const Ticket& ticket, uint32_t rows) const;

  Shard& shard_;
  const uint32_t slice_;
  std::function<bool()> make_room_;
  mutable std::mutex mutex_;
  std::deque<Ticket*> queue_;
  bool led_ = false;    // somebody runs a step or is about to
  size_t running_ = 0;  // jobs in that step
  std::vector<float> out_;
};

}  // namespace split
