#include "array/session.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "autograd/functions.h"
#include "autograd/grad.h"
#include "base/error.h"

namespace split::array {
namespace {

constexpr size_t kMostPlans = 256;

}  // namespace

bool is_view(const Node& node) {
  if (node.op == Op::k_slice) {
    for (size_t i = 1; i < node.attributes.size(); i += 2) {
      if (node.attributes[i] < 0) return false;  // flip() copies
    }
    return true;
  }
  return node.op == Op::k_reshape || node.op == Op::k_permute || node.op == Op::k_expand ||
         node.op == Op::k_window || node.op == Op::k_detach;
}

namespace {

std::shared_ptr<Node> copy_of(const Node& node, std::vector<std::shared_ptr<const Node>> inputs) {
  auto made = std::make_shared<Node>();
  made->op = node.op;
  made->dtype = node.dtype;
  made->dims = node.dims;
  made->attributes = node.attributes;
  made->value = node.value;
  made->rule = node.rule;
  made->inputs = std::move(inputs);
  return made;
}

// A graph up to the nodes that have numbers: its structure as bytes, those leaves and a copy.
class Traced {
 public:
  void add(const std::shared_ptr<const Node>& output) {
    std::vector<std::pair<const Node*, size_t>> path{{output.get(), 0}};
    while (!path.empty()) {
      auto& [node, next] = path.back();
      Stored* const stored = Session::stored(*node);
      if (index_.count(node) != 0) {
        path.pop_back();
      } else if (stored == nullptr && next < node->inputs.size()) {
        const Node* const in = node->inputs[next++].get();
        path.emplace_back(in, 0);
      } else {
        describe(*node, stored);
        index_.emplace(node, order.size());
        order.push_back(node);
        path.pop_back();
      }
    }
    put(index_.at(output.get()));
  }
  // The graph of leaves named by their order.
  Graph graph(const std::vector<std::shared_ptr<const Node>>& outputs) const {
    std::vector<std::shared_ptr<const Node>> made;
    for (const Node* node : order) {
      if (Stored* const stored = Session::stored(*node); stored != nullptr) {
        made.push_back(input(name_of(leaf_.at(stored)), node->dtype, node->dims).node());
        continue;
      }
      std::vector<std::shared_ptr<const Node>> inputs;
      for (const auto& in : node->inputs) inputs.push_back(made[index_.at(in.get())]);
      made.push_back(copy_of(*node, std::move(inputs)));
    }
    Graph graph;
    for (size_t i = 0; i < outputs.size(); ++i) {
      graph.outputs.push_back({name_of(i), Tensor(made[index_.at(outputs[i].get())])});
    }
    return graph;
  }
  static std::string name_of(size_t i) { return cat(i); }

  std::string key;
  std::vector<const Node*> order;
  std::vector<Stored*> leaves;

