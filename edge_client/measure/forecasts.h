// The forecasts of this program's answers, for one model of one server, corrected by each answer
// that ends. The facts come from the cache and from measurements.
#pragma once

#include <chrono>
#include <functional>

#include "base/resources/clock.h"
#include "edge_client/measure/plan_memory.h"
#include "edge_client/place/fastest_cut.h"
#include "edge_client/place/plan_report.h"
#include "edge_client/split/lock_order.h"
#include "edge_client/split/receipt.h"
#include "edge_client/weights/tail_builder.h"

namespace split::edge {

// Any thread.
class Forecasts {
 public:
  struct Choice {
    Goal goal = Goal::kFast;
    double pace = 10;     // tokens/s
    bool chosen = false;  // the cut was chosen; else named
  };
  // Returns PlanInput's missing_bytes.
  using Missing = std::function<std::vector<uint64_t>()>;
  // `shape`: measure/plan.h. `missing`: the bytes missing now; empty: as in `shape`.
  Forecasts(PlanMemory memory, PlanInput shape, Choice choice, Missing missing = {});
  // Saves what was learnt last.
  ~Forecasts();
  Forecasts(const Forecasts&) = delete;
  Forecasts& operator=(const Forecasts&) = delete;

  PlanFacts facts() const;
  // Takes new measurements, where present, and saves them.
  void measured(const std::optional<Network>& network, const std::optional<Speed>& edge,
                const std::optional<CloudLoad>& cloud);
  // Adds to an answer's receipt its forecast and its cost; with `drafts` its steps could check
  // guesses. Adds nothing if too little is known.
  void describe(Receipt& receipt, const AnswerWatch& watch, bool drafts) const;
  // Learns from an ended answer. Returns Forecast::error.
  std::optional<double> learn(const Receipt& receipt, const AnswerWatch& watch, bool drafts);
  // Chooses where fast texts run, with the weights from this cut on here; nullopt for another goal,
  // or if too little is known.
  std::optional<FastestCut::Now> choose(int lowest, bool head_on_cloud = false);
  // Returns a plan for the next answer, as far as known. The weights from the cut `here` on are
  // loaded, even if the disk does not have them under their names yet.
  PlanReport plan(const std::string& model, std::optional<bool> exact,
                  std::optional<int> here = {}) const;

 private:
  PlanInput input(size_t prompt_tokens, bool drafts) const;
  void keep(bool now);

  const PlanMemory memory_;
  const PlanInput shape_;
  const Choice choice_;
  const Missing missing_;
  mutable Mutex mutex_{LockOrder::kForecasts};  // guards the members below
  PlanFacts facts_;
  FastestCut fast_;
  bool head_on_cloud_ = false;  // applies to texts at a cut
  std::optional<int> lowest_;   // the weights from this cut on are here; nullopt: irrelevant
  std::optional<Cut> begins_;   // cut of the next text, if that is a free choice
  bool changed_ = false;
  Clock::time_point kept_{};
  uint64_t charged_ = 0;  // bytes of weights already in an answer's cost
};

// Returns the forecasts of the model's answers, which may outlive the builder and its choice.
std::unique_ptr<Forecasts> make_forecasts(TailBuilder& tails, const wire::ModelInfo& info);

}  // namespace split::edge
