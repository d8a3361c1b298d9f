#include "autograd/grad.h"

#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "autograd/functions.h"
#include "base/error.h"

namespace split {
namespace autograd {
namespace {

using std::optional;

// --- The gradient column of the table, over Tensor

Tensor exp_f(const Tensor& x) { return exp(x); }
Tensor erf_f(const Tensor& x) { return erf(x); }
Tensor sigmoid_f(const Tensor& x) { return sigmoid(x); }
// dy, which has 1 for a reduced axis, divided among the elements where c holds.
Tensor share(const Tensor& c, const Tensor& dy) {
  Axes axes;
  for (size_t i = 0; i < dy.dims().size(); ++i) {
    if (dy.dims()[i] != c.dims()[i]) axes.push_back(static_cast<int64_t>(i));
  }
  return axes.empty() ? select(c, dy, 0.0f) : select(c, dy / sum(c, axes, true), 0.0f);
}

// x, z as the row names them, c of a TERNARY; y the result.
struct Names {
  const Tensor &c, &x, &z, &y, &dy;
};
using Rule = Tensor (*)(const Names&);
struct Rules {
  Rule x = nullptr, z = nullptr;
};
#define RULE(gradient)                                     \
  [](const Names& names) -> Tensor {                       \
    [[maybe_unused]] const auto& [c, x, z, y, dy] = names; \
    return gradient;                                       \
  }
const ByOp<Rules> kRules = [] {
  ByOp<Rules> all;
#define UNARY(name, forward, gradient) all[Op::k_##name] = {RULE(gradient), nullptr};
#define BINARY(name, forward, dx, dz) all[Op::k_##name] = {RULE(dx), RULE(dz)};
#define REDUCE(name, start, combine, gradient) all[Op::k_reduce_##name] = {RULE(gradient), nullptr};
#include "tensor/ops.def"
#define TERNARY(name, forward, dx, dz) all[Op::k_##name] = {RULE(dx), RULE(dz)};
#include "tensor/library.def"
  return all;
}();

// --- Views and kernels: the gradient of each input, or nothing

struct Call {
  const Node& node;
  std::vector<Tensor> in;
  Tensor dy;
  const Dims& dims(size_t i = 0) const { return in[i].dims(); }
};
using Gradients = std::vector<optional<Tensor>>;

Gradients reshape_rule(const Call& call) { return {reshape(call.dy, call.dims())}; }
Gradients permute_rule(const Call& call) {
  Axes back(call.node.attributes.size());
  for (size_t i = 0; i < back.size(); ++i) {
    back[static_cast<size_t>(call.node.attributes[i])] = static_cast<int64_t>(i);
  }
  return {permute(call.dy, back)};
}
Gradients expand_rule(const Call& call) { return {sum_to(call.dy, call.dims())}; }
Gradients detach_rule(const Call&) { return {std::nullopt}; }
Gradients pad_rule(const Call& call) {
  Tensor dx = call.dy;
  for (size_t i = 0; i < call.dims().size(); ++i) {
    const auto before = static_cast<int64_t>(call.node.attributes[i]);
    dx = slice(dx, static_cast<int64_t>(i), before, before + call.dims()[i]);
  }
  return {dx};
}
// Elements between those of a step, then around them, are zeros.
Gradients slice_rule(const Call& call) {
  Tensor dx = call.dy;
  for (size_t i = 0; i < call.dims().size(); ++i) {
    const auto axis = static_cast<int64_t>(i);
    auto start = static_cast<int64_t>(call.node.attributes[2 * i]);
    auto step = static_cast<int64_t>(call.node.attributes[2 * i + 1]);
    const int64_t n = dx.dims()[i], all = call.dims()[i];
    if (n == 0 || (start == 0 && step == 1 && n == all)) {
      if (n != all) {
        Dims none(call.dims().size(), 0), behind = none;
        behind[i] = all;
        dx = pad(dx, none, behind);
      }
      continue;
    }
    if (step < 0) {
      dx = flip(dx, {axis});
      start += (n - 1) * step;
      step = -step;
    }
    if (step > 1) {
      Dims apart = dx.dims(), none(apart.size() + 1, 0), behind = none, joined = dx.dims();
      apart.insert(apart.begin() + axis + 1, 1);
      behind[i + 1] = step - 1;
      joined[i] = n * step;
      dx = slice(reshape(pad(reshape(dx, apart), none, behind), joined), axis, 0,
                 (n - 1) * step + 1);
    }
    Dims before(call.dims().size(), 0), behind = before;
    before[i] = start;
    behind[i] = all - start - dx.dims()[i];
    dx = pad(dx, before, behind);
  }
  return {dx};
}
Gradients matmul_rule(const Call& call) {
  const Tensor& dy = call.dy;
  return {sum_to(matmul(dy, transpose(call.in[1], -2, -1)), call.dims(0)),
          sum_to(matmul(transpose(call.in[0], -2, -1), dy), call.dims(1))};
}
Gradients iota_rule(const Call&) { return {}; }
Gradients take_rule(const Call& call) {
  return {put_add(call.dy, call.in[1], call.dims(0)[0]), std::nullopt};
}
Gradients put_add_rule(const Call& call) { return {take(call.dy, call.in[1]), std::nullopt}; }

using KernelRule = Gradients (*)(const Call&);
const ByOp<KernelRule> kKernelRules = [] {
  ByOp<KernelRule> all;
#define VIEW(name, inputs) all[Op::k_##name] = name##_rule;
#define KERNEL(name, inputs) all[Op::k_##name] = name##_rule;
#include "tensor/library.def"
  all[Op::k_matmul] = matmul_rule;
  return all;
}();

// --- The walk

// Nodes that lead from `inputs` to outputs, each after what it reads.
class Walk {
 public:
  explicit Walk(std::span<const Tensor> inputs) {
    for (const Tensor& in : inputs) leads_[in.node().get()] = true;
  }
  void visit(const std::shared_ptr<const Node>& output) {
    std::vector<std::pair<std::shared_ptr<const Node>, size_t>> path{{output, 0}};
    while (!path.empty()) {
      auto& [node, next] = path.back();
      if (next == 0 && !seen_.insert(node.get()).second) {
        path.pop_back();
      } else if (next < node->inputs.size()) {
        const auto in = node->inputs[next++];
        path.emplace_back(in, 0);
      } else {
        bool leads = leads_[node.get()];
        for (const auto& in : node->inputs) {
          leads = leads || (leads_[in.get()] && node->op != Op::k_detach);
        }
        leads_[node.get()] = leads;
        order.push_back(node);
        path.pop_back();
      }
    }
  }
  bool leads(const Node* node) const {
    const auto at = leads_.find(node);
    return at != leads_.end() && at->second;
  }

