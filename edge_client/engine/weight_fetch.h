// Brings the whole model to this machine beside texts that the cloud has begun: its manifest, the
// device and its self-test, and the weights, stage by stage. Reports where texts may go on, as soon
// as they may. A failure is one line, and texts stay where they are.
#pragma once

#include <condition_variable>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "edge_client/engine/observer.h"
#include "edge_client/measure/forecasts.h"
#include "edge_client/split/lock_order.h"

namespace split::edge {

// Calls the observer on its own thread. Any thread, but its destructor.
class WeightFetch {
 public:
  // Begins. The builder, the forecasts and the observer outlive it; nobody else lets the builder
  // load meanwhile. `info`: texts run by it. `forecasts`, unless null, gets what is measured.
  WeightFetch(TailBuilder& tails, wire::ModelInfo info, Forecasts* forecasts, OnBytes on_bytes,
              EngineObserver& observer);
  // Cancels the downloads; whole blobs stay in the cache.
  ~WeightFetch();
  WeightFetch(const WeightFetch&) = delete;
  WeightFetch& operator=(const WeightFetch&) = delete;

  std::shared_ptr<PlacedModel> placed() const;  // null until the device is there
  // Waits for everything from this cut on, and returns it; null if it will not come.
  std::shared_ptr<PlacedModel> wait_for(int cut);
  // Says whether texts run, which get their share of the line.
  void text_runs(bool runs);

 private:
  using Lock = Mutex::Lock;
  ModelChoice& choice() const { return tails_.choice(); }
  void run();
  void say(const std::string& line);
  std::shared_ptr<PlacedModel> begin(Growth& growth);
  wire::ModelInfo ask();
  std::optional<bool> compare(const PlacedModel& placed);
  void measure_late(const wire::ModelInfo& info);
  void grew(const PlacedModel& placed, const GrowthNote& note);
  void look(const PlacedModel& placed, int cut);
  void share_line();
  std::optional<std::chrono::steady_clock::time_point> whole_at(const PlacedModel& placed) const;

  TailBuilder& tails_;
  const wire::ModelInfo info_;
  Forecasts* const forecasts_;
  const OnBytes on_bytes_;
  EngineObserver& observer_;
  Interrupt ends_;
  struct {
    uint64_t coming = 0;                               // bytes of all weights; 0: not all come
    std::chrono::steady_clock::time_point began = {};  // start of the downloads
    std::chrono::steady_clock::time_point again = {};  // earliest time to compare bits again
    std::optional<int> last;                           // the cut that was reported last
  } fetch_;                                            // used by the thread alone, after it began
  mutable Mutex mutex_{LockOrder::kFetch};             // guards the members below
  std::condition_variable changed_;
  std::shared_ptr<PlacedModel> placed_;
  bool over_ = false;  // no more weights come
  bool ending_ = false, text_runs_ = true;
  std::optional<bool> exact_;
  std::thread thread_;
};

}  // namespace split::edge
