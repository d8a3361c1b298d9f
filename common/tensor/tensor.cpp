#include "tensor/tensor.h"

#include <algorithm>

#include "base/error.h"
#include "tensor/types.h"

namespace split {
namespace {

std::shared_ptr<Node> make_node(Op op, Dims dims, std::vector<Tensor> inputs = {},
                                std::vector<double> attributes = {}) {
  CHECK(inputs.size() == op_info(op).inputs && attributes.size() == op_info(op).attributes);
  auto node = std::make_shared<Node>();
  node->op = op;
  node->dims = std::move(dims);
  for (const Tensor& tensor : inputs) node->inputs.push_back(tensor.node());
  node->attributes = std::move(attributes);
  return node;
}

[[noreturn]] void refuse(std::string_view where, std::string_view expected, const Dims& a,
                         const Dims& b = {}) {
  throw Error(ErrorKind::kShape, cat("[", where, "] expected ", expected, ", got ", to_string(a),
                                     b.empty() ? "" : " and " + to_string(b)));
}

// The shape of x op z, if one may be broadcast to the other's.
Dims broadcast(std::string_view where, const Dims& x, const Dims& z) {
  const auto fits = [](const Dims& small, const Dims& large) {
    if (small.empty() || small == large) return true;
    if (large.size() != 2) return false;
    if (small.size() == 1) return small[0] == large[1];
    return small.size() == 2 && small[0] == large[0] && small[1] == 1;
  };
  if (fits(z, x)) return x;
  if (fits(x, z)) return z;
  if (!has_rows(x) && !has_rows(z)) {
    if (const auto both = broadcast_dims(x, z)) return *both;
  }
  refuse(where, "shapes that are equal or broadcast", x, z);
}

}  // namespace

Node::~Node() {
  std::vector<std::shared_ptr<const Node>> left = std::move(inputs);
  while (!left.empty()) {
    const std::shared_ptr<const Node> node = std::move(left.back());
    left.pop_back();
    if (node.use_count() > 1) continue;
    auto& more = const_cast<Node&>(*node).inputs;  // NOLINT: it is the last to hold it
    left.insert(left.end(), std::make_move_iterator(more.begin()),
                std::make_move_iterator(more.end()));
    more.clear();
  }
}

bool has_rows(const Dims& dims) {
  return std::ranges::any_of(dims, [](int64_t size) { return size < 0; });
}

std::optional<Dims> broadcast_dims(const Dims& x, const Dims& z) {
  Dims both(std::max(x.size(), z.size()), 1);
  for (size_t i = 0; i < both.size(); ++i) {
    const int64_t a = i < x.size() ? x[x.size() - 1 - i] : 1,
                  b = i < z.size() ? z[z.size() - 1 - i] : 1;
    if (a != b && a != 1 && b != 1) return std::nullopt;
    both[both.size() - 1 - i] = a == 1 ? b : a;
  }
  return both;
}

Tensor::Tensor(float constant) {
  auto node = std::make_shared<Node>();
  node->value = constant;
  node_ = std::move(node);
}

Tensor Tensor::number(double value, DType dtype) {
  auto node = std::make_shared<Node>();
  node->dtype = dtype;
  node->value = static_cast<float>(value);
  if (static_cast<double>(node->value) != value && dtype != DType::kF32) node->attributes = {value};
  return Tensor(std::move(node));
}

Tensor input(std::string name, DType dtype, Dims dims) {
  auto node = make_node(Op::k_input, std::move(dims));
  node->name = std::move(name);
  node->dtype = dtype;
  return Tensor(std::move(node));
}

Tensor weight(std::string name, DType dtype, Dims dims) {
  auto node = make_node(Op::k_weight, std::move(dims));
  node->name = std::move(name);
  node->dtype = dtype;
  return Tensor(std::move(node));
}

Tensor unary(Op op, const Tensor& x) {
  CHECK(op_info(op).kind == OpKind::kUnary);
  return typed(op, {x}, [&](const std::vector<Tensor>& in) { return make_node(op, x.dims(), in); });
}

Tensor binary(Op op, const Tensor& x, const Tensor& z) {
  CHECK(op_info(op).kind == OpKind::kBinary);
  return typed(op, {x, z}, [&](const std::vector<Tensor>& in) {
    return make_node(op, broadcast(op_info(op).name, x.dims(), z.dims()), in);
  });
}

Tensor reduce(Op op, const Tensor& x) {
  CHECK(op_info(op).kind == OpKind::kReduce);
  if (x.dims().size() != 2) refuse(op_info(op).name, "[rows, C]", x.dims());
  return Tensor(make_node(op, {x.dims()[0], 1}, {x}));
}

Tensor gather(const Tensor& table, const Tensor& index) {
  if (table.dims().size() != 2 || index.dims().size() != 1 || index.node()->dtype != DType::kI32) {
    refuse("gather", "a table [N, C] and an I32 index [rows]", table.dims(), index.dims());
  }
  if (is_quantised(table.node()->dtype)) refuse("gather", "a table without blocks", table.dims());
  return Tensor(make_node(Op::k_gather, {index.dims()[0], table.dims()[1]}, {table, index}));
}

Tensor transpose(const Tensor& matrix) {
  if (matrix.dims().size() != 2 || matrix.node()->op != Op::k_weight) {
    refuse("transpose", "a weight [M, K]", matrix.dims());
  }
  return Tensor(make_node(Op::k_transpose, {matrix.dims()[1], matrix.dims()[0]}, {matrix}));
}

namespace {

// Products of matrices in the last two axes, for each of the others.
Tensor batched_matmul(const Tensor& x, const Tensor& w) {
  const Dims &a = x.dims(), &b = w.dims();
  const auto fail = [&] { refuse("matmul", "[..., R, K] and [..., K, M]", a, b); };
  if (a.size() < 2 || b.size() < 2 || has_rows(a) || has_rows(b) || a.back() != b[b.size() - 2]) {
    fail();
  }
  auto dims = broadcast_dims({a.begin(), a.end() - 2}, {b.begin(), b.end() - 2});
  if (!dims) fail();
  dims->insert(dims->end(), {a[a.size() - 2], b.back()});
  return Tensor(make_node(Op::k_matmul, std::move(*dims), {x, w}));
}

}  // namespace

Tensor matmul(const Tensor& x, const Tensor& w) {
  const auto is_stored = [](const Tensor& t) {
    return t.node()->op == Op::k_weight || has_rows(t.dims());
  };
  if ((x.dtype() != DType::kF32 || w.dtype() != DType::kF32) && !is_stored(x) && !is_stored(w)) {
    const DType type = promoted(std::vector{x, w});
    if (!is_floating(type)) {
      throw Error(ErrorKind::kShape, cat("[matmul] expected F32, F16 or BF16, got ",
                                         dtype_name(x.dtype()), " and ", dtype_name(w.dtype())));
    }
    return cast(matmul(cast(x, DType::kF32), cast(w, DType::kF32)), type);
  }
  if (x.dims().size() > 2 || w.dims().size() > 2) return batched_matmul(x, w);
  if (x.dims().size() != 2 || w.dims().size() != 2 || x.dims()[1] != w.dims()[0]) {
    refuse("matmul", "[rows, K] and [K, M]", x.dims(), w.dims());
  }
  if (is_quantised(w.node()->dtype)) {
    refuse("matmul", "a matrix in blocks to be a transposed [M, K]", w.dims());
  }
  return Tensor(make_node(Op::k_matmul, {x.dims()[0], w.dims()[1]}, {x, w}));
}

Tensor columns(const Tensor& x, int64_t first, int64_t n) {
  if (x.dims().size() != 2 || x.dims()[0] >= 0) refuse("columns", "[rows, C]", x.dims());
  if (first < 0 || n <= 0 || first > x.dims()[1] - n) {
    throw Error(ErrorKind::kShape, cat("[columns] expected some of ", x.dims()[1], ", got [", first,
                                       ", ", first + n, ")"));
  }
  if (x.node()->op == Op::k_columns) {
    first += static_cast<int64_t>(x.node()->attributes[0]);
    return columns(Tensor(x.node()->inputs[0]), first, n);
  }
  return Tensor(make_node(Op::k_columns, {x.dims()[0], n}, {x}, {static_cast<double>(first)}));
}

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& k_cache,
                 const Tensor& v_cache, const AttentionHeads& heads, const Tensor& bias) {
  const int count = heads.heads, kv_count = heads.kv_heads, dim = heads.head_dim;
  if (count <= 0 || kv_count <= 0 || dim <= 0 || count % kv_count != 0) {
    throw Error(ErrorKind::kShape, cat("[attention] expected heads of keys that divide those of ",
                                       "queries, got ", kv_count, " and ", count, " of ", dim));
  }
  if (heads.window < 0 || !(heads.cap >= 0)) {
    throw Error(ErrorKind::kShape, cat("[attention] expected a window of keys and a cap, got ",
                                       heads.window, " and ", heads.cap));
  }
  const bool biased = bias.node()->op != Op::k_constant;
  if (biased && (bias.node()->op != Op::k_weight || bias.node()->dtype != DType::kF32 ||
                 bias.dims() != Dims{kBiasBuckets, count} || heads.cap > 0)) {
    refuse("attention", cat("a float weight [", kBiasBuckets, ", ", count, "] and no cap"),
           bias.dims());
  }
  const int64_t width = int64_t{count} * dim, kv_width = int64_t{kv_count} * dim;
  const auto expect = [&](const Tensor& tensor, std::string_view name, const Dims& dims) {
    if (tensor.dims() != dims) {
      refuse("attention", cat(name, " ", to_string(dims)), tensor.dims());
    }
  };
  const int64_t rows = q.dims().empty() ? kRows : q.dims()[0];
  expect(q, "q", {rows, width});
  expect(k, "k", {rows, kv_width});
  expect(v, "v", {rows, kv_width});
  expect(k_cache, "a cache", {kv_width});
  expect(v_cache, "a cache", {kv_width});
  return Tensor(make_node(Op::k_attention, {rows, width}, {q, k, v, k_cache, v_cache, bias},
                          {static_cast<double>(count), static_cast<double>(kv_count),
                           static_cast<double>(dim), heads.scale, static_cast<double>(heads.window),
                           heads.cap, static_cast<double>(heads.causal)}));
}

