// The texts that run on this machine, so that others can see where each is cut, and move it.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>

#include "edge_client/drive/split_forward.h"
#include "edge_client/engine/weight_fetch.h"
#include "edge_client/split/lock_order.h"

namespace split::edge {

// Any thread.
class RunningTexts {
 public:
  // With `exact_only`, no text moves by itself if that may change a bit. `other_bits`: nothing is
  // exact once that is set.
  RunningTexts(bool exact_only, std::shared_ptr<const std::atomic<bool>> other_bits)
      : exact_only_(exact_only), other_bits_(std::move(other_bits)) {}

  // Lets these forecasts choose where texts run until go_on_at(nullopt), if the goal is speed and
  // enough was measured. The next text begins at the fastest of the cloud and the cuts whose
  // weights are here. A running one moves to such a cut when its own tokens are slower than the
  // forecast there. `tell` gets a line when the place where texts begin changes, on the thread that
  // calls next().
  void choose_by(Forecasts& forecasts, std::function<void(const std::string&)> tell = {});
  // Returns where the next text begins by that choice; null without one, or before weights landed.
  std::shared_ptr<PlacedModel> next() const;

  // A text, from its first token to its last; destroyed before it. `repeats`: the client may expect
  // the same text again, so it moves by itself only if its bits stay the same.
  class Entry {
   public:
    Entry(RunningTexts& answers, SplitForward& text, bool repeats);
    ~Entry();
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    friend class RunningTexts;
    RunningTexts& answers_;
    SplitForward& text_;
    const bool repeats_;
    uint64_t id_ = 0;
  };
  std::map<uint64_t, SplitForward::Place> places() const;  // by the texts' numbers

  // Moves each text that can as soon as its mover has brought the rows: to this model, unless it
  // has the stages already; or to the cloud.
  void move(Cut cut, const std::shared_ptr<PlacedModel>& split);
  // Lets running and coming texts go on at this cut, until another is named; nullopt: they stay.
  void go_on_at(const std::optional<AvailableCut>& place);
  // The weights that are here, whether or not texts use them.
  std::optional<AvailableCut> here() const;
  // Lets running and coming texts go on at this cut if a loaded cloud asks for that.
  void offer(const AvailableCut& place);

  // Sets a model that grows beside the texts: their receipts count its bytes, wherever they run.
  void grow_beside(std::shared_ptr<const PlacedModel> model);
  std::shared_ptr<const PlacedModel> grown() const;  // null: nothing grows
  FetchCounts grown_bytes() const;

  // Calls `told` now, when the first running text begins and when the last one ends.
  void on_busy(std::function<void(bool busy)> told);

  // Whether moves change no bit; nullopt: not compared.
  std::optional<bool> exact() const;
  void set_exact(bool exact);

 private:
  std::optional<FastestCut::Now> choice() const;
  void offer_to(Entry& entry) const;

  const bool exact_only_;
  const std::shared_ptr<const std::atomic<bool>> other_bits_;
  mutable Mutex mutex_{LockOrder::kTexts};  // guards the members below
  uint64_t last_ = 0;
  std::list<Entry*> entries_;
  std::optional<AvailableCut> place_, offered_;
  std::shared_ptr<const PlacedModel> beside_;
  std::function<void(bool)> told_;
  Forecasts* forecasts_ = nullptr;  // make the choice; null: texts go on where the weights are
  std::function<void(const std::string&)> tell_;
  mutable std::shared_ptr<PlacedModel> next_;
  mutable std::optional<Cut> told_begin_;  // the beginning that tell_ had last
  std::optional<bool> exact_;
};

// Adds to the receipt what came beside a text that began on the cloud, and what runs here of one
// that moved.
void describe_place(Receipt& receipt, const RunningTexts& answers, const ModelConfig& config);

}  // namespace split::edge
