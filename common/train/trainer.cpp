#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "autograd/functions.h"
#include "autograd/grad.h"
#include "base/error.h"

namespace split::train {
namespace {

constexpr const char* kTokens = "train.tokens";
constexpr const char* kHidden = "train.hidden";
constexpr const char* kTargets = "train.targets";

// The loss of each row of hidden states at the tail's first block.
Tensor rows_lost(Tail& tail, const Windows& windows) {
  const int64_t rows = windows.rows();
  const Dims hidden{rows, tail.model().config().channels};
  const Tensor logits = tail.logits(windows, input(kHidden, DType::kF32, hidden));
  return cross_entropy(logits, input(kTargets, DType::kI32, {rows}));
}
// Makes room for its leaves.
Tensor rows_lost(array::Store& store, Tail& tail, const Windows& windows) {
  store.add(kHidden, {windows.rows(), tail.model().config().channels});
  store.add_numbers(kTargets, {windows.rows()});
  return rows_lost(tail, windows);
}

}  // namespace

void add_weights(array::Store& store, const Tail& tail, int from,
                 const std::function<OwnedTensor(const WeightDecl&)>& source) {
  const auto is_trained = [&](const std::string& name) {
    return std::ranges::any_of(tail.trained(),
                               [&](const optim::State& one) { return one.name == name; });
  };
  for (const std::string& name : tail.weights(from)) {
    const WeightDecl& decl = tail.model().weight(name);
    const OwnedTensor tensor = source(decl);
    if (tensor.view.dims != decl.dims) {
      throw Error(ErrorKind::kIntegrity,
                  cat("[train] weight '", name, "': expected ", to_string(decl.dims), ", got ",
                      to_string(tensor.view.dims)));
    }
    store.add(name, tensor.view, is_trained(name));
  }
  for (const Constant& constant : tail.model().constants())
    store.add(constant.name, constant.view());
  if (tail.shape().lora == 0) return;
  for (const optim::State& one : tail.trained()) store.add(one.name, one.dims, true);
}

void add_hidden(array::Runtime& runtime, array::Store& store, Tail& tail, WindowSet& set) {
  const auto length = static_cast<size_t>(set.length);
  const auto channels = static_cast<size_t>(tail.model().config().channels);
  const Windows one{1, set.length};
  store.add_numbers(kTokens, {set.length});
  const Tensor hidden = tail.head(one, input(kTokens, DType::kI32, {set.length}));
  array::Plan plan(runtime, {{{"hidden", hidden}}, {}}, store);
  set.hidden.resize(set.count() * length * channels);
  for (size_t i = 0; i < set.count(); ++i) {
    std::copy_n(set.ids.begin() + static_cast<std::ptrdiff_t>(i * (length + 1)), length,
                store.at(kTokens).numbers.begin());
    plan.run();
    std::ranges::copy(plan.output("hidden"),
                      set.hidden.begin() + static_cast<std::ptrdiff_t>(i * length * channels));
  }
}

Trainer::Trainer(array::Runtime& runtime, array::Store& store, Tail& tail, const Windows& windows,
                 const optim::Options& options, double clip_norm)
    : store_(store),
      windows_(windows),
      channels_(tail.model().config().channels),
      lost_(rows_lost(store, tail, windows)),
      loss_(mean(lost_)),
      step_(runtime, store, loss_, optim::Optimiser(tail.groups(options)),
            {.clip_norm = clip_norm}),
      predict_(runtime, {{{"lost", lost_}}, {}}, store) {}

void Needs::add(const array::Runtime& runtime, uint64_t leaves, uint64_t plans) {
  const bool gpu_has = runtime.gpu != nullptr;
  host += leaves + (gpu_has ? 0 : plans);
  (runtime.own_memory() > 0 ? gpu : host) += gpu_has ? leaves + plans : 0;
}

Needs Trainer::needs(const array::Runtime& runtime, Tail& tail, const Windows& windows,
                     const optim::Options& options, double clip_norm) {
  const Tensor lost = rows_lost(tail, windows), loss = mean(lost);
  const optim::Optimiser optimiser(tail.groups(options));
  const std::vector<Tensor> outputs{loss};
  const array::Graph graph = step_graph(loss, autograd::grad(outputs, optimiser.leaves()),
                                        optimiser, {.clip_norm = clip_norm});
  uint64_t floats = 0;
  const auto add = [&](const Dims& dims) {
    floats += static_cast<uint64_t>(element_count(dims).value_or(0));
  };
  for (const std::string& name : tail.weights(tail.shape().first))
    add(tail.model().weight(name).dims);
  for (const Constant& constant : tail.model().constants()) add(constant.dims);
  for (const optim::State& state : optimiser.states()) add(state.dims);
  if (tail.shape().lora > 0) {
    for (const optim::State& one : tail.trained()) add(one.dims);
  }
  add({windows.rows(), tail.model().config().channels});
  Needs needs;
  needs.add(runtime, floats * sizeof(float),
            array::Plan::bytes_of(runtime, graph) +
                array::Plan::bytes_of(runtime, {{{"lost", lost}}, {}}));
  return needs;
}

void Trainer::show(const WindowSet& set, std::span<const size_t> which) {
  CHECK(set.length == windows_.length && which.size() == static_cast<size_t>(windows_.batch));
  const auto length = static_cast<size_t>(set.length),
             row = length * static_cast<size_t>(channels_);
  auto& hidden = store_.at(kHidden).floats;
  auto& targets = store_.at(kTargets).numbers;
  for (size_t i = 0; i < which.size(); ++i) {
    CHECK(which[i] < set.count());
    std::memcpy(hidden.data() + i * row, set.hidden.data() + which[i] * row, row * sizeof(float));
    std::copy_n(set.ids.begin() + static_cast<std::ptrdiff_t>(which[i] * (length + 1) + 1), length,
                targets.begin() + static_cast<std::ptrdiff_t>(i * length));
  }
}

float Trainer::step(const WindowSet& set, std::span<const size_t> which, double factor) {
  show(set, which);
  return step_.run(factor);
}

double Trainer::perplexity(const WindowSet& set) {
  const auto batch = static_cast<size_t>(windows_.batch), length = static_cast<size_t>(set.length);
  double lost = 0;
  for (size_t first = 0; first < set.count(); first += batch) {
    std::vector<size_t> which(batch, first);  // a window stands in for those behind the last
    const size_t n = std::min(batch, set.count() - first);
    for (size_t i = 0; i < n; ++i) which[i] = first + i;
    show(set, which);
    predict_.run();
    const auto rows = predict_.output("lost");
    for (size_t i = 0; i < n * length; ++i) lost += rows[i];
  }
  return std::exp(lost / static_cast<double>(std::max<size_t>(1, set.count() * length)));
}

}  // namespace split::train
