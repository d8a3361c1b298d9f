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
      default:
        return composed(node, windows_, [&](size_t i) { return input_of(node, i); });
    }
  }

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
    const Tensor rows = first_rows(table, windows_);
    return reshape(expand(rows, {windows_.batch, windows_.length, node.dims[1]}),
                   {windows_.rows(), node.dims[1]});
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
