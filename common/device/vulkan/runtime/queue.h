// The device's compute queue: submits recorded commands and waits for them. A long step goes in
// several submissions, each expected to take less than kSubmissionMs, because weak devices share
// the GPU with a screen and their drivers take a long one for a hang. What a step takes is
// estimated from the steps before it. One thread at a time.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "device/vulkan/runtime/context.h"

namespace split::vulkan {

inline constexpr double kSubmissionMs = 50;  // half of what must not be exceeded

// The work of a command buffer: a few rows wait for memory, many for arithmetic, so
// each has a rate of its own.
struct Cost {
  uint64_t weights = 0;   // elements read, by commands of few rows
  uint64_t products = 0;  // multiply-adds, by commands of many
  Cost& operator+=(const Cost& other) {
    weights += other.weights;
    products += other.products;
    return *this;
  }
};

// Milliseconds of a Cost, learnt from what runs took.
class Pace {
 public:
  double estimate_ms(const Cost& cost) const;
  void learn(const Cost& cost, double ms);

 private:
  // Per second. At first those of a slow phone: 2 GB/s of half weights, 20 GFLOP/s.
  double weights_ = 1e9, products_ = 1e10;
};

struct Segment {
  VkCommandBuffer commands = VK_NULL_HANDLE;
  Cost cost;
  bool timed = false;  // has both of the queue's stamps itself
};

class Queue {
 public:
  explicit Queue(Context& context);
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  // Runs the segments in order and waits: a bounded spin, then a wait with a limit. Throws
  // Error(kDevice).
  void run(const std::vector<Segment>& segments);
  // Begins commands, as number so and so; done() and wait() are for those up to a number.
  uint64_t begin(VkCommandBuffer commands);
  bool done(uint64_t number) const;
  void wait(uint64_t number) const;
  uint64_t submissions() const { return submissions_; }  // since the start
  const Pace& pace() const { return pace_; }

  // From now on run() also takes the device's own time, where it can tell.
  void measure(bool on) { measure_ = on && stamps_.get() != VK_NULL_HANDLE; }
  bool measures() const { return measure_; }
  // Records a stamp: 0 at the beginning of what is measured, 1 at its end.
  void stamp(VkCommandBuffer commands, uint32_t which) const;
  // Milliseconds of the last run, from its first command's start to its last one's end.
  std::optional<double> device_ms() const { return device_ms_; }

 private:
  void run_all(const std::vector<Segment>& segments);
  void submit(std::span<const VkCommandBuffer> commands);
  void make_stamps();

  Context& context_;
  Handle<VkSemaphore> timeline_;
  uint64_t value_ = 0, submissions_ = 0;
  Pace pace_;
  Handle<VkQueryPool> stamps_;
  VkCommandBuffer stamp_[2] = {};  // before and after
  bool measure_ = false;
  std::optional<double> device_ms_;
};

}  // namespace split::vulkan
