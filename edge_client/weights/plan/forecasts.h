// Keeps what this program expects of its answers, and learns from them, for one model of one
// server. The facts come from the cache and from whoever measures; each answer that ends is
// compared with them.
#pragma once

#include <chrono>
#include <functional>
#include <mutex>

#include "base/resources/clock.h"
#include "edge_client/place/fastest_cut.h"
#include "edge_client/place/plan_report.h"
#include "edge_client/split/receipt.h"
#include "edge_client/weights/plan/plan_memory.h"

namespace split::edge {

// Any thread.
class Forecasts {
 public:
  struct Choice {
    Goal goal = Goal::kFast;
    double pace = 10;     // tokens/s
    bool chosen = false;  // the cut is; else it was asked for
  };
  // The bytes that are missing by cut, as PlanInput has them.
  using Missing = std::function<std::vector<uint64_t>()>;
  // `shape`: plan/plan.h. `missing` says what is missing now; none: what `shape` says.
  Forecasts(PlanMemory memory, PlanInput shape, Choice choice, Missing missing = {});
  // Keeps what was learnt last.
  ~Forecasts();
  Forecasts(const Forecasts&) = delete;
  Forecasts& operator=(const Forecasts&) = delete;

  PlanFacts facts() const;
  // Takes what was measured just now, as far as it was, and keeps it.
  void measured(const std::optional<Network>& network, const std::optional<Speed>& edge,
                const std::optional<CloudLoad>& cloud);
  // Says in the receipt of an answer how it was foreseen and what it cost; with `drafts` its steps
  // could check guesses. Nothing is said where too little is known.
  void describe(Receipt& receipt, const AnswerWatch& watch, bool drafts) const;
  // Learns from one that has ended. Returns how far off its token was foreseen, as Forecast::error.
  std::optional<double> learn(const Receipt& receipt, const AnswerWatch& watch, bool drafts);
  // Chooses where texts run that are to be fast, now that the weights from this cut on are here;
  // none where another goal was asked for, or too little is known.
  std::optional<FastestCut::Now> choose(int lowest, bool head_on_cloud = false);
  // A plan for the next one, as far as it is known; the weights may have come meanwhile: those from
  // the cut `here` on are loaded, also where the disk does not keep them by their names yet.
  PlanReport plan(const std::string& model, std::optional<bool> exact,
                  std::optional<int> here = {}) const;

 private:
  PlanInput input(size_t prompt_tokens, bool drafts) const;
  void keep(bool now);

  const PlanMemory memory_;
  const PlanInput shape_;
  const Choice choice_;
  const Missing missing_;
  mutable std::mutex mutex_;  // of:
  PlanFacts facts_;
  FastestCut fast_;
  bool head_on_cloud_ = false;  // of a text at a cut
  std::optional<int> lowest_;   // cut from which on the weights are here, where that is of interest
  std::optional<std::optional<int>> begins_;  // cut of the next text, where that is a free choice
  bool changed_ = false;
  Clock::time_point kept_{};
  uint64_t charged_ = 0;  // bytes of weights that an answer's cost had
};

}  // namespace split::edge
