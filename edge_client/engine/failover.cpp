#include "edge_client/engine/failover.h"

#include <algorithm>

#include "base/log.h"
#include "base/plain_words.h"
#include "edge_client/engine/large_stack.h"
#include "edge_client/weights/exactness.h"

namespace split::edge {
namespace {

// Whether both sides claim the same bits, since there is no cloud to compare with.
bool says_exact(PlacedModel& split) {
  const Shard& shard = split.batcher()->shard();
  return split.wire == DType::kF32 && !split.info.bits.empty() &&
         split.info.bits == own_bits(shard, split.info, shard.options().formats);
}

}  // namespace

Moving Failover::moving(const Split& split, std::function<std::unique_ptr<CloudLink>()> connect) {
  const auto rescue = [this, split]() -> std::shared_ptr<TailSide> {
    const std::shared_ptr<PlacedModel> all = whole(*split);
    return all ? std::make_shared<TailSide>(*all->batcher(), all) : nullptr;
  };
  MoveOptions options = move_options(*split);
  if (exact_only_) options.ends = split->other_bits;
  return {std::move(options), std::move(connect), rescue};
}

std::function<bool()> Failover::is_lost(const Split& split) {
  if (!split->leaves_lost_cloud) return {};
  // The connection may outlive the model.
  return [this, weak = std::weak_ptr(split)] {
    const Split of = weak.lock();
    {
      const std::lock_guard lock(mutex_);
      if (in_vain_ || !of) return false;
    }
    return tails_.weights().whole_in_cache(of->info) && !tails_.choice().server().responds();
  };
}

bool Failover::keeps_reserve(PlacedModel& split) const {
  const ModelChoice& choice = tails_.choice();
  const bool leaves = split.leaves_lost_cloud && !choice.recalled();
  const bool allowed = choice.options().max_weights != 0u && !choice.config().encodes();
  return choice.request().many_texts &&
         edge::keeps_reserve(leaves, split.place.local(), split.place.alone(), allowed) &&
         (!exact_only_ || says_exact(split));
}

void Failover::comes_by(WeightFetch* fetch) {
  const std::lock_guard lock(mutex_);
  fetch_ = fetch;
}

void Failover::cloud_answers() {
  const std::lock_guard lock(mutex_);
  kept_.reset();
}

// Returns null if the fetch needs the cloud.
std::shared_ptr<PlacedModel> Failover::arrived(const PlacedModel& split) const {
  WeightFetch* fetch = nullptr;
  {
    const std::lock_guard lock(mutex_);
    fetch = fetch_;
  }
  if (fetch == nullptr) return nullptr;
  std::shared_ptr<PlacedModel> placed = fetch->placed();
  if (placed && placed->tail->floor().is_tokens()) return placed;
  return tails_.weights().whole_in_cache(split.info) ? fetch->wait_for(0) : nullptr;
}

std::shared_ptr<PlacedModel> Failover::whole(const PlacedModel& split) {
  const std::lock_guard loading(loading_);
  {
    const std::lock_guard lock(mutex_);
    if (kept_) return kept_;
  }
  std::shared_ptr<PlacedModel> all = arrived(split);
  if (!all) {
    try {
      on_large_stack([&] { all = tails_.load_from_cache(split); });
    } catch (const std::exception& error) {
      log_warning(cat("the cloud is lost, and the text waits: ", plain_words(error.what())));
    }
  }
  if (!all) return nullptr;
  all = std::make_shared<PlacedModel>(all->at(0));
  all->exact = says_exact(*all);
  const std::lock_guard lock(mutex_);
  in_vain_ = !may_move(all->is_exact(), exact_only_, false);
  if (in_vain_) return nullptr;
  kept_ = all;
  ::split::edge::describe(given_, *all, tails_.choice().config(), "");
  given_.exact = all->is_exact();
  return all;
}

void Failover::describe(Receipt& receipt) const {
  const auto& moves = receipt.counts.moves;
  if (std::ranges::find(moves, Why::kCloudLost, &Move::why) == moves.end()) return;
  const std::lock_guard lock(mutex_);
  if (given_.model.empty()) return;  // everything was here before
  receipt.device = given_.device;
  receipt.edge_profile = given_.edge_profile;
  receipt.edge_stages = given_.edge_stages;
  if (!receipt.exact || !*given_.exact) receipt.exact = given_.exact;
}

std::string rescue_words(const std::vector<Move>& moves, size_t i, std::optional<bool> exact) {
  const Move& move = moves[i];
  if (move.why == Why::kCloudLost) {
    return cat("the cloud does not answer: the text goes on here alone",
               exact.value_or(true) ? "" : ", and may differ: the cloud's bits are others");
  }
  const bool back = i > 0 && moves[i - 1].why == Why::kCloudLost && move.to == moves[i - 1].from;
  if (!back) return "";
  return cat("the cloud answers again, and is quicker: the text goes on ",
             move.to.is_cloud() ? "there" : cat("at cut ", move.to.name()));
}

}  // namespace split::edge
