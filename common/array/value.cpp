#include "array/value.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ostream>
#include <unordered_set>

#include "array/session.h"
#include "autograd/grad.h"
#include "base/error.h"

namespace split {

using array::Cell;
using array::Session;
using array::Stored;

namespace {

thread_local int no_grads = 0;
constexpr size_t kMostPending = 128;  // values that nobody looked at

// The session of the first leaf that has numbers, or null.
std::shared_ptr<Session> session_of(const std::shared_ptr<const Node>& node) {
  const Node* at = node.get();
  std::vector<const Node*> left{at};
  std::unordered_set<const Node*> seen;
  while (!left.empty()) {
    at = left.back();
    left.pop_back();
    if (Stored* const stored = Session::stored(*at); stored != nullptr) return stored->session;
    for (const auto& in : at->inputs) {
      if (seen.insert(in.get()).second) left.push_back(in.get());
    }
  }
  return nullptr;
}

// Cells that a node's gradient goes to.
std::vector<Cell*> asking(const Session& session, const std::shared_ptr<const Node>& node,
                          bool any) {
  std::vector<const Node*> left{node.get()};
  std::unordered_set<const Node*> seen{node.get()};
  std::vector<Cell*> found;
  while (!left.empty()) {
    const Node* const at = left.back();
    left.pop_back();
    const auto cell = session.cells.find(at);
    if (cell != session.cells.end() && (cell->second->requires_grad || cell->second->retains)) {
      found.push_back(cell->second);
      if (any && cell->second->requires_grad) return found;
    }
    if (at->op == Op::k_detach) continue;
    for (const auto& in : at->inputs) {
      if (seen.insert(in.get()).second) left.push_back(in.get());
    }
  }
  return found;
}

bool tracked(Cell& cell) {
  const auto found = asking(*cell.session, cell.now(), true);
  return std::ranges::any_of(found, [](const Cell* c) { return c->requires_grad; });
}

// Computes a cell; what it was made of is let go unless a gradient needs it.
Stored& computed(Cell& cell) {
  if (cell.session == nullptr) {
    throw Error(ErrorKind::kShape, "[array] expected a tensor of a Runtime, got one of constants");
  }
  const std::shared_ptr<const Node> node = cell.now();
  cell.session->evaluate({node});
  Stored* const stored = Session::stored(*node);
  if (!node->inputs.empty() && cell.base == nullptr && !tracked(cell)) {
    const Tensor leaf = input_at(node->home, "x", node->dtype, node->dims);
    cell.session->cells.erase(node.get());
    cell.node = leaf.node();
    cell.session->cells[cell.node.get()] = &cell;
  }
  return *stored;
}

}  // namespace

NoGrad::NoGrad() { ++no_grads; }
NoGrad::~NoGrad() { --no_grads; }

Value::Value(const Tensor& of) {
  std::shared_ptr<const Node> node = of.node();
  const std::shared_ptr<Session> session = session_of(node);
  if (session == nullptr) {
    cell_ = std::make_shared<Cell>();
    cell_->node = std::move(node);
    return;
  }
  // A view of a cell is one; so is the cell's own node.
  std::vector<std::shared_ptr<const Node>> chain;
  std::shared_ptr<const Node> at = node;
  while (session->cells.count(at.get()) == 0 && array::is_view(*at)) {
    chain.insert(chain.begin(), at);
    at = at->inputs[0];
  }
  const auto known = session->cells.find(at.get());
  if (known != session->cells.end() && chain.empty()) {
    cell_ = known->second->shared_from_this();
    return;
  }
  cell_ = std::make_shared<Cell>();
  cell_->session = session;
  if (known != session->cells.end()) {
    cell_->base = known->second->shared_from_this();
    cell_->base->now();
    cell_->seen = cell_->base->version;
    cell_->chain = std::move(chain);
  } else if (no_grads > 0) {
    node = split::detach(of).node();
  }
  cell_->node = std::move(node);
  session->cells[cell_->node.get()] = cell_.get();
  if (++session->pending >= kMostPending) computed(*cell_);
}

Value::operator Tensor() const { return Tensor(cell_->now()); }
Dims Value::dims() const { return cell_->node->dims; }
DType Value::dtype() const { return cell_->node->dtype; }

OwnedTensor Value::values() const {
  Stored& stored = computed(*cell_);
  return array::narrowed_numbers(stored.entry.bytes(), dtype(), dims());
}
double Value::item() const {
  if (count_of(dims()) != 1) {
    throw Error(ErrorKind::kShape,
                cat("[item] expected one element, got ", split::to_string(dims())));
  }
  return to_vector<double>()[0];
}

template <typename T>
std::vector<T> Value::to_vector() const {
  array::Store::Entry& entry = computed(*cell_).entry;
  const auto of = [](const auto& numbers) {
    std::vector<T> all(numbers.size());
    std::transform(numbers.begin(), numbers.end(), all.begin(),
                   [](auto number) { return static_cast<T>(number); });
    return all;
  };
  const DType in = computing(entry.dtype);
  return in == DType::kF32   ? of(entry.floats)
         : in == DType::kI64 ? of(entry.wides)
                             : of(entry.numbers);
}
template std::vector<float> Value::to_vector() const;
template std::vector<double> Value::to_vector() const;
template std::vector<int32_t> Value::to_vector() const;
template std::vector<int64_t> Value::to_vector() const;

std::string Value::to_string() const {
  return printed(dtype(), dims(), to_vector<double>(), cell_->requires_grad);
}
std::ostream& operator<<(std::ostream& out, const Value& value) { return out << value.to_string(); }

Value& Value::requires_grad_(bool on) {
  if (on && !is_floating(dtype())) {
    throw Error(ErrorKind::kShape,
                cat("[requires_grad_] expected F32, F16 or BF16, got ", dtype_name(dtype())));
  }
  if (on && tracked(*cell_) && !cell_->requires_grad) return *this;  // what it is made of asks
  if (on) {
    computed(*cell_);
    if (cell_->base != nullptr) {
      throw Error(ErrorKind::kShape,
                  "[requires_grad_] expected a tensor of its own, got a view; clone() is one");
    }
  }
  cell_->requires_grad = on;
  return *this;
}
bool Value::requires_grad() const {
  return cell_->requires_grad || (cell_->session != nullptr && tracked(*cell_));
}
Value& Value::retain_grad() {
  cell_->retains = true;
  return *this;
}
bool Value::has_grad() const { return cell_->grad != nullptr; }
Value Value::grad() const {
  if (cell_->grad == nullptr) {
    throw Error(
        ErrorKind::kNotFound,
        "[grad] expected a tensor that a backward() has reached, got one without a gradient");
  }
  return *cell_->grad;
}
void Value::zero_grad() const { cell_->grad = nullptr; }
Value Value::detach() const { return split::detach(*this); }
Value Value::clone() const {
  const Tensor x = *this;
  return select(Tensor(true), x, x);
}

void Value::backward(const std::optional<Tensor>& dy) const {
  if (cell_->session == nullptr || !tracked(*cell_)) {
    throw Error(
        ErrorKind::kShape,
        "[backward] expected what a tensor with requires_grad_() leads to, got one that none does");
  }
  if (count_of(dims()) != 1 && !dy) cell_->retains = true;
  const std::vector<Cell*> cells = asking(*cell_->session, cell_->now(), false);
  std::vector<std::shared_ptr<Cell>> held;
  std::vector<Tensor> inputs, dys;
  for (Cell* cell : cells) {
    held.push_back(cell->shared_from_this());
    inputs.emplace_back(cell->node);
  }
  if (dy) dys.push_back(*dy);
  const std::vector<Tensor> found = autograd::grad(std::vector<Tensor>{*this}, inputs, dys);
  const NoGrad none;
  std::vector<std::shared_ptr<const Node>> nodes{cell_->now()};
  for (size_t i = 0; i < held.size(); ++i) {
    // A node of its own, which no other cell has.
    const Tensor sum = held[i]->grad == nullptr ? found[i] : Tensor(*held[i]->grad) + found[i];
    nodes.push_back(split::detach(sum).node());
  }
  cell_->session->evaluate(nodes);
  for (size_t i = 0; i < held.size(); ++i) {
    const Node& node = *nodes[i + 1];
    held[i]->grad = std::make_shared<Value>(input_at(node.home, "x", node.dtype, node.dims));
  }
}

Value& Value::assign(const Tensor& of) {
  const DType type = dtype();
  if (is_floating(of.dtype()) && !is_floating(type)) {
    throw Error(ErrorKind::kShape, cat("[in place] expected what fits ", dtype_name(type), ", got ",
                                       dtype_name(of.dtype())));
  }
  if (cell_->session == nullptr) {
    throw Error(ErrorKind::kShape,
                "[in place] expected a tensor of a Runtime, got one of constants");
  }
  Tensor x = expand(cast(of, type), dims());
  if (x.node() == cell_->now()) return *this;
  Cell* root = cell_.get();
  while (root->base != nullptr) root = root->base.get();
  if (root->requires_grad && no_grads == 0) {
    throw Error(
        ErrorKind::kShape,
        "[in place] expected no tensor that asks for a gradient, got one; NoGrad allows it");
  }
  // A node of its own, as another cell may have this one.
  if (no_grads > 0 || cell_->session->cells.count(x.node().get()) != 0) {
    x = no_grads > 0 ? split::detach(x) : select(Tensor(true), x, x);
  }
  cell_->become(x.node());
  // A constant alone has no Runtime, by which what is made of it would find its own.
  if (root->requires_grad || session_of(root->node) == nullptr ||
      ++cell_->session->pending >= kMostPending) {
    const bool asks = root->requires_grad;
    root->requires_grad = false;  // the new numbers are a leaf's
    computed(*root);
    root->requires_grad = asks;
  }
  return *this;
}

Value& Value::set_(const Indices& indices, const Tensor& value, bool accumulate) {
  const bool basic = std::ranges::none_of(
      indices, [](const Index& one) { return std::holds_alternative<Tensor>(one); });
  if (!basic) return assign(set(*this, indices, value, accumulate));
  Value view = get(*this, indices);
  if (view.cell() == cell_) return assign(accumulate ? Tensor(view) + value : value);
  view.assign(accumulate ? Tensor(view) + value : value);
  return *this;
}

// --- Numbers

Dims Numbers::dims() const {
  if (!is_list_) return {};
  Dims all{static_cast<int64_t>(parts_.size())};
  for (const Numbers& part : parts_) {
    const Dims inner = part.dims();
    if (inner != parts_[0].dims()) {
      throw Error(ErrorKind::kShape,
                  cat("[tensor] expected rows of one length, got ",
                      split::to_string(parts_[0].dims()), " and ", split::to_string(inner)));
    }
  }
  if (!parts_.empty()) {
    const Dims inner = parts_[0].dims();
    all.insert(all.end(), inner.begin(), inner.end());
  }
  return all;
}
void Numbers::add_to(std::vector<double>& all) const {
  if (!is_list_) all.push_back(number_);
  for (const Numbers& part : parts_) part.add_to(all);
}
std::vector<double> Numbers::flat() const {
  std::vector<double> all;
  add_to(all);
  return all;
}

}  // namespace split

