// The whole model for texts whose cloud is lost, on this machine alone: the one that comes beside
// the texts, if one does, else one out of the cache, loaded when the first text needs it and shared
// by those that do. Where the cache lacks a part, or --exact forbids it, there is none.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "edge_client/drive/split_forward.h"
#include "edge_client/engine/weight_fetch.h"

namespace split::edge {

// Any thread.
class Failover {
 public:
  using Split = std::shared_ptr<const PlacedModel>;
  // The loader outlives it. With `exact_only` no text goes on where that may change a bit.
  Failover(const Loader& loader, bool exact_only) : loader_(loader), exact_only_(exact_only) {}

  // How texts that begin on `split` move, and are rescued.
  Moving moving(const Split& split, std::function<std::unique_ptr<CloudLink>()> connect);
  // Gives http::Client::on_silence, of such a text's connection, its answer.
  std::function<bool()> is_lost(const Split& split);
  // Whether texts that begin on it could go on here, had the cache all weights.
  bool may_rescue(PlacedModel& split) const;
  // Texts wait for the weights that come by this one, which outlives them; null: none come.
  void comes_by(WeightFetch* fetch);
  // Lets what was loaded go with the last text that has it.
  void cloud_answers();
  // Says what runs here of a text that was rescued.
  void describe(Receipt& receipt) const;

 private:
  std::shared_ptr<PlacedModel> whole(const PlacedModel& split);
  std::shared_ptr<PlacedModel> arrived(const PlacedModel& split) const;

  const Loader& loader_;
  const bool exact_only_;
  std::mutex loading_;        // one at a time
  mutable std::mutex mutex_;  // of:
  WeightFetch* fetch_ = nullptr;
  std::shared_ptr<PlacedModel> kept_;
  bool in_vain_ = false;  // --exact forbids it
  Receipt given_;         // what describe() says
};

// A line for people about move number `i` of a text, where the cloud was lost or is back; else
// nothing.
std::string rescue_words(const std::vector<Move>& moves, size_t i, std::optional<bool> exact);

}  // namespace split::edge
