// The whole model on this machine for texts whose cloud is lost: the one whose weights come beside
// the texts, if any, else one from the cache, loaded when the first text needs it and shared. None
// if the cache lacks a part or --exact forbids it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "edge_client/drive/split_forward.h"
#include "edge_client/engine/weight_fetch.h"
#include "edge_client/split/lock_order.h"

namespace split::edge {

// Any thread.
class Failover {
 public:
  using Split = std::shared_ptr<const PlacedModel>;
  // The builder outlives it. With `exact_only` no text goes on here if that may change a bit.
  Failover(const TailBuilder& tails, bool exact_only) : tails_(tails), exact_only_(exact_only) {}

  // Returns how texts that begin on `split` move, and are rescued.
  Moving moving(const Split& split, std::function<std::unique_ptr<CloudLink>()> connect);
  // Returns http::Client::on_silence for such a text's connection.
  std::function<bool()> is_lost(const Split& split);
  // Whether the rest of the model comes for texts that begin on `split` (place/decision.h).
  bool keeps_reserve(PlacedModel& split) const;
  // Sets the fetch whose weights texts wait for, which outlives them; null: none.
  void comes_by(WeightFetch* fetch);
  // Drops the loaded model; texts that use it keep it alive.
  void cloud_answers();
  // Adds to the receipt what runs here of a rescued text.
  void describe(Receipt& receipt) const;

 private:
  std::shared_ptr<PlacedModel> whole(const PlacedModel& split);
  std::shared_ptr<PlacedModel> arrived(const PlacedModel& split) const;

  const TailBuilder& tails_;
  const bool exact_only_;
  Mutex loading_{LockOrder::kRescue};          // held by the one who loads
  mutable Mutex mutex_{LockOrder::kFailover};  // guards the members below
  WeightFetch* fetch_ = nullptr;
  std::shared_ptr<PlacedModel> kept_;
  bool in_vain_ = false;  // --exact forbids it
  Receipt given_;         // describe() copies from it
};

// A line for people about move `i` of a text, if it followed the cloud's loss or return; else
// empty.
std::string rescue_words(const std::vector<Move>& moves, size_t i, std::optional<bool> exact);

}  // namespace split::edge
