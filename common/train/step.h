// One step of training as one plan: forward, backward, clipping, update. Parameters, moments and
// the step count are state of the store, written in place; the rates are arguments. Losses of
// several runs may be accumulated before an update.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "array/plan.h"
#include "optim/optim.h"

namespace split::train {

struct StepOptions {
  double clip_norm = 0, clip_value = 0;  // 0: no clipping
  int accumulate = 1;                    // losses averaged by an update
};

// The graph of an update by gradients, with the loss and their norm as results.
array::Graph step_graph(const Tensor& loss, std::vector<Tensor> gradients,
                        const optim::Optimiser& optimiser, const StepOptions& options);

class Step {
 public:
  // `loss`: [] over leaves of `store`, in which the parameters are state. Adds the optimiser's
  // state and rates if the store lacks them. Throws Error(kShape).
  Step(array::Runtime& runtime, array::Store& store, const Tensor& loss, optim::Optimiser optimiser,
       const StepOptions& options);

  // Returns the loss for the arguments in the store; parameters change with the last accumulated
  // loss. `factor` multiplies the groups' rates.
  float run(double factor);
  // The norm of the last update's gradients, before clipping.
  float gradient_norm() const { return last_->output("norm")[0]; }
  const array::Plan& plan() const { return *last_; }
  // Updates so far, counted in the state.
  int64_t steps() const;

 private:
  array::Store& store_;
  optim::Optimiser optimiser_;
  int accumulate_, next_ = 0;
  std::unique_ptr<array::Plan> add_, last_;  // for all losses but the last, and for the last
};

}  // namespace split::train
