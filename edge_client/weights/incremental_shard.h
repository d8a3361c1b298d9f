// A tail that grows on a thread of its own while answers use it, by the steps of growth.h: each is
// taken once its blobs are here. Its floor only goes down; what stops it is told, and stops nothing
// else.
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

// How far a tail has grown.
struct GrowthNote {
  Point floor;
  int layers_here = 0, layers = 0;  // blocks, and of the model
  bool done = false;                // it grows no further
  std::string why = {};             // what is in the way of the next stage, if anything is
  bool operator==(const GrowthNote&) const = default;
  // "3/8 layers here", and why no more.
  std::string line() const;
};
// Called whenever that has changed, by the thread that grows.
using OnGrowth = std::function<void(const GrowthNote&)>;

class IncrementalShard {
 public:
  // `tail` begins empty, its load brings the steps' blobs beside texts, and it outlives this.
  // `layers`: of the model.
  IncrementalShard(LocalTail& tail, std::vector<GrowthStep> steps, int layers, OnGrowth told = {});
  // Ends the tail's load, if it still goes on, and waits for the stage that is on its way.
  ~IncrementalShard();
  IncrementalShard(const IncrementalShard&) = delete;
  IncrementalShard& operator=(const IncrementalShard&) = delete;

  // The same before its end: it grows no further, and tells nobody. Once, or again to no effect.
  void stop();
  GrowthNote note() const;  // any thread

  // While one lives, a text runs, which the download leaves its share of the line. Any thread.
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
  // Notes how far it is, and tells it where that is new.
  void tell(const std::string& why, bool done);
  void texts(int more);

  LocalTail& tail_;
  const std::vector<GrowthStep> steps_;
  const OnGrowth told_;
  std::atomic<bool> ends_{false};
  mutable std::mutex mutex_;  // of:
  GrowthNote note_;
  int texts_ = 0;
  std::thread thread_;
};

}  // namespace split::edge
