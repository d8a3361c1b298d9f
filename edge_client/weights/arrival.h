// The whole model on its way to this machine, beside a text that the cloud has begun: the device,
// its test and the weights. What fails is said in a line, and the text stays where it is.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>

#include "edge_client/weights/loader.h"

namespace split::edge {

struct ArrivalOptions {
  GrowOptions grow;
  bool must_be_exact = false;  // texts move here only where their bits stay the same
  std::function<void(const std::string&)> tell = {};
};

// One thread at a time.
class Arrival {
 public:
  // Begins. The loader outlives it, and nobody else calls load() or grow() meanwhile.
  Arrival(Loader& loader, const wire::ModelInfo& info, ArrivalOptions options);
  // Ends what is on its way; what is whole stays in the cache.
  ~Arrival();
  Arrival(const Arrival&) = delete;
  Arrival& operator=(const Arrival&) = delete;

  // The whole model here, once it is and texts may move to it; null until then.
  Batcher* here();
  PlacedModel* placed() { return split_.get(); }  // null until the device is there
  std::optional<bool> exact() const { return exact_; }

 private:
  using Clock = std::chrono::steady_clock;
  void begun();
  bool may_move();

  Loader& loader_;
  const wire::ModelInfo& info_;
  const ArrivalOptions options_;
  std::future<std::unique_ptr<PlacedModel>> begins_;
  std::unique_ptr<PlacedModel> split_;
  std::optional<GrowingTail::Text> text_;
  std::optional<bool> exact_;
  bool stays_ = false;  // no text moves here
  Clock::time_point next_look_{};
};

}  // namespace split::edge
