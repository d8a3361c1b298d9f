// A tail that grows on a thread of its own while answers use it, by the steps of growth.h: each is
// taken once its blobs are here. Its floor only goes down. An error ends the growth alone, and is
// reported.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "edge_client/weights/growth.h"
#include "edge_client/weights/local_tail.h"

namespace split::edge {

// The progress of a tail.
struct GrowthNote {
  Point floor;
  int layers_here = 0, layers = 0;  // layers_here: blocks loaded; layers: the model's
  bool done = false;                // growth has ended
  std::string why = {};             // obstacle of the next stage; empty: none
  bool operator==(const GrowthNote&) const = default;
  // "3/8 layers here", and the obstacle.
  std::string line() const;
};
// Called on each change, by the growing thread.
using OnGrowth = std::function<void(const GrowthNote&)>;

class IncrementalShard {
 public:
  // `tail` begins empty, loads the steps' blobs beside texts, and outlives this. `layers`: the
  // model's.
  IncrementalShard(LocalTail& tail, std::vector<GrowthStep> steps, int layers, OnGrowth told = {});
  // Ends the tail's load, if it is running, and waits for the stage being loaded.
  ~IncrementalShard();
  IncrementalShard(const IncrementalShard&) = delete;
  IncrementalShard& operator=(const IncrementalShard&) = delete;

  // Ends the growth, without a report. Idempotent.
  void stop();
  GrowthNote note() const;  // any thread

  // Marks a running text, which gets its share of the line. Any thread.
  class Text {
   public:
    explicit Text(IncrementalShard& tail) : tail_(tail) { tail_.texts(1); }
    ~Text() { tail_.texts(-1); }
    Text(const Text&) = delete;
    Text& operator=(const Text&) = delete;

   private:
    IncrementalShard& tail_;
  };

 private:
  enum class Taken : uint8_t { kYes, kNoRoom, kNever };
  void run();
  Taken take(const GrowthStep& step, std::string& why);
  bool comes(const GrowthStep& step);
  // Updates the note, and reports a change.
  void tell(const std::string& why, bool done);
  void texts(int more);

  LocalTail& tail_;
  const std::vector<GrowthStep> steps_;
  const OnGrowth told_;
  std::atomic<bool> ends_{false};
  mutable std::mutex mutex_;  // guards the members below
  GrowthNote note_;
  int texts_ = 0;
  std::thread thread_;
};

}  // namespace split::edge