  std::vector<std::shared_ptr<const Node>> order;

 private:
  std::unordered_set<const Node*> seen_;
  std::unordered_map<const Node*, bool> leads_;
};

// A gradient of the node's shape, of one that broadcasts to it or that it was broadcast to.
Tensor shaped(const Tensor& gradient, const Dims& dims) {
  if (gradient.dims() == dims) return gradient;
  const auto all = broadcast_dims(gradient.dims(), dims);
  CHECK(all);
  return sum_to(expand(gradient, *all), dims);
}

Gradients gradients_of(const Node& node, const std::shared_ptr<const Node>& held,
                       const Tensor& dy) {
  Call call{node, {}, dy};
  for (const auto& in : node.inputs) call.in.emplace_back(in);
  if (const KernelRule rule = kKernelRules[node.op]; rule != nullptr) return rule(call);
  const OpKind kind = op_info(node.op).kind;
  if (kind == OpKind::kCompare) return Gradients(2);
  const Rules& rules = kRules[node.op];
  if (rules.x == nullptr) {
    throw Error(ErrorKind::kShape,
                cat("[grad] expected an op with a gradient, got ", op_info(node.op).name));
  }
  // The first input that has a gradient: a TERNARY's has none.
  const size_t first = kind == OpKind::kTernary ? 1 : 0;
  const Tensor y(held);
  const Tensor& z = call.in[rules.z == nullptr ? first : first + 1];
  const Names names{call.in[0], call.in[first], z, y, dy};
  Gradients all(first);
  all.emplace_back(rules.x(names));
  if (rules.z != nullptr) all.emplace_back(rules.z(names));
  return all;
}

}  // namespace

std::vector<Tensor> grad(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                         std::span<const Tensor> dys) {
  CHECK(dys.empty() || dys.size() == outputs.size());
  Walk walk(inputs);
  for (const Tensor& output : outputs) walk.visit(output.node());
  std::unordered_map<const Node*, Tensor> dy_of;
  const auto add = [&](const Node* node, const Tensor& dy) {
    const auto [at, fresh] = dy_of.try_emplace(node, dy);
    if (!fresh) at->second = at->second + dy;
  };
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Dims& dims = outputs[i].dims();
    const Tensor dy = dys.empty() ? expand(1.0f, dims) : dys[i];
    if (dy.dims() != dims) {
      throw Error(ErrorKind::kShape,
                  cat("[grad] expected a dy of ", to_string(dims), ", got ", to_string(dy.dims())));
    }
    add(outputs[i].node().get(), dy);
  }
  std::unordered_set<const Node*> wanted;
  for (const Tensor& in : inputs) wanted.insert(in.node().get());
  for (size_t i = walk.order.size(); i-- > 0;) {
    const auto& node = walk.order[i];
    const auto at = dy_of.find(node.get());
    if (at == dy_of.end() || !walk.leads(node.get()) || node->inputs.empty()) continue;
    const Gradients all = gradients_of(*node, node, at->second);
    for (size_t k = 0; k < all.size(); ++k) {
      const Node* in = node->inputs[k].get();
      if (all[k] && walk.leads(in)) add(in, shaped(*all[k], in->dims));
    }
    if (wanted.count(node.get()) == 0) dy_of.erase(node.get());
  }
  std::vector<Tensor> result;
  for (const Tensor& in : inputs) {
    const auto at = dy_of.find(in.node().get());
    result.push_back(at == dy_of.end() ? expand(0.0f, in.dims()) : at->second);
  }
  return result;
}

}  // namespace autograd
}  // namespace split
