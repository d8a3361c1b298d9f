// A lazy tensor: a handle on a node of a graph, which says what is to be computed, not where. A
// model builds its graph once; compile/ turns it into a Program. Shapes are checked here, at the
// wrong line.
//
// The first size of an activation is symbolic: kRows, the rows of a step, or kOutRows, the rows
// whose result is wanted.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tensor/op.h"
#include "tensor/shape.h"
#include "tensor/state_shape.h"

namespace split {

inline constexpr int64_t kRows = -1;
inline constexpr int64_t kOutRows = -2;

class Home;  // tensor/home.h
class Tensor;
// Returns the gradients of a function's inputs from the gradient of its result.
using GradientRule = std::function<std::vector<Tensor>(const Tensor& dy)>;

struct Node {
  Op op = Op::k_constant;
  DType dtype = DType::kF32;
  Dims dims;  // [] constant, [C] vector, [R, C] activation, [K, M] matrix; any, without rows of a
              // step, for the tensor library (autograd/functions.h)
  std::vector<std::shared_ptr<const Node>> inputs;
  std::vector<double>
      attributes;              // kernels and views: as the op's row has them; axes of a reduction
  std::string name;            // inputs and weights: the name that they are bound by
  float value = 0;             // constants
  std::shared_ptr<Home> home;  // leaves that have values outside of a step
  std::shared_ptr<const GradientRule> rule;  // set for a function that a caller defined

  Node() = default;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node();  // frees a chain of any length, by a loop
};

class Tensor {
 public:
  Tensor(float constant);  // NOLINT(google-explicit-constructor): 2.0f * x reads as it should
  template <std::integral T>
  Tensor(T constant)  // NOLINT(google-explicit-constructor): a whole number, or true or false
      : Tensor(number(static_cast<double>(constant),
                      std::same_as<T, bool> ? DType::kBool : DType::kI64)) {}
  explicit Tensor(std::shared_ptr<const Node> node) : node_(std::move(node)) {}

  const std::shared_ptr<const Node>& node() const { return node_; }
  const Dims& dims() const { return node_->dims; }
  DType dtype() const { return node_->dtype; }
  static Tensor number(double value, DType dtype);  // exact up to 2^53

 private:
  std::shared_ptr<const Node> node_;
};

// An input that a run provides: kI32 symbols ("tokens", "positions", "marks", "out_rows") as
// [rows], activations as [rows, C].
Tensor input(std::string name, DType dtype, Dims dims);
// A weight that a checkpoint provides: a vector [C] or a matrix, by its name there.
Tensor weight(std::string name, DType dtype, Dims dims);

// Pointwise, for numbers of any type (tensor/types.h). Sides are of one shape, or one of them is
// broadcast: a constant, a vector [C] over rows, or one value a row [R, 1]; without a step's rows
// by PyTorch's rules. Throws Error(kShape).
Tensor unary(Op op, const Tensor& x);
Tensor binary(Op op, const Tensor& x, const Tensor& z);
// Over the last axis: [R, C] -> [R, 1].
Tensor reduce(Op op, const Tensor& x);

// table [N, C], index [R] (kI32) -> [R, C].
Tensor gather(const Tensor& table, const Tensor& index);
// A matrix read the other way: [M, K] -> [K, M].
Tensor transpose(const Tensor& matrix);
// x [R, K], w [K, M] -> [R, M]. A quantised w is a transposed one, whose blocks lie along K. With
// more axes, without a step's rows, a product for each of those before, which are broadcast.
Tensor matmul(const Tensor& x, const Tensor& w);
// Columns [first, first + n) of rows: [R, C] -> [R, n].
Tensor columns(const Tensor& x, int64_t first, int64_t n);

struct AttentionHeads {
  int heads = 1;     // heads of queries
  int kv_heads = 1;  // heads of keys and values; consecutive heads / kv_heads share each
  int head_dim = 1;
  float scale = 1;     // multiplies q . k
  int window = 0;      // a row sees so many keys, its own and those before it, and of rows that are
                       // not causal as many behind it; 0: all
  float cap = 0;       // scores become cap * tanh(score / cap); 0: they stay
  bool causal = true;  // else a row sees all rows of its own sequence in the step, and caches are
                       // for the step alone
};
// Attention of rows over the keys of their sequences that they see, their own among them: q [R,
// heads * head_dim], k and v [R, kv_heads * head_dim] -> [R, heads * head_dim]. The caches are
// inputs of shape [kv_heads * head_dim]: one layer's keys and values, paged by the device. To each
// score comes the bias of its key's place beside the row's, a float weight [kBiasBuckets, heads]
// (relative_bucket() of ops.def), where that is no number.
inline constexpr int64_t kBiasBuckets = 32;
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& k_cache,
                 const Tensor& v_cache, const AttentionHeads& heads, const Tensor& bias = 0.0f);
