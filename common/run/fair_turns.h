// Chooses whose job is next: the owner's who was given the fewest layer-rows, on a clock of all
// owners (start-time fair queueing), so that absence earns no credit. Knows no job.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>

namespace split {

// Used under its batcher's lock.
class FairTurns {
 public:
  // Allocates what enter() needs, which then cannot fail.
  void know(const std::string& owner) { turns_[owner]; }
  void enter(const std::string& owner) {
    Turn& turn = turns_.at(owner);
    if (turn.jobs++ == 0) turn.given = now_;
  }
  void leave(const std::string& owner) {
    const auto turn = turns_.find(owner);
    if (--turn->second.jobs == 0) turns_.erase(turn);
  }
  uint64_t given(const std::string& owner) const { return turns_.at(owner).given; }
  void give(const std::string& owner, uint64_t layer_rows) {
    Turn& turn = turns_.at(owner);
    now_ = std::max(now_, turn.given);
    turn.given += layer_rows;
  }

 private:
  struct Turn {
    uint64_t given = 0;
    size_t jobs = 0;
  };
  std::map<std::string, Turn> turns_;  // owners with jobs here
  uint64_t now_ = 0;
};

}  // namespace split
