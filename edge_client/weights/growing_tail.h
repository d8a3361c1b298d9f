// A tail that grows on a thread of its own while answers use it: what Landing (growth.h) decides,
// carried out. Its floor only goes down; what stops it is told, and stops nothing else.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "edge_client/weights/growth.h"
#include "edge_client/weights/local_tail.h"

namespace split::edge {

// Stages out of blobs that come one by one. Any thread.
class BlobStages {
 public:
  explicit BlobStages(const std::vector<GrowthStep>& steps);

  // A blob is there and good, or will not come.
  void blob(const std::string& sha256, const std::string* why);
  void over();                       // nothing more comes
  std::optional<StageEvent> take();  // the next event, if there is one by now
  // Waits for it. Behind the last, kOver, it is that again.
  StageEvent wait();

 private:
  void add(StageEvent event);

  mutable std::mutex mutex_;
  std::condition_variable more_;
  std::vector<size_t> left_;                          // blobs of each step that have not come
  std::vector<bool> broken_;                          // of the steps
  std::map<std::string, std::vector<size_t>> steps_;  // by the hash of a blob that has not come
  std::deque<StageEvent> events_;
};

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

class GrowingTail {
 public:
  // `tail` begins empty and outlives this, as `steps`' stages are its own. `layers`: of the model.
  GrowingTail(LocalTail& tail, std::vector<GrowthStep> steps, std::shared_ptr<BlobStages> source,
              int layers, OnGrowth told = {});
  // Ends the tail's load, if it still goes on, and waits for the stage that is on its way.
  ~GrowingTail();
  GrowingTail(const GrowingTail&) = delete;
  GrowingTail& operator=(const GrowingTail&) = delete;

  // The same before its end: it grows no further, and tells nobody. Once, or again to no effect.
  void stop();
  GrowthNote note() const;  // any thread

  // While one lives, a text runs, which the download leaves its share of the line. Any thread.
  class Text {
   public:
    explicit Text(GrowingTail& tail) : tail_(tail) { tail_.texts(1); }
    ~Text() { tail_.texts(-1); }
    Text(const Text&) = delete;
    Text& operator=(const Text&) = delete;

   private:
    GrowingTail& tail_;
  };

 private:
  void run();
  void take(Landing& landing);
  // Notes how far it is, and tells it where that is new.
  void tell(const Landing& landing);
  void texts(int more);

  LocalTail& tail_;
  const std::vector<GrowthStep> steps_;
  const std::shared_ptr<BlobStages> source_;
  const int layers_;
  const OnGrowth told_;
  std::atomic<bool> ends_{false};
  mutable std::mutex mutex_;  // of:
  GrowthNote note_;
  int texts_ = 0;
  std::thread thread_;
};

}  // namespace split::edge
