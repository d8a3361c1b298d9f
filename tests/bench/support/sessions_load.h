// Many sessions at once, as edges hold them: open, a prompt, a token at a time, close; each step's
// hidden state must have the bits that the same session gives alone. An edge that loses its server
// opens the session again and sends all its tokens, as edge_client does.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "bench/support/random_model.h"
#include "edge_client/cloud/remote.h"

namespace split::bench {

struct Load {
  std::string url, model;
  uint32_t channels = 0;
  int cut = 0;
  size_t sessions = 1;
  size_t prompt = 32, steps = 64;
  std::chrono::seconds retry_for{0};  // a lost or full server is waited for
};

struct LoadResult {
  double seconds = 0;           // from the first generated token on, of all
  std::vector<double> step_us;  // of each generated token, all sessions: the request that was taken
  std::vector<double> wire_us;  // of steps, what was neither queue nor computing
  size_t failed = 0;            // sessions that gave up or got other bits
  size_t replays = 0;           // answers to a lost server
  size_t refused = 0;           // requests that a full server did not take
  double tokens_per_second() const { return static_cast<double>(step_us.size()) / seconds; }
};

// The scripts that sessions follow, and what each gives alone. One thread at a time, but for
// stepped() and stop().
class SessionsLoad {
 public:
  SessionsLoad(const RandomModel& model, Load load);

  // All sessions at once, each on a thread of its own; they wait for each other behind their
  // prompts.
  LoadResult run(size_t sessions);
  size_t stepped() const { return stepped_; }  // generated tokens of this run
  // Every session of this run ends with its next answer.
  void stop() { stopped_ = true; }
  // Steps of one session, until the first of ten in a row that take at most `most_us`; the seconds
  // to its answer from now on.
  double seconds_until_quick(double most_us);

 private:
  static constexpr size_t kScripts = 4;
  struct Edge;
  const Load load_;
  std::vector<std::vector<int32_t>> scripts_;           // prompt and tokens
  std::vector<std::vector<std::vector<float>>> alone_;  // the last row of each step
  std::atomic<size_t> stepped_{0};
  std::atomic<bool> stopped_{false};
};

}  // namespace split::bench