namespace split::array {

// --- What a Runtime makes

namespace {
Tensor made(Session& session, const std::vector<double>& numbers, const Dims& dims, DType dtype) {
  const std::vector<float> floats(numbers.begin(), numbers.end());
  if (is_floating(dtype)) {
    return cast(session.leaf({DType::kF32, dims, std::as_bytes(std::span(floats))}), dtype);
  }
  const std::vector<int64_t> wides(numbers.begin(), numbers.end());
  return cast(session.leaf({DType::kI64, dims, std::as_bytes(std::span(wides))}), dtype);
}
}  // namespace
Value Runtime::tensor(const Numbers& numbers, DType dtype) {
  return made(session(), numbers.flat(), numbers.dims(), dtype);
}
Value Runtime::tensor(const TensorView& view) { return session().leaf(view); }
Value Runtime::full(const Dims& dims, double value, DType dtype) {
  const std::vector<double> all(static_cast<size_t>(count_of(dims)), value);
  return made(session(), all, dims, dtype);
}
Value Runtime::zeros(const Dims& dims, DType dtype) { return full(dims, 0, dtype); }
Value Runtime::ones(const Dims& dims, DType dtype) { return full(dims, 1, dtype); }
Value Runtime::empty(const Dims& dims, DType dtype) { return full(dims, 0, dtype); }
Value Runtime::arange(double start, double end, double step, DType dtype) {
  const auto n = static_cast<int64_t>(std::max(0.0, std::ceil((end - start) / step)));
  std::vector<double> all;
  for (int64_t i = 0; i < n; ++i) all.push_back(start + static_cast<double>(i) * step);
  return made(session(), all, {n}, dtype);
}
void Runtime::manual_seed(uint32_t seed) {
  session().seed = seed;
  session().drawn = 0;
}
namespace {
// 32 random bits for each of n, as I32.
Tensor bits(Session& session, int64_t n) {
  const auto word = [](uint64_t value) {
    return static_cast<int32_t>(static_cast<uint32_t>(value));
  };
  const std::vector<int32_t> key{word(session.drawn++), word(session.seed)};
  const Tensor keys = session.leaf({DType::kI32, {2}, std::as_bytes(std::span(key))});
  return philox(select_at(keys, 0, 0), iota(n, DType::kI32), select_at(keys, 0, 1));
}
// Numbers of 24 bits, in [0, 1).
Tensor uniform(Session& session, int64_t n) {
  return cast(bitwise_and(bitwise_right_shift(bits(session, n), 8), 0xffffff), DType::kF32) *
         5.9604644775390625e-8f;
}
}  // namespace
Value Runtime::rand(const Dims& dims) { return reshape(uniform(session(), count_of(dims)), dims); }
Value Runtime::randn(const Dims& dims) {  // Box and Muller, 1958
  const int64_t n = count_of(dims);
  const Tensor u = 1.0f - uniform(session(), n), v = uniform(session(), n);
  return reshape(sqrt(natural_log(u) * -2.0f) * cos(v * 6.283185307f), dims);
}
Value Runtime::randint(int64_t low, int64_t high, const Dims& dims) {
  if (high <= low || high - low > (1 << 24)) {
    throw Error(ErrorKind::kShape,
                cat("[randint] expected 1 to 2^24 numbers, got ", low, " to ", high));
  }
  const Tensor u = floor(uniform(session(), count_of(dims)) * static_cast<float>(high - low));
  return reshape(cast(u, DType::kI64) + low, dims);
}
Value Runtime::randperm(int64_t n) { return order(uniform(session(), n), 0); }
Value Runtime::bernoulli(const Tensor& p) {
  return cast(reshape(uniform(session(), count_of(p.dims())), p.dims()) < p, p.dtype());
}
Session& Runtime::session() {
  if (session_ == nullptr) session_ = std::make_shared<Session>(*this);
  return *session_;
}

}  // namespace split::array
