#include "autograd/grad.h"

#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "autograd/functions.h"
#include "autograd/pointwise.h"
#include "base/error.h"

namespace split {
namespace autograd {
namespace {

using std::optional;

// --- The gradient column of the table, over Tensor

Tensor exp_f(const Tensor& x) { return exp(x); }
Tensor erf_f(const Tensor& x) { return erf(x); }
Tensor sigmoid_f(const Tensor& x) { return sigmoid(x); }
Tensor log_f(const Tensor& x) { return natural_log(x); }
Tensor log1p_f(const Tensor& x) { return log1p(x); }
Tensor sin_f(const Tensor& x) { return sin(x); }
Tensor cos_f(const Tensor& x) { return cos(x); }
Tensor sinh_f(const Tensor& x) { return sinh(x); }
Tensor cosh_f(const Tensor& x) { return cosh(x); }
Tensor sign_f(const Tensor& x) { return sign(x); }
Tensor trunc_f(const Tensor& x) { return trunc(x); }
Tensor pow_f(const Tensor& x, const Tensor& z) { return pow(x, z); }
Tensor digamma_f(const Tensor& x) { return digamma(x); }
// dy, which has 1 for a reduced axis, divided among the elements where c holds.
Tensor share(const Tensor& c, const Tensor& dy) {
  Axes axes;
  for (size_t i = 0; i < dy.dims().size(); ++i) {
    if (dy.dims()[i] != c.dims()[i]) axes.push_back(static_cast<int64_t>(i));
  }
  if (axes.empty()) return select(c, dy, 0.0f);
  return select(c, dy / sum(cast(c, DType::kF32), axes, true), 0.0f);
}
// Shares among numbers, one of which may be a NaN: equal to none, it makes NaN of all.
Tensor share_all(const Tensor& c, const Tensor& dy) {
  Axes axes;
  for (size_t i = 0; i < dy.dims().size(); ++i) {
    if (dy.dims()[i] != c.dims()[i]) axes.push_back(static_cast<int64_t>(i));
  }
  const Tensor counted = cast(c, DType::kF32);
  return counted * (dy / (axes.empty() ? counted : sum(counted, axes, true)));
}
// dy by the product of the elements before and of those behind each, along the reduced axes: no
// quotient, so that zeros and infinite ones are right.
Tensor others(const Tensor& x, const Tensor& y, const Tensor& dy) {
  Axes order, gone;
  for (size_t i = 0; i < x.dims().size(); ++i) {
    (y.dims()[i] == x.dims()[i] ? order : gone).push_back(static_cast<int64_t>(i));
  }
  order.insert(order.end(), gone.begin(), gone.end());
  const Tensor moved = permute(x, order);
  const int64_t rows = count_of(y.dims()), n = rows == 0 ? 0 : count_of(x.dims()) / rows;
  if (n <= 1) return dy;
  const Tensor flat = reshape(moved, {rows, n});
  const auto before = [&](const Tensor& of) {
    return pad(slice(scan(Op::k_reduce_prod, of, 1), 1, 0, n - 1), {0, 1}, {0, 0}, 1);
  };
  const Tensor all = before(flat) * flip(before(flip(flat, {1})), {1});
  Axes back(order.size());
  for (size_t i = 0; i < order.size(); ++i)
    back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return dy * permute(reshape(all, moved.dims()), back);
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
#define UNARY(name, forward, gradient) all[Op::k_##name] = {RULE(gradient), nullptr};
#define BINARY(name, forward, dx, dz) all[Op::k_##name] = {RULE(dx), RULE(dz)};
#define REDUCE(name, start, combine, gradient) all[Op::k_reduce_##name] = {RULE(gradient), nullptr};
#define TERNARY(name, forward, dx, dz) all[Op::k_##name] = {RULE(dx), RULE(dz)};
#include "tensor/library.def"
  return all;
}();

// --- Views and kernels: the gradient of each input, or nothing

struct Call {
  const Node& node;
  std::vector<Tensor> in;
  Tensor y, dy;
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
Gradients custom_rule(const Call& call) {
  Gradients all{std::nullopt};
  for (const Tensor& dx : (*call.node.rule)(call.dy)) all.emplace_back(dx);
  CHECK(all.size() == call.in.size());
  return all;
}
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
Gradients order_rule(const Call&) { return {std::nullopt}; }
Gradients cast_rule(const Call& call) { return {cast(call.dy, call.in[0].dtype())}; }
Gradients window_rule(const Call& call) {
  const auto number = [&](size_t i) { return static_cast<int64_t>(call.node.attributes[i]); };
  const int64_t axis = number(0);
  return {add_windows(call.dy, axis, call.dims()[static_cast<size_t>(axis)], number(1), number(2))};
}
Gradients take_rule(const Call& call) {
  return {put_add(call.dy, call.in[1], call.dims(0)[0]), std::nullopt};
}
Gradients put_rule(const Call& call) {
  const Tensor &rows = call.in[0], &index = call.in[1];
  const auto op = static_cast<Op>(call.node.attributes[0]);
  const Tensor dy = take(call.dy, index);
  if (op == Op::k_reduce_sum) return {dy, std::nullopt};
  const int64_t n = call.node.dims[0];
  const auto counted = [&](const Tensor& c) {
    return take(put_add(cast(c, DType::kF32), index, n), index);
  };
  if (op != Op::k_reduce_prod) {  // equal ones share it
    const Tensor hit = rows == take(call.y, index);
    return {select(hit, dy / counted(hit), 0.0f), std::nullopt};
  }
  const Tensor zero = rows == 0.0f, zeros = counted(zero), safe = select(zero, 1.0f, rows);
  const Tensor all = take(put(op, safe, index, n), index);
  return {
      dy * select(zeros == 0.0f, all / safe, select(logical_and(zero, zeros == 1.0f), all, 0.0f)),
      std::nullopt};
}
// A product's gradient is that of the products of all elements up to each.
Gradients scan_rule(const Call& call) {
  const Tensor& x = call.in[0];
  if (static_cast<Op>(call.node.attributes[0]) == Op::k_reduce_sum) {
    return {flip(scan(Op::k_reduce_sum, flip(call.dy, {1}), 1), {1})};
  }
  const int64_t n = call.dims()[1];
  const std::vector<Tensor> all{
      reduce(Op::k_reduce_prod, select(lower_triangle(n, n, 0), unsqueeze(x, 1), 1.0f), {2})};
  return {grad(all, std::vector{x}, std::vector{call.dy})[0]};
}

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
  Call call{node, {}, Tensor(held), dy};
  for (const auto& in : node.inputs) call.in.emplace_back(in);
  if (const KernelRule rule = kKernelRules[node.op]; rule != nullptr) return rule(call);
  const OpKind kind = op_info(node.op).kind;
  if (kind == OpKind::kCompare) return Gradients(2);
  if (!is_floating(node.dtype)) return Gradients(node.inputs.size());  // nothing has one
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

Tensor with_gradient(const Tensor& y, const std::vector<Tensor>& inputs, GradientRule rule) {
  auto node = std::make_shared<Node>();
  node->op = Op::k_custom;
  node->dtype = y.dtype();
  node->dims = y.dims();
  node->inputs = {y.node()};
  for (const Tensor& in : inputs) node->inputs.push_back(in.node());
  node->rule = std::make_shared<const GradientRule>(std::move(rule));
  return Tensor(std::move(node));
}

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
    const Tensor dy = dys.empty() ? expand(cast(1.0f, outputs[i].dtype()), dims)
                                  : cast(dys[i], outputs[i].dtype());
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
    result.push_back(at == dy_of.end() ? expand(cast(0.0f, in.dtype()), in.dims()) : at->second);
  }
  return result;
}

}  // namespace autograd
}  // namespace split
