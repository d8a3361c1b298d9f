#include "train/step.h"

#include "autograd/functions.h"
#include "autograd/grad.h"
#include "base/error.h"

namespace split::train {
namespace {

void add_state(array::Store& store, const std::string& name, const Dims& dims) {
  if (store.find(name) == nullptr) store.add(name, dims, true);
}

}  // namespace

array::Graph step_graph(const Tensor& loss, std::vector<Tensor> gradients,
                        const optim::Optimiser& optimiser, const StepOptions& options) {
  const Tensor norm = optim::global_norm(gradients);
  if (options.clip_norm > 0) gradients = optim::clip_by_norm(gradients, norm, options.clip_norm);
  if (options.clip_value > 0) gradients = optim::clip_by_value(gradients, options.clip_value);
  return {{{"loss", loss}, {"norm", norm}}, optimiser.updates(gradients)};
}

Step::Step(array::Runtime& runtime, array::Store& store, const Tensor& loss,
           optim::Optimiser optimiser, const StepOptions& options)
    : store_(store), optimiser_(std::move(optimiser)), accumulate_(options.accumulate) {
  for (const optim::State& state : optimiser_.states()) add_state(store, state.name, state.dims);
  for (size_t i = 0; i < optimiser_.groups().size(); ++i) {
    store.add(optim::Optimiser::rate_name(i), Dims{});
  }
  const std::vector<Tensor> leaves = optimiser_.leaves(), outputs{loss};
  std::vector<Tensor> gradients = autograd::grad(outputs, leaves);
  std::vector<NamedOutput> sums;
  if (accumulate_ > 1) {
    const float share = 1.0f / static_cast<float>(accumulate_);
    for (size_t i = 0; i < gradients.size(); ++i) {
      const std::string name = cat(leaves[i].node()->name, ".grad");
      add_state(store, name, leaves[i].dims());
      gradients[i] = input(name, DType::kF32, leaves[i].dims()) + gradients[i] * share;
      sums.push_back({name, gradients[i]});
    }
    add_ = std::make_unique<array::Plan>(runtime, array::Graph{{{"loss", loss}}, sums}, store);
  }
  array::Graph graph = step_graph(loss, std::move(gradients), optimiser_, options);
  for (const NamedOutput& sum : sums) {
    graph.updates.push_back({sum.name, expand(0.0f, sum.tensor.dims())});
  }
  last_ = std::make_unique<array::Plan>(runtime, graph, store);
}

float Step::run(double factor) {
  const bool last = ++next_ == accumulate_;
  if (!last) {
    add_->run();
    return add_->output("loss")[0];
  }
  next_ = 0;
  for (size_t i = 0; i < optimiser_.groups().size(); ++i) {
    store_.at(optim::Optimiser::rate_name(i)).floats[0] =
        static_cast<float>(optimiser_.groups()[i].options.lr * factor);
  }
  last_->run();
  return last_->output("loss")[0];
}

int64_t Step::steps() const { return static_cast<int64_t>(store_.read("optim.step").floats[0]); }

}  // namespace split::train
