// A model with a cut, ready to run: where its stages are, and this machine's part of them.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "edge_client/cloud/model_link.h"
#include "edge_client/split/cut_mover.h"
#include "edge_client/split/receipt.h"
#include "edge_client/weights/local_tail.h"

namespace split::edge {

// Immutable but for the tail's own state, which copies share.
struct PlacedModel {
  Placement place;
  wire::ModelInfo info;
  std::string query;                // the query for `info` (wire::model_query())
  std::shared_ptr<LocalTail> tail;  // null: nothing runs here
  bool growing = false;             // the tail began empty
  FetchCounts fetched;              // unless `growing`
  std::string profile;              // the tail's
  // The cut that sessions are opened for, so that a text's cut may move: the cloud supports that,
  // and the head is here. nullopt: each text stays where it begins.
  std::optional<int> deepest = {};
  bool leaves_lost_cloud = false;  // texts go on here after a loss if all stages can be here
  double pace = 0;                 // tokens/s kept by offloading (MoveOptions)
  std::optional<bool> exact = {};  // as it was placed: weights/exactness.h; nullopt: not compared
  std::shared_ptr<std::atomic<bool>> other_bits = {};  // LinkOptions::other_bits
  DType wire = DType::kF32;                            // format of hidden states on the wire
  double head_blocks = 0;                              // head_in_blocks()
  bool personal = false;                               // uses a fine-tuned tail

  // Whether moves change no bit by what is known now.
  std::optional<bool> is_exact() const { return tells_other_bits() ? false : exact; }
  // Whether the cloud's rows have other bits by now than `info` says.
  bool tells_other_bits() const { return other_bits && *other_bits; }
  // Whether a text's cut can move, or at least leave a lost cloud.
  bool moves() const {
    return deepest || (leaves_lost_cloud && !place.cut.is_cloud() && !place.alone());
  }
  // Whether texts that begin here get rounded rows.
  bool rounds() const {
    const bool rows_travel = place.head_on_cloud || (!place.cut.is_cloud() && place.cut > 0);
    return wire != DType::kF32 && rows_travel;
  }
  Batcher* batcher() { return tail ? &tail->batcher() : nullptr; }
  // The device that computes here now; null if texts have to move here first.
  const Device* computes() const { return tail && place.local() ? &tail->device() : nullptr; }
  std::string device() const { return computes() != nullptr ? computes()->name() : ""; }
  bool on_gpu() const { return computes() != nullptr && computes()->is_gpu(); }
  // Returns the same weights for texts that begin at another cut.
  PlacedModel at(Cut cut) const;
  // The lowest point from which on everything is here, if any. Any thread.
  std::optional<Point> floor() const;
  FetchCounts counts() const { return growing ? tail->counts() : fetched; }
};

// Options of the cloud link of a text. The arguments outlive the link.
LinkOptions link_options(const PlacedModel& split, const ModelConfig& config,
                         const RetryOptions& retry, Waiter& waiter);

// How texts on the model move.
MoveOptions move_options(const PlacedModel& split);

// Adds to a receipt what runs where.
void describe(Receipt& receipt, const PlacedModel& split, const ModelConfig& config,
              const std::string& origin);

}  // namespace split::edge
