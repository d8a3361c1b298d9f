#include "array/items.h"

#include <algorithm>
#include <bit>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"

namespace split::array {

int64_t count_of(const Dims& dims) { return element_count(dims).value(); }

namespace {

// Lanes that pay for a reduction by columns; fewer are gathered into rows.
constexpr int64_t kLeastLanes = 16;

class Maker {
 public:
  Items make(const Graph& graph) {
    for (const NamedOutput& output : graph.outputs) {
      const int item = result(read_of(output.tensor));
      items_.all[static_cast<size_t>(item)].external = true;
      items_.outputs.push_back({output.name, item, output.tensor.dims()});
    }
    for (const NamedOutput& update : graph.updates) read_of(update.tensor);  // all leaves
    std::unordered_set<int> updated;
    for (const NamedOutput& update : graph.updates) {
      const Read value = read_of(update.tensor);
      const auto leaf = leaves_.find(update.name);
      if (leaf == leaves_.end()) {
        throw Error(ErrorKind::kShape, cat("[array] expected '", update.name,
                                           "' to be read by what updates it: no such leaf"));
      }
      const Item& target = items_.all[static_cast<size_t>(leaf->second)];
      if (target.dims != update.tensor.dims() || target.dtype != update.tensor.dtype()) {
        throw Error(ErrorKind::kShape,
                    cat("[array] '", update.name, "': expected ", dtype_name(target.dtype), " ",
                        to_string(target.dims), ", got ", dtype_name(update.tensor.dtype()), " ",
                        to_string(update.tensor.dims())));
      }
      if (!updated.insert(leaf->second).second) {
        throw Error(ErrorKind::kShape, cat("[array] '", update.name, "' is updated twice"));
      }
      int item = result(value);
      if (items_.all[static_cast<size_t>(item)].external) item = copy(value);
      items_.all[static_cast<size_t>(item)].external = true;
      items_.all[static_cast<size_t>(item)].updates = leaf->second;
    }
    for (size_t i = 0; i < items_.all.size(); ++i) {
      const auto& reads = items_.all[i].reads;
      for (size_t k = 0; k < reads.size(); ++k) {
        items_.all[static_cast<size_t>(reads[k].base)].readers.push_back({static_cast<int>(i), k});
      }
    }
    return std::move(items_);
  }

 private:
  // How a tensor is read; makes the items that it needs.
  const Read& read_of(const Tensor& tensor) {
    std::vector<std::pair<const Node*, size_t>> path{{tensor.node().get(), 0}};
    while (!path.empty()) {
      auto& [node, next] = path.back();
      if (next == 0 && reads_.count(node) != 0) {
        path.pop_back();
      } else if (next < node->inputs.size()) {
        const Node* in = node->inputs[next++].get();
        path.emplace_back(in, 0);
      } else {
        if (reads_.count(node) == 0) reads_.emplace(node, place(*node));
        path.pop_back();
      }
    }
    return reads_.at(tensor.node().get());
  }

  int add(Item item) {
    items_.all.push_back(std::move(item));
    return static_cast<int>(items_.all.size()) - 1;
  }
  const Read& input(const Node& node, size_t i) const { return reads_.at(node.inputs[i].get()); }

  static Dims sizes(const Access& access) {
    Dims dims;
    for (const Axis& axis : access.axes) dims.push_back(axis.size);
    return dims;
  }

  int copy(const Read& read) {
    Item item;
    item.op = Op::k_detach;
    item.form = Item::Form::kPointwise;
    item.dtype = items_.all[static_cast<size_t>(read.base)].dtype;
    item.dims = sizes(read.access);
    item.reads = {read};
    return add(std::move(item));
  }
  // An item that has just these elements in order.
  int result(const Read& read) {
    const Item& base = items_.all[static_cast<size_t>(read.base)];
    const bool whole =
        base.computed() && read.access.flat() && count_of(base.dims) == read.access.count();
    return whole ? read.base : copy(read);
  }
  // Numbers in a buffer.
  Read stored(const Read& read, bool flat) {
    const Item& base = items_.all[static_cast<size_t>(read.base)];
    const bool in_buffer = base.op != Op::k_constant && base.op != Op::k_iota;
    if (in_buffer && !read.access.bounded() && (!flat || read.access.flat())) return read;
    const int item = copy(read);
    return {item, dense(items_.all[static_cast<size_t>(item)].dims)};
  }

  // An equal node that is there, by what it is and what it reads; or the item that `make` adds.
  Read place(const Node& node) {
    const OpKind kind = op_info(node.op).kind;
    if (has_rows(node.dims)) {
      throw Error(ErrorKind::kShape,
                  cat("[array] ", op_info(node.op).name, ": expected sizes that are known, got ",
                      to_string(node.dims)));
    }
    if (kind == OpKind::kView) return view(node);
    Key key{static_cast<int>(node.op), node.dtype, node.name, {}, {}, node.dims};
    const auto number = [&](double value) {
      key.numbers.push_back(std::bit_cast<uint64_t>(value));
    };
    for (const double value : node.attributes) number(value);
    number(node.value);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Read& read = input(node, i);
      key.reads.push_back(read.base);
      for (const Axis& axis : read.access.axes) {
        key.reads.insert(key.reads.end(), {axis.size, axis.stride, axis.from, axis.to});
      }
      key.reads.push_back(read.access.offset);
      number(read.access.fill);
    }
    const auto known = equal_.find(key);
    if (known != equal_.end()) return {known->second, dense(node.dims)};
    const int item = kind == OpKind::kLeaf || node.op == Op::k_iota ? leaf(node) : computed(node);
    equal_.emplace(std::move(key), item);
    return {item, dense(node.dims)};
  }