namespace {

// Channels of a head.
int64_t rotated_head(const Tensor& x, const Rotation& rotation, int heads) {
  if (x.dims().size() != 2 || x.dims()[0] >= 0 || heads <= 0 || x.dims()[1] % (2 * heads) != 0) {
    refuse("rotate", cat("rows of ", heads, " heads of pairs"), x.dims());
  }
  const int64_t size = x.dims()[1] / heads;
  for (const Tensor* table : {&rotation.cos, &rotation.sin}) {
    if (table->dims().size() != 2 || table->dims()[1] < 1 || table->dims()[1] > size / 2 ||
        table->dims() != rotation.cos.dims() || table->node()->op != Op::k_weight ||
        table->node()->dtype != DType::kF32) {
      refuse("rotate", cat("tables [positions, at most ", size / 2, "]"), table->dims());
    }
  }
  if (rotation.positions.dims() != Dims{x.dims()[0]} ||
      rotation.positions.node()->dtype != DType::kI32) {
    refuse("rotate", "an I32 position for each row", rotation.positions.dims());
  }
  return size;
}

}  // namespace

Tensor rotate(const Tensor& x, const Rotation& rotation, int heads) {
  rotated_head(x, rotation, heads);
  return Tensor(make_node(Op::k_rotate, x.dims(),
                          {x, rotation.cos, rotation.sin, rotation.positions},
                          {static_cast<double>(heads)}));
}

