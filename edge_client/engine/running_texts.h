// The texts that run on this machine, while they do: so that others can see where each is cut, and
// move it.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "edge_client/drive/split_forward.h"
#include "edge_client/engine/weight_fetch.h"

namespace split::edge {

// Any thread.
class RunningTexts {
 public:
  // With `exact_only`, none moves by itself where that may change a bit.
  explicit RunningTexts(bool exact_only = false) : exact_only_(exact_only) {}

  // These forecasts choose where texts run from now on, until go_on_at(none), if the goal is speed
  // and enough was measured. The next text begins at the quickest of the cloud and the places whose
  // weights are here. One that runs leaves for such a place when its own tokens are slower than is
  // foreseen there. `tell` gets a line when the place changes where texts begin; the caller of
  // next() calls it.
  void choose_by(Forecasts& forecasts, std::function<void(const std::string&)> tell = {});
  // Returns where the next text begins then; null where that is not chosen, or nothing has landed.
  std::shared_ptr<PlacedModel> next() const;

  // A text, from its first token to its last; goes before it. One that `repeats` is one that
  // somebody may expect again: it moves by itself only where its bits stay the same.
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
  struct Answer {
    uint64_t id = 0;
    SplitForward::Place place;
  };
  std::vector<Answer> list() const;

  // Each that can moves there, as soon as its lane has brought the rows: to this model, unless it
  // has the stages already; or to the cloud.
  void move(int cut, const std::shared_ptr<PlacedModel>& split);
  // Texts go on there, those that run and those to come, until another place is named; none: they
  // stay where they are.
  void go_on_at(const std::optional<AvailableCut>& place);
  // The weights that are here, whatever texts do with them.
  std::optional<AvailableCut> here() const;
  // Texts may go on there where a loaded cloud asks for that, those that run and those to come.
  void offer(const AvailableCut& place);

  // A model that grows beside the texts: their receipts count its bytes, wherever they run.
  void grow_beside(std::shared_ptr<const PlacedModel> model);
  std::shared_ptr<const PlacedModel> grown() const;  // null: none does
  FetchCounts grown_bytes() const;

  // Called now, and where the first text of those that run begins and the last one ends.
  void on_busy(std::function<void(bool busy)> told);

  // Whether moves change no bit; none: nobody looked.
  std::optional<bool> exact() const;
  void set_exact(bool exact);

 private:
  std::optional<FastestCut::Now> choice() const;
  void offer_to(Entry& entry) const;

  const bool exact_only_;
  mutable std::mutex mutex_;  // of:
  uint64_t last_ = 0;
  std::list<Entry*> entries_;
  std::optional<AvailableCut> place_, offered_;
  std::shared_ptr<const PlacedModel> beside_;
  std::function<void(bool)> told_;
  Forecasts* forecasts_ = nullptr;  // that choose; none: texts go on where the weights are
  std::function<void(const std::string&)> tell_;
  mutable std::shared_ptr<PlacedModel> next_;
  mutable std::optional<std::optional<int>> told_begin_;  // that of its words
  std::optional<bool> exact_;
};

// Says what came beside a text that began on the cloud, and what runs here of one that went to the
// answers' place.
void describe_place(Receipt& receipt, const RunningTexts& answers, const ModelConfig& config);

}  // namespace split::edge
