#include "train/windows.h"

#include <unordered_map>

#include "autograd/functions.h"
#include "base/error.h"

namespace split::train {
namespace {

class Rebinding {
 public:
  Rebinding(const Windows& windows, const Tensor& in, const Leaves& leaves)
      : windows_(windows), in_(in), leaves_(leaves) {}

  Tensor of(const std::shared_ptr<const Node>& node) {
    if (const auto at = made_.find(node.get()); at != made_.end()) return at->second;
    Tensor made = make(*node);
    made_.emplace(node.get(), made);
    return made;
  }

 private:
  Tensor input_of(const Node& node, size_t i) { return of(node.inputs[i]); }
  static const Node& source(const Node& node, size_t i) { return *node.inputs[i]; }
  static bool is_input(const Node& node, std::string_view name) {
    return node.op == Op::k_input && node.name == name;
  }

  Tensor make(const Node& node) {
    switch (op_info(node.op).kind) {
      case OpKind::kUnary:
        return unary(node.op, input_of(node, 0));
      case OpKind::kBinary:
        return binary(node.op, input_of(node, 0), input_of(node, 1));
      case OpKind::kReduce:
        return reduce(node.op, input_of(node, 0), {-1}, true);
      default:
        break;
    }
    switch (node.op) {
      case Op::k_constant:
        return Tensor(node.value);
      case Op::k_weight:
        return leaves_.weight(node.name, node.dims);
      case Op::k_input:
        return leaf(node);
      case Op::k_gather:
        return gather(node);
      case Op::k_transpose:
        return transpose(input_of(node, 0), 0, 1);
      case Op::k_columns: {
        const auto first = static_cast<int64_t>(node.attributes[0]);
        return slice(input_of(node, 0), 1, first, first + node.dims[1]);
      }
      case Op::k_matmul:
        return product(node);
      case Op::k_rotate:
        return rotated(heads_of(input_of(node, 0), number(node, 0)), node, 1);
      case Op::k_norm_rotate: {
        using Numbers = attributes::norm_rotate;
        const Tensor normed =
            rms_normalise(heads_of(input_of(node, 0), number(node, Numbers::heads)), {-1},
                          real(node, Numbers::eps));
        return rotated(normed * (input_of(node, 1) + real(node, Numbers::plus)), node, 2);
      }
      case Op::k_attention:
        return attention(node);
      default:
        throw Error(ErrorKind::kShape,
                    cat("[train] expected an op that can be trained, got ", op_info(node.op).name));
    }
  }

  static int64_t number(const Node& node, size_t i) {
    return static_cast<int64_t>(node.attributes[i]);
  }
  static float real(const Node& node, size_t i) { return static_cast<float>(node.attributes[i]); }

  Tensor leaf(const Node& node) {
    if (node.name == "hidden" || node.name == "tokens") return in_;
    throw Error(ErrorKind::kShape,
                cat("[train] expected hidden states or tokens, got '", node.name, "'"));
  }

  // Takes the table's first rows for positions; wanted rows are all.
  Tensor gather(const Node& node) {
    const Node& index = source(node, 1);
    if (is_input(index, "out_rows")) return input_of(node, 0);
    const Tensor table = input_of(node, 0);
    if (!is_input(index, "positions")) return take(table, input_of(node, 1));
    const Tensor rows = first_rows(table);
    return reshape(expand(rows, {windows_.batch, windows_.length, node.dims[1]}),
                   {windows_.rows(), node.dims[1]});
  }
  Tensor first_rows(const Tensor& table) const {
    if (table.dims()[0] < windows_.length) {
      throw Error(ErrorKind::kShape, cat("[train] expected windows of at most ", table.dims()[0],
                                         " positions, got ", windows_.length));
    }
    return slice(table, 0, 0, windows_.length);
  }

  Tensor product(const Node& node) {
    const Node& w = source(node, 1);
    const Node& matrix = w.op == Op::k_transpose ? source(w, 0) : w;
    const Tensor x = input_of(node, 0);
    Tensor y = matmul(x, input_of(node, 1));
    if (!leaves_.adapter || matrix.op != Op::k_weight) return y;
    const auto more = leaves_.adapter(matrix.name, x);
    return more ? y + *more : y;
  }

  // [rows, heads * D] -> [batch, length, heads, D].
  Tensor heads_of(const Tensor& x, int64_t heads) const {
    return reshape(x, {windows_.batch, windows_.length, heads, x.dims()[1] / heads});
  }

  // Turns pairs (a, b) of the halves of each head into (a cos - b sin, b cos + a sin). `tables`:
  // the first of the inputs cos and sin.
  Tensor rotated(const Tensor& x, const Node& node, size_t tables) {
    const int64_t size = x.dims()[3], half = size / 2;
    const auto table = [&](size_t i) {
      return reshape(first_rows(input_of(node, i)), {windows_.length, 1, half});
    };
    const Tensor cos = table(tables), sin = table(tables + 1);
    const Tensor a = slice(x, 3, 0, half), b = slice(x, 3, half, size);
    const std::vector<Tensor> halves{a * cos - b * sin, b * cos + a * sin};
    return reshape(concatenate(halves, 3), {windows_.rows(), node.dims[1]});
  }

  // Heads of queries stand in groups beside their key: [batch, kv_heads, group, length, D].
  Tensor attention(const Node& node) {
    using In = inputs::attention;
    using Numbers = attributes::attention;
    const int64_t heads = number(node, Numbers::heads), kv = number(node, Numbers::kv_heads);
    const int64_t size = number(node, Numbers::head_dim), length = windows_.length;
    const auto grouped = [&](size_t i, int64_t group) {
      return permute(reshape(input_of(node, i), {windows_.batch, length, kv, group, size}),
                     {0, 2, 3, 1, 4});
    };
    const auto window = number(node, Numbers::window);
    std::optional<Tensor> seen;
    if (number(node, Numbers::causal) != 0) {
      seen = lower_triangle(length, length, 0);
      if (window > 0 && window < length) {
        seen = *seen - lower_triangle(length, length, -window);
      }
    }
    const Tensor y =
        attend(grouped(In::q, heads / kv), grouped(In::k, 1), grouped(In::v, 1),
               real(node, Numbers::scale), seen ? &*seen : nullptr, real(node, Numbers::cap));
    return reshape(permute(y, {0, 3, 1, 2, 4}), {windows_.rows(), heads * size});
  }

  const Windows windows_;
  const Tensor in_;
  const Leaves& leaves_;
  std::unordered_map<const Node*, Tensor> made_;
};

}  // namespace

Tensor over_windows(const Model& model, const Stage& stage, const Windows& windows,
                    const Tensor& in, const Leaves& leaves) {
  if (model.config().encodes()) {
    throw Error(ErrorKind::kInput, "[train] expected a model that writes text, got an encoder");
  }
  const NamedOutput traced =
      stage.trace({.weight = [](const std::string&) { return DType::kF32; }});
  return Rebinding(windows, in, leaves).of(traced.tensor.node());
}

}  // namespace split::train
