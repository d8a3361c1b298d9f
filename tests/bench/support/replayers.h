// Edges that replay recorded ids and compute nothing, at a pace, as readers of a text do: each has
// a session and asks for a row at its cut. Those that are willing go where the server wishes. What
// they measure is how long a step took.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "bench/support/random_model.h"
#include "step/rows.h"

namespace split::bench {

struct Replay {
  std::string url, model;
  int layers = 0;
  size_t prompt = 32, steps = 64;  // tokens; then the text begins again behind its prompt
  double rate = 10;                // tokens a second of each
};

// The measurements of some time.
struct Measured {
  std::vector<double> ms;  // of each step
  double rate = 0;         // the part of the steps that were due which were made
  size_t failed = 0;       // sessions
  double p99() const;
};

// One thread at a time.
class Replayers {
 public:
  explicit Replayers(const RandomModel& model, Replay replay);
  ~Replayers();
  Replayers(const Replayers&) = delete;
  Replayers& operator=(const Replayers&) = delete;

  // From now on so many run, session n at cuts[n % cuts.size()]; the others wait. `can`: of willing
  // ones.
  void run(size_t sessions, std::vector<Point> cuts, std::optional<int> can = {});
  // Lets them run for so long, and returns what came.
  Measured measure(double seconds);
  // The most moves of any session in any time so long, of those that followed wishes.
  size_t most_moves(std::chrono::seconds within) const;
  // Those that run which are not where they began.
  size_t moved() const;

 private:
  struct Edge;
  void work(Edge& edge);

  const Replay replay_;
  const std::vector<int32_t> ids_;
  mutable std::mutex mutex_;  // of:
  std::condition_variable changed_;
  std::vector<Point> cuts_{Point::head()};
  std::optional<int> can_;
  size_t running_ = 0;
  bool ends_ = false;
  std::vector<double> ms_;
  std::vector<std::unique_ptr<Edge>> edges_;
};

}  // namespace split::bench