 private:
  void put(const auto& value) { key.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void describe(const Node& node, Stored* stored) {
    put(stored == nullptr ? node.op : Op::k_input);
    put(node.dtype);
    put(node.dims.size());
    for (const int64_t size : node.dims) put(size);
    if (stored != nullptr) {
      const auto [at, fresh] = leaf_.emplace(stored, leaves.size());
      if (fresh) leaves.push_back(stored);
      put(at->second);
      return;
    }
    if (node.op == Op::k_input || node.op == Op::k_weight) {
      throw Error(ErrorKind::kShape,
                  cat("[array] '", node.name, "' is an argument of a plan, and has no value"));
    }
    put(node.value);
    put(node.attributes.size());
    for (const double number : node.attributes) put(number);
    for (const auto& in : node.inputs) put(index_.at(in.get()));
  }
  std::unordered_map<const Node*, size_t> index_;
  std::unordered_map<const Stored*, size_t> leaf_;
};

void swap_numbers(Store::Entry& a, Store::Entry& b) {
  a.floats.swap(b.floats);
  a.numbers.swap(b.numbers);
  a.wides.swap(b.wides);
}

}  // namespace

OwnedTensor Stored::values(const Tensor& x) {
  session->evaluate({x.node()});
  Stored* const of = Session::stored(*x.node());
  return narrowed_numbers(of->entry.bytes(), x.dtype(), x.dims());
}
Tensor Stored::leaf(const TensorView& view) { return session->leaf(view); }

Stored* Session::stored(const Node& node) { return dynamic_cast<Stored*>(node.home.get()); }

Tensor Session::leaf(const TensorView& view) {
  auto stored = std::make_shared<Stored>(shared_from_this());
  Store store;
  std::swap(stored->entry, store.add_typed("x", view));
  return input_at(std::move(stored), "x", view.dtype, view.dims);
}

void Session::evaluate(const std::vector<std::shared_ptr<const Node>>& nodes) {
  std::vector<std::shared_ptr<const Node>> wanted;
  for (const auto& node : nodes) {
    if (stored(*node) == nullptr && std::ranges::count(wanted, node) == 0) wanted.push_back(node);
  }
  pending = 0;
  if (wanted.empty()) return;
  Traced traced;
  for (const auto& node : wanted) traced.add(node);
  auto& shared = plans_[traced.key];
  if (shared == nullptr) {
    auto made = std::make_unique<Shared>();
    for (size_t i = 0; i < traced.leaves.size(); ++i) {
      const Store::Entry& leaf = traced.leaves[i]->entry;
      made->store.add_typed(Traced::name_of(i), leaf.dtype, leaf.dims);
    }
    made->plan = std::make_unique<Plan>(runtime_, traced.graph(wanted), made->store);
    order_.push_front(traced.key);
    made->used = order_.begin();
    shared = std::move(made);
  } else {
    order_.splice(order_.begin(), order_, shared->used);
  }
  const auto swap_all = [&] {
    for (size_t i = 0; i < traced.leaves.size(); ++i) {
      swap_numbers(shared->store.at(Traced::name_of(i)), traced.leaves[i]->entry);
    }
  };
  swap_all();
  try {
    shared->plan->run();
  } catch (...) {  // only gives them back
    swap_all();
    throw;
  }
  for (size_t i = 0; i < wanted.size(); ++i) {
    auto made = std::make_shared<Stored>(shared_from_this());
    const Node& node = *wanted[i];
    Store store;
    Store::Entry& entry = store.add_typed("x", node.dtype, node.dims);
    const auto bytes = shared->plan->bytes(Traced::name_of(i));
    if (!bytes.empty()) std::memcpy(entry.bytes().data(), bytes.data(), bytes.size());
    std::swap(made->entry, entry);
    const_cast<Node&>(node).home = std::move(made);  // NOLINT: what it is does not change
  }
  swap_all();
  if (plans_.size() > kMostPlans) {
    plans_.erase(order_.back());
    order_.pop_back();
  }
}

Cell::~Cell() {
  if (session != nullptr) session->cells.erase(node.get());
}

const std::shared_ptr<const Node>& Cell::now() {
  if (base == nullptr) return node;
  const auto& from = base->now();
  if (seen == base->version) return node;
  std::shared_ptr<const Node> next = from;
  for (auto& view : chain) view = next = copy_of(*view, {next});
  session->cells.erase(node.get());
  node = next;
  session->cells[node.get()] = this;
  seen = base->version;
  ++version;  // views of it are stale
  return node;
}

void Cell::become(std::shared_ptr<const Node> next) {
  ++version;
  if (base == nullptr) {
    session->cells.erase(node.get());
    node = std::move(next);
    session->cells[node.get()] = this;
    return;
  }
  // Puts each view's elements at their places in what it is a view of, down to the base.
  now();
  for (size_t i = chain.size(); i-- > 0;) {
    const Node& view = *chain[i];
    const Tensor from(view.inputs[0]);
    if (view.op == Op::k_expand || view.op == Op::k_window) {
      throw Error(ErrorKind::kShape,
                  cat("[in place] expected a view whose elements are apart, got ", "one by ",
                      op_info(view.op).name, " of ", to_string(from.dims())));
    }
    const Tensor leaf = input("", from.dtype(), from.dims());
    const std::vector<Tensor> views{view.op == Op::k_detach ? leaf
                                                            : Tensor(copy_of(view, {leaf.node()}))};
    const Tensor there = expand(cast(1, from.dtype()), view.dims);
    const auto put = [&](const Tensor& x) {
      return autograd::grad(views, std::vector{leaf}, std::vector{x})[0];
    };
    const Tensor values = put(Tensor(next));
    next = view.op == Op::k_slice ? select(put(there), values, from).node() : values.node();
  }
  base->become(next);
  now();
}

}  // namespace split::array
