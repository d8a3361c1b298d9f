// The rest of the model for texts at a cut that was named: it comes into the cache while no text
// runs, so that they go on here if the cloud is lost (rescuer.h). A text that begins has the whole
// line at once; what came stays for the next time.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "edge_client/engine/observer.h"
#include "edge_client/engine/running_texts.h"

namespace split::edge {

// Its thread tells the observer.
class Reserve {
 public:
  // Begins, unless all weights are more than the options and the memory allow. All of these outlive
  // it; nobody else downloads weights or hears the answers meanwhile.
  Reserve(const Loader& loader, const EngineOptions& options, RunningTexts& answers,
          EngineObserver& observer);
  ~Reserve();  // ends what is on its way
  Reserve(const Reserve&) = delete;
  Reserve& operator=(const Reserve&) = delete;

 private:
  void text_runs(bool runs);
  void run();
  void bring();
  std::string over() const;

  const Loader& loader_;
  const EngineOptions& options_;
  RunningTexts& answers_;
  EngineObserver& observer_;
  Interrupt ends_;
  std::optional<wire::ModelInfo> whole_;  // once the cloud has described it
  bool told_ = false;                     // that it comes
  std::mutex mutex_;                      // of:
  std::condition_variable changed_;
  BlobLoad* load_ = nullptr;  // that goes on
  bool text_runs_ = false;
  std::thread thread_;
};

}  // namespace split::edge