Tensor rotate(const Tensor& x, const HeadNorm& norm, const Rotation& rotation, int heads) {
  const int64_t size = rotated_head(x, rotation, heads);
  if (norm.weight.dims() != Dims{size}) refuse("rotate", "a weight of a head", norm.weight.dims());
  return Tensor(make_node(Op::k_norm_rotate, x.dims(),
                          {x, norm.weight, rotation.cos, rotation.sin, rotation.positions},
                          {static_cast<double>(heads), norm.eps, norm.plus}));
}

namespace {

// Channels of a head.
int64_t head_of(std::string_view where, const Tensor& x, int heads) {
  if (x.dims().size() != 2 || x.dims()[0] >= 0 || heads <= 0 || x.dims()[1] % heads != 0) {
    refuse(where, cat("rows of ", heads, " heads"), x.dims());
  }
  return x.dims()[1] / heads;
}

std::vector<double> numbers_of(const StateShape& shape) {
  std::vector<double> all;
  for (const size_t number : {shape.key_heads, shape.value_heads, shape.key_dim, shape.value_dim,
                              shape.taps, size_t{shape.tiled}}) {
    all.push_back(static_cast<double>(number));
  }
  return all;
}

void expect_dims(std::string_view where, std::string_view name, const Tensor& tensor,
                 const Dims& dims) {
  if (tensor.dims() != dims) refuse(where, cat(name, " ", to_string(dims)), tensor.dims());
}

// Throws unless a kernel keeps such states, of rows like x.
void check_state(std::string_view where, const Tensor& x, const Tensor& state,
                 const StateShape& shape) {
  const auto within = [](size_t n, size_t low, size_t high) { return n >= low && n <= high; };
  if (!within(shape.key_dim, 1, kMostStateDim) || !within(shape.value_dim, 1, kMostStateDim) ||
      !within(shape.taps, kLeastTaps, kMostTaps) || shape.key_heads == 0 ||
      shape.value_heads % shape.key_heads != 0 || shape.value_heads == 0) {
    throw Error(ErrorKind::kShape,
                cat("[", where, "] expected heads of keys that divide those of values, of at most ",
                    kMostStateDim, " channels, and ", kLeastTaps, " to ", kMostTaps, " taps"));
  }
  expect_dims(where, "rows", x, {kRows, static_cast<int64_t>(shape.width())});
  expect_dims(where, "states", state, {static_cast<int64_t>(shape.floats())});
}

}  // namespace

