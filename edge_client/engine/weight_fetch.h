// The whole model on its way to this machine, beside texts that the cloud has begun: its manifest,
// the device and its test, and the weights, stage by stage. Says where texts may go on, as soon as
// they may. What fails is said in a line, and texts stay where they are.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "edge_client/engine/observer.h"

namespace split::edge {

struct WeightFetchOptions {
  GrowOptions grow;                // but what it tells, which the observer hears
  wire::ModelInfo info = {};       // that texts run by meanwhile
  Forecasts* forecasts = nullptr;  // told of what is measured
  Goal goal = Goal::kFast;         // each stage is a place, or only all
};

// Its thread tells the observer, of one after the other. Any thread, but its end.
class WeightFetch {
 public:
  // Begins. The loader and the observer outlive it, and nobody else calls the loader's load() or
  // grow() meanwhile.
  WeightFetch(Loader& loader, WeightFetchOptions options, EngineObserver& observer);
  // Ends what is on its way; what is whole stays in the cache.
  ~WeightFetch();
  WeightFetch(const WeightFetch&) = delete;
  WeightFetch& operator=(const WeightFetch&) = delete;

  std::shared_ptr<PlacedModel> placed() const;  // null until the device is there
  // Waits until all from this cut on is here, and returns it; null where it will not come.
  std::shared_ptr<PlacedModel> wait_for(int cut);
  // Texts run beside it, which it leaves their share of the line, or none does.
  void text_runs(bool runs);

 private:
  using Lock = std::unique_lock<std::mutex>;
  void run();
  void say(const std::string& line);
  std::shared_ptr<PlacedModel> begin();
  wire::ModelInfo ask();
  std::optional<bool> compare(const PlacedModel& placed);
  void measure_late(const wire::ModelInfo& info);
  void look(const PlacedModel& placed, int cut);
  void share_line();
  std::optional<std::chrono::steady_clock::time_point> whole_at(const PlacedModel& placed) const;

  Loader& loader_;
  const WeightFetchOptions options_;
  EngineObserver& observer_;
  Interrupt ends_;
  uint64_t coming_ = 0;                               // bytes of all weights; 0: not all come
  std::chrono::steady_clock::time_point began_ = {};  // they
  mutable std::mutex mutex_;                          // of:
  std::condition_variable changed_;
  std::shared_ptr<PlacedModel> placed_;
  std::optional<IncrementalShard::Text> text_;
  bool begun_ = false, ending_ = false, text_runs_ = true;
  std::optional<bool> exact_;
  std::thread thread_;
};

}  // namespace split::edge
