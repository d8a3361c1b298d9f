#include "autograd/kernels.h"

#include "autograd/functions.h"
#include "base/error.h"

namespace split {
namespace {

int64_t number(const Node& node, size_t i) { return static_cast<int64_t>(node.attributes[i]); }
float real(const Node& node, size_t i) { return static_cast<float>(node.attributes[i]); }

// [rows, heads * D] -> [batch, length, heads, D].
Tensor heads_of(const Tensor& x, int64_t heads, const Windows& windows) {
  return reshape(x, {windows.batch, windows.length, heads, x.dims()[1] / heads});
}

// Turns pairs (a, b) of the halves of each head into (a cos - b sin, b cos + a sin).
Tensor rotated(const Tensor& x, const Tensor& cosines, const Tensor& sines,
               const Windows& windows) {
  const int64_t size = x.dims()[3], half = size / 2;
  const auto table = [&](const Tensor& of) {
    return reshape(first_rows(of, windows), {windows.length, 1, half});
  };
  const Tensor cos = table(cosines), sin = table(sines);
  const Tensor a = slice(x, 3, 0, half), b = slice(x, 3, half, size);
  const std::vector<Tensor> halves{a * cos - b * sin, b * cos + a * sin};
  return reshape(concatenate(halves, 3), {windows.rows(), x.dims()[2] * size});
}

// Heads of queries stand in groups beside their key: [batch, kv_heads, group, length, D].
Tensor attention_of(const Node& node, const Windows& windows,
                    const std::function<Tensor(size_t)>& input) {
  using In = inputs::attention;
  using Numbers = attributes::attention;
  const int64_t heads = number(node, Numbers::heads), kv = number(node, Numbers::kv_heads);
  const int64_t size = number(node, Numbers::head_dim), length = windows.length;
  const auto grouped = [&](size_t i, int64_t group) {
    return permute(reshape(input(i), {windows.batch, length, kv, group, size}), {0, 2, 3, 1, 4});
  };
  const auto window = number(node, Numbers::window);
  std::optional<Tensor> seen;
  if (number(node, Numbers::causal) != 0) {
    seen = lower_triangle(length, length, 0);
    if (window > 0 && window < length) seen = *seen - lower_triangle(length, length, -window);
  }
  const Tensor y =
      attend(grouped(In::q, heads / kv), grouped(In::k, 1), grouped(In::v, 1),
             real(node, Numbers::scale), seen ? &*seen : nullptr, real(node, Numbers::cap));
  return reshape(permute(y, {0, 3, 1, 2, 4}), {windows.rows(), heads * size});
}

}  // namespace

Tensor first_rows(const Tensor& table, const Windows& windows) {
  if (table.dims()[0] < windows.length) {
    throw Error(ErrorKind::kShape, cat("[train] expected windows of at most ", table.dims()[0],
                                       " positions, got ", windows.length));
  }
  return slice(table, 0, 0, windows.length);
}

Tensor composed(const Node& kernel, const Windows& windows,
                const std::function<Tensor(size_t)>& input) {
  using Turn = inputs::rotate;
  using Normed = inputs::norm_rotate;
  using Numbers = attributes::norm_rotate;
  if (kernel.op == Op::k_attention) return attention_of(kernel, windows, input);
  if (kernel.op == Op::k_rotate) {
    const Tensor x = heads_of(input(Turn::x), number(kernel, attributes::rotate::heads), windows);
    return rotated(x, input(Turn::cos), input(Turn::sin), windows);
  }
  if (kernel.op == Op::k_norm_rotate && kernel.inputs[Normed::cos]->op != Op::k_constant) {
    const Tensor x = heads_of(input(Normed::x), number(kernel, Numbers::heads), windows);
    const Tensor weight = input(Normed::weight) + real(kernel, Numbers::plus);
    return rotated(rms_normalise(x, {-1}, real(kernel, Numbers::eps)) * weight, input(Normed::cos),
                   input(Normed::sin), windows);
  }
  throw Error(ErrorKind::kShape,
              cat("[train] expected an op that can be trained, got ", op_info(kernel.op).name));
}

}  // namespace split