Tensor norm_heads(const Tensor& x, const HeadNorm& norm, int heads) {
  const int64_t size = head_of("norm_heads", x, heads);
  expect_dims("norm_heads", "a weight of a head", norm.weight, {size});
  return Tensor(make_node(Op::k_norm_rotate, x.dims(), {x, norm.weight, 0.0f, 0.0f, 0.0f},
                          {static_cast<double>(heads), norm.eps, norm.plus}));
}

Tensor head_part(const Tensor& x, int heads, int64_t first, int64_t n) {
  const int64_t size = head_of("head_part", x, heads);
  if (first < 0 || n < 1 || n > size || first > size - n) {
    throw Error(ErrorKind::kShape, cat("[head_part] expected some of ", size, " channels, got [",
                                       first, ", ", first + n, ")"));
  }
  return Tensor(make_node(Op::k_head_part, {x.dims()[0], heads * n}, {x},
                          {static_cast<double>(heads), static_cast<double>(first)}));
}

Tensor conv_rows(const Tensor& x, const Tensor& w, const Tensor& state, const StateShape& shape) {
  check_state("conv_rows", x, state, shape);
  expect_dims("conv_rows", "a weight", w,
              {static_cast<int64_t>(shape.width()), 1, static_cast<int64_t>(shape.taps)});
  return Tensor(make_node(Op::k_conv_rows, x.dims(), {x, w, state}, numbers_of(shape)));
}

Tensor delta(const Tensor& x, const Tensor& a, const Tensor& b, const Tensor& a_log,
             const Tensor& dt_bias, const Tensor& state, const StateShape& shape) {
  check_state("delta", x, state, shape);
  const auto heads = static_cast<int64_t>(shape.value_heads);
  expect_dims("delta", "a", a, {kRows, heads});
  expect_dims("delta", "b", b, {kRows, heads});
  expect_dims("delta", "a vector", a_log, {heads});
  expect_dims("delta", "a vector", dt_bias, {heads});
  return Tensor(make_node(Op::k_delta, {kRows, heads * static_cast<int64_t>(shape.value_dim)},
                          {x, a, b, a_log, dt_bias, state}, numbers_of(shape)));
}

Tensor topk(const Tensor& x, int64_t k) {
  constexpr int64_t kExact = 1 << 24;  // whole numbers below are floats
  if (x.dims().size() != 2 || x.dims()[1] > kExact) refuse("topk", "[rows, C <= 2^24]", x.dims());
  if (k <= 0 || k > x.dims()[1]) {
    throw Error(ErrorKind::kShape, cat("[topk] expected k from 1 to ", x.dims()[1], ", got ", k));
  }
  return Tensor(make_node(Op::k_topk, {x.dims()[0], 2 * k}, {x}, {static_cast<double>(k)}));
}

}  // namespace split