// The tables [positions, P] that turn the first 2 P channels of a head, all or some of them, and
// the input with each row's position.
struct Rotation {
  Tensor cos, sin;
  Tensor positions;  // I32 [R]
};
// Rotary positions: x [R, heads * D] -> the same, the pair (a, b) = (x[i], x[i + P]) of a head
// becomes (a cos - b sin, b cos + a sin) of row positions[r] of the tables, column i. Source:
// RoFormer (2021), in the halves of GPT-NeoX. x may be columns of a product.
Tensor rotate(const Tensor& x, const Rotation& rotation, int heads);
// Rotates each head's channels x / sqrt(mean x^2 + eps) * (weight + plus), weight [D].
struct HeadNorm {
  Tensor weight;
  float eps = 1e-6f;
  float plus = 0;
};
Tensor rotate(const Tensor& x, const HeadNorm& norm, const Rotation& rotation, int heads);
// Only norms them.
Tensor norm_heads(const Tensor& x, const HeadNorm& norm, int heads);
// Channels [first, first + n) of each head: [R, heads * D] -> [R, heads * n].
Tensor head_part(const Tensor& x, int heads, int64_t first, int64_t n);

// The two steps of gated DeltaNet that read earlier rows, by the state that a device keeps of each
// sequence, an input [shape.floats()].
//
// The causal convolution, and silu: x [R, shape.width()], w [shape.width(), 1, taps], whose last
// tap is the row's own -> the same as x.
Tensor conv_rows(const Tensor& x, const Tensor& w, const Tensor& state, const StateShape& shape);
// The delta rule: x [R, shape.width()] are queries, keys and values of all heads, a and b [R,
// value_heads], a_log and dt_bias [value_heads] -> [R, value_heads * value_dim]. Of a row and value
// head: S := e^g S; S += k beta (v - S^T k)^T; y = S^T q, with g = -e^a_log softplus(a + dt_bias),
// beta = sigmoid(b), q and k of length 1, q times key_dim^-1/2. Source: "Gated Delta Networks"
// (2024).
Tensor delta(const Tensor& x, const Tensor& a, const Tensor& b, const Tensor& a_log,
             const Tensor& dt_bias, const Tensor& state, const StateShape& shape);

// The k largest elements of each row, x [R, C] -> [R, 2 k]: first the elements, largest first and
// equal ones by column, then their columns, as floats. What is not finite comes before all else, so
// that no reader misses it.
Tensor topk(const Tensor& x, int64_t k);

// Whether a size stands for the rows of a step; and the shape of two without such, broadcast by
// PyTorch's rules, or nothing.
bool has_rows(const Dims& dims);
std::optional<Dims> broadcast_dims(const Dims& x, const Dims& z);

// A result of a graph, and the caller's name for it.
struct NamedOutput {
  std::string name;
  Tensor tensor;
  std::vector<NamedOutput> beside = {};  // others of the same graph
};

#define UNARY(op_name, ...) \
  inline Tensor op_name(const Tensor& x) { return unary(Op::k_##op_name, x); }
#define BINARY(op_name, ...) \
  inline Tensor op_name(const Tensor& x, const Tensor& z) { return binary(Op::k_##op_name, x, z); }
#define REDUCE(op_name, ...) \
  inline Tensor reduce_##op_name(const Tensor& x) { return reduce(Op::k_reduce_##op_name, x); }
#include "tensor/ops.def"

inline Tensor operator+(const Tensor& x, const Tensor& z) { return add(x, z); }
inline Tensor operator-(const Tensor& x, const Tensor& z) { return sub(x, z); }
inline Tensor operator*(const Tensor& x, const Tensor& z) { return mul(x, z); }
inline Tensor operator/(const Tensor& x, const Tensor& z) { return div(x, z); }

}  // namespace split