  Read view(const Node& node) {
    const Read& in = input(node, 0);
    if (node.op == Op::k_gather || node.op == Op::k_transpose || node.op == Op::k_columns) {
      throw Error(ErrorKind::kShape,
                  cat("[array] ", op_info(node.op).name, " is for the rows of a step"));
    }
    if (const auto access = through(node, in.access)) return {in.base, *access};
    const int item = copy(in);
    const auto access = through(node, dense(items_.all[static_cast<size_t>(item)].dims));
    CHECK(access);
    return {item, *access};
  }

  int leaf(const Node& node) {
    if (node.op == Op::k_input || node.op == Op::k_weight) {
      if (is_quantised(node.dtype)) {
        throw Error(ErrorKind::kShape,
                    cat("[array] '", node.name, "': expected numbers without blocks, got ",
                        dtype_name(node.dtype)));
      }
    }
    Item item;
    item.node = &node;
    item.op = node.op;
    item.dtype = node.dtype;
    item.dims = node.dims;
    const int at = add(std::move(item));
    if (!node.name.empty() && !leaves_.emplace(node.name, at).second) {
      throw Error(ErrorKind::kShape, cat("[array] '", node.name, "' has two shapes"));
    }
    return at;
  }

  int computed(const Node& node) {
    Item item;
    item.node = &node;
    item.op = node.op;
    item.dtype = node.dtype;
    item.dims = node.dims;
    const OpKind kind = op_info(node.op).kind;
    if (is_pointwise(node.op) || kind == OpKind::kCompare || kind == OpKind::kTernary ||
        node.op == Op::k_cast) {
      item.form = Item::Form::kPointwise;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const Read& read = input(node, i);
        item.reads.push_back({read.base, spread(read.access, node.dims)});
      }
    } else if (kind == OpKind::kReduce) {
      reduce(node, item);
    } else if (node.op == Op::k_matmul) {
      item.form = Item::Form::kOther;
      for (size_t i = 0; i < 2; ++i) {
        const Read read = stored(input(node, i), false);
        Dims dims = sizes(read.access);
        std::copy(node.dims.begin(), node.dims.end() - 2,
                  dims.insert(dims.begin(), node.dims.size() - dims.size(), 1));
        item.reads.push_back({read.base, spread(read.access, dims)});
      }
    } else if (node.op == Op::k_take || node.op == Op::k_put) {
      item.form = Item::Form::kOther;
      item.reads = {stored(input(node, 0), true), input(node, 1)};
    } else if (node.op == Op::k_scan || node.op == Op::k_order) {
      item.form = Item::Form::kOther;
      item.reads = {stored(input(node, 0), true)};
    } else {
      throw Error(ErrorKind::kShape,
                  cat("[array] expected an op of the tensor library, got ", op_info(node.op).name));
    }
    return add(std::move(item));
  }

  static Access spread(const Access& in, const Dims& dims) {
    Access out = in;
    out.axes.insert(out.axes.begin(), dims.size() - in.axes.size(), Axis{});
    for (size_t i = 0; i < dims.size(); ++i) {
      Axis& axis = out.axes[i];
      if (axis.size == dims[i]) continue;
      axis = {dims[i], 0, 0, axis.whole() ? dims[i] : 0};
    }
    return out;
  }

  void reduce(const Node& node, Item& item) {
    const Read& read = input(node, 0);
    const Dims& in = node.inputs[0]->dims;
    std::vector<bool> reduced(in.size());
    for (const double axis : node.attributes) reduced[static_cast<size_t>(axis)] = true;
    if (node.attributes.empty() && in.size() == 2 && node.dims != in) reduced[1] = true;
    std::vector<size_t> kept, gone;
    int64_t lanes = 1;  // kept behind the last reduced axis
    for (size_t i = 0; i < in.size(); ++i) {
      (reduced[i] ? gone : kept).push_back(i);
      lanes = reduced[i] && in[i] != 1 ? 1 : lanes * in[i];
      if (reduced[i]) item.reduced *= in[i];
    }
    const bool rows = lanes < kLeastLanes;
    item.form = rows ? Item::Form::kRows : Item::Form::kColumns;
    std::vector<size_t> order = rows ? kept : gone;
    const auto& behind = rows ? gone : kept;
    order.insert(order.end(), behind.begin(), behind.end());
    item.reads = {{read.base, permuted(read.access, order)}};
  }

  struct Key {
    int op;
    DType dtype;
    std::string name;
    std::vector<uint64_t> numbers;  // bits: -0 is not 0, and a NaN is itself
    std::vector<int64_t> reads;
    Dims dims;
    auto operator<=>(const Key&) const = default;
  };
  Items items_;
  std::unordered_map<const Node*, Read> reads_;
  std::unordered_map<std::string, int> leaves_;
  std::map<Key, int> equal_;
};

}  // namespace

Items make_items(const Graph& graph) { return Maker().make(graph); }

}  // namespace split::array
