// The rest of the model, for texts at a named cut: downloaded into the cache while no text runs, so
// that texts go on here if the cloud is lost (failover.h). A text that begins gets the whole line
// at once; what has come stays in the cache.
#pragma once

#include <condition_variable>
#include <optional>
#include <thread>

#include "edge_client/engine/observer.h"
#include "edge_client/engine/running_texts.h"
#include "edge_client/split/lock_order.h"

namespace split::edge {

// Calls the observer on its own thread.
class Reserve {
 public:
  // Begins, unless the weights exceed --max-weights or the memory. The arguments outlive it; nobody
  // else downloads weights or calls answers.on_busy() meanwhile.
  Reserve(const ModelChoice& choice, RunningTexts& answers, EngineObserver& observer);
  ~Reserve();  // cancels the download
  Reserve(const Reserve&) = delete;
  Reserve& operator=(const Reserve&) = delete;

 private:
  void text_runs(bool runs);
  void run();
  void bring();
  std::string over() const;

  const ModelChoice& choice_;
  const WeightStore weights_{choice_};
  RunningTexts& answers_;
  EngineObserver& observer_;
  Interrupt ends_;
  std::optional<wire::ModelInfo> whole_;  // set once the cloud has described it
  bool told_ = false;                     // the observer knows of the download
  Mutex mutex_{LockOrder::kReserve};      // guards the members below
  std::condition_variable changed_;
  BlobLoad* load_ = nullptr;  // the running download
  bool text_runs_ = false;
  std::thread thread_;
};

}  // namespace split::edge
