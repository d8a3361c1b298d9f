// Notes which callers come straight back with the next row of their sequence, as generating ones
// do: a step waits for them a little, since two half-empty steps cost more. Knows no job.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "base/resources/clock.h"
#include "run/kv_pages.h"

namespace split {

// Used under its batcher's lock.
class CallerHabits {
 public:
  // `patience`: how long they are waited for; none: a quarter of the last step.
  explicit CallerHabits(std::optional<Clock::duration> patience) : fixed_patience_(patience) {}

  // Allocates what the calls below need, which then cannot fail.
  void know(SequenceId sequence) { habits_[sequence]; }
  void come_back(SequenceId sequence) {
    Habit& habit = habits_.at(sequence);
    if (!habit.away) return;
    habit.away = false;
    const bool expected = habit.quick && habit.left == step_ended_ && expected_ > 0;
    habit.quick = Clock::now() - habit.left <= patience_;
    if (expected && --expected_ == 0) gathered_.notify_one();
  }
  // Waits until the callers that came straight back last time are here, or patience ends.
  void gather(std::unique_lock<std::mutex>& lock) {
    gathered_.wait_until(lock, step_ended_ + patience_, [&] { return expected_ == 0; });
    expected_ = 0;
  }
  void end_step(Clock::time_point began, Clock::time_point ended) {
    step_ended_ = ended;
    patience_ =
        fixed_patience_.value_or(std::min<Clock::duration>((ended - began) / 4, kMostPatience));
    expected_ = 0;
    if (habits_.size() > kMost) {
      std::erase_if(habits_, [](const auto& habit) { return habit.second.away; });
    }
  }
  // Notes that the caller has this step's result and is away.
  void leave(SequenceId sequence) {
    Habit& habit = habits_.at(sequence);
    habit.away = true;
    habit.left = step_ended_;
    if (habit.quick) ++expected_;
  }

 private:
  static constexpr std::chrono::milliseconds kMostPatience{10};
  static constexpr size_t kMost = 4096;
  struct Habit {
    bool away = false;
    bool quick = false;  // came straight back last time
    Clock::time_point left;
  };

  const std::optional<Clock::duration> fixed_patience_;
  std::unordered_map<SequenceId, Habit> habits_;
  size_t expected_ = 0;  // quick callers that the last step served and that are away
  std::condition_variable gathered_;
  Clock::time_point step_ended_;
  Clock::duration patience_{};
};

}  // namespace split
