#include "compile/fuse.h"

#include <set>

#include "base/sort.h"
#include "tensor/model_ops.h"

namespace split {
namespace {

class Fuser {
 public:
  Fuser(const std::vector<NamedOutput>& outputs, const FuseRules& rules) : rules_(rules) {
    for (const NamedOutput& output : outputs) {
      visit(output.tensor.node().get());
      is_output_.insert(output.tensor.node().get());
    }
  }

  Units run() {
    for (const Node* node : topological_) place(*node);
    drop_merged();
    find_wanted();
    order();
    return std::move(units_);
  }

 private:
  void visit(const Node* node) {
    if (!seen_.insert(node).second) return;
    for (const auto& in : node->inputs) {
      visit(in.get());
      users_[in.get()].insert(node);
    }
    topological_.push_back(node);
  }

  Unit* unit_of(const Node* node) const {
    const auto at = units_.unit_of.find(node);
    return at == units_.unit_of.end() ? nullptr : at->second;
  }

  static bool is_view(const Node& node) { return op_info(node.op).kind == OpKind::kView; }

  // The unit that makes an input of a node, or null. A view is part of its reader; its source may
  // be computed.
  Unit* source_of(const Node& in) const { return unit_of(is_view(in) ? in.inputs[0].get() : &in); }

  // The units that `unit` reads from.
  std::set<Unit*> inputs_of(const Unit& unit) const {
    std::set<Unit*> result;
    const auto add = [&](const Node* node) {
      for (const auto& in : node->inputs) {
        Unit* other = source_of(*in);
        if (other != nullptr && other != &unit) result.insert(other);
      }
    };
    if (unit.kernel != nullptr) add(unit.kernel);
    for (const Node* node : unit.nodes) add(node);
    return result;
  }

  // True when `unit` needs `other`, directly or not.
  bool depends(const Unit& unit, const Unit& other) const {
    for (Unit* in : inputs_of(unit)) {
      if (in == &other || depends(*in, other)) return true;
    }
    return false;
  }

  Unit* new_unit(const Node* kernel, int64_t rows, int64_t columns) {
    units_.all.push_back(std::make_unique<Unit>());
    Unit* unit = units_.all.back().get();
    unit->kernel = kernel;
    unit->rows = rows;
    unit->columns = columns;
    return unit;
  }

  void place(const Node& node) {
    const OpKind kind = op_info(node.op).kind;
    if (kind == OpKind::kLeaf || kind == OpKind::kView) return;
    if (static_cast<size_t>(node.op) >= kModelOps) {
      throw Error(ErrorKind::kShape,
                  cat("[compile] ", op_info(node.op).name, ": expected an operation of models"));
    }
    check_inputs(node);
    if (node.dims.size() != 2 || (node.dims[0] != kRows && node.dims[0] != kOutRows)) {
      throw Error(ErrorKind::kShape,
                  cat("[compile] ", op_info(node.op).name, ": expected a result [rows, C], got ",
                      to_string(node.dims)));
    }
    if (kind == OpKind::kKernel) {
      units_.unit_of[&node] = new_unit(&node, node.dims[0], node.dims[1]);
      return;
    }
    Unit* unit = is_pointwise(node.op) && rules_.epilogue ? epilogue_for(node) : nullptr;
    const int64_t columns = kind == OpKind::kReduce ? node.inputs[0]->dims[1] : node.dims[1];
    if (unit == nullptr && rules_.groups) unit = group_for(node, columns);
    if (unit == nullptr) unit = new_unit(nullptr, node.dims[0], columns);
    unit->nodes.push_back(&node);
    units_.unit_of[&node] = unit;
  }

  // Checks that views are read in place: a gather by a tape, a transposed weight by a matmul,
  // columns by attention, nothing else.
  static void check_inputs(const Node& node) {
    const auto refuse = [](const Node& reader, std::string_view expected, const Node& in) {
      throw Error(ErrorKind::kShape, cat("[compile] ", op_info(reader.op).name, ": expected ",
                                         expected, ", got ", op_info(in.op).name));
    };
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Node& in = *node.inputs[i];
      if (node.op == Op::k_matmul && i == 1) {
        const Node& matrix = in.op == Op::k_transpose ? *in.inputs[0] : in;
        if (matrix.op != Op::k_weight) refuse(node, "a weight [K, M]", in);
      } else if (in.op == Op::k_gather && is_tape_op(node)) {
        if (is_view(*in.inputs[0])) refuse(in, kMade, *in.inputs[0]);
        if (is_pointwise(node.op) && in.dims[1] != node.dims[1]) {
          throw Error(ErrorKind::kShape,
                      cat("[compile] ", op_info(node.op).name, ": expected gathered rows of ",
                          node.dims[1], ", got ", in.dims[1]));
        }
      } else if (in.op == Op::k_columns && reads_columns(node.op)) {
        if (is_view(*in.inputs[0])) refuse(in, kMade, *in.inputs[0]);
      } else if (is_view(in)) {
        refuse(node, kMade, in);
      }
    }
  }
  static bool reads_columns(Op op) {
    return op == Op::k_attention || op == Op::k_rotate || op == Op::k_norm_rotate;
  }
  static constexpr std::string_view kMade = "a value that a step has made";
  static bool is_tape_op(const Node& node) {
    return is_pointwise(node.op) || op_info(node.op).kind == OpKind::kReduce;
  }

  // Rule 1: the kernel whose result only this node uses.
  Unit* epilogue_for(const Node& node) const {
    for (const auto& in : node.inputs) {
      Unit* unit = unit_of(in.get());
      if (unit == nullptr || unit->kernel == nullptr || !op_info(unit->kernel->op).epilogue)
        continue;
      const Node* result = unit->nodes.empty() ? unit->kernel : unit->nodes.back();
      if (in.get() != result || in->dims != node.dims) continue;
      if (users_.at(result).size() == 1 && is_output_.count(result) == 0) return unit;
    }
    return nullptr;
  }

  // Rule 2: a group on the same rows that this node reads, joined with the other groups that it
  // reads, unless one of them would then depend on itself.
  Unit* group_for(const Node& node, int64_t columns) {
    Unit* joined = nullptr;
    for (const auto& in : node.inputs) {
      Unit* unit = unit_of(in.get());
      if (unit == nullptr || unit == joined || unit->kernel != nullptr) continue;
      const bool same_width =
          unit->columns == columns || (in->dims[1] == 1 && is_one_value_a_row(node));
      if (unit->rows != node.dims[0] || !same_width) continue;
      const bool cyclic =
          std::any_of(node.inputs.begin(), node.inputs.end(), [&](const auto& other) {
            Unit* source = source_of(*other);
            if (source == unit) return other->op == Op::k_gather;  // rows not yet computed
            return source != nullptr && source != joined && depends(*source, *unit);
          });
      if (cyclic) continue;
      if (joined == nullptr) {
        joined = unit;
      } else if (joined->columns == unit->columns && !depends(*unit, *joined) &&
                 !depends(*joined, *unit)) {
        merge(*joined, *unit);
      }
    }
    return joined;
  }

  // A pointwise op on one value a row: part of a group of any width that it came from. A vector or
  // a gathered row of one element is not of that width, so its reader stays outside.
  static bool is_one_value_a_row(const Node& node) {
    return is_pointwise(node.op) && node.dims[1] == 1 &&
           std::all_of(node.inputs.begin(), node.inputs.end(), [](const auto& in) {
             return in->dims.size() != 1 && in->op != Op::k_gather;
           });
  }

  void merge(Unit& into, Unit& from) {
    into.nodes.insert(into.nodes.end(), from.nodes.begin(), from.nodes.end());
    sort_stably(into.nodes,
                [&](const Node* a, const Node* b) { return position(a) < position(b); });
    for (const Node* node : from.nodes) units_.unit_of[node] = &into;
    from.nodes.clear();
  }

  void drop_merged() {
    std::erase_if(units_.all,
                  [](const auto& unit) { return unit->kernel == nullptr && unit->nodes.empty(); });
  }

  size_t position(const Node* node) const {
    return static_cast<size_t>(std::find(topological_.begin(), topological_.end(), node) -
                               topological_.begin());
  }

  // The units that read a node, through views too.
  std::set<const Unit*> readers(const Node* node) const {
    std::set<const Unit*> result;
    const auto users = users_.find(node);
    if (users == users_.end()) return result;
    for (const Node* user : users->second) {
      if (is_view(*user)) {
        const auto more = readers(user);
        result.insert(more.begin(), more.end());
      } else {
        result.insert(unit_of(user));
      }
    }
    return result;
  }

  void find_wanted() {
    for (const auto& unit : units_.all) {
      const auto consider = [&](const Node* node) {
        const auto reading = readers(node);
        const bool outside = std::any_of(reading.begin(), reading.end(),
                                         [&](const Unit* reader) { return reader != unit.get(); });
        if (outside || is_output_.count(node) != 0) unit->wanted.push_back(node);
      };
      if (unit->kernel != nullptr) consider(unit->kernel);
      for (const Node* node : unit->nodes) consider(node);
    }
  }

  // The longest chain of units up to this one.
  size_t depth(const Unit& unit, std::map<const Unit*, size_t>& known) const {
    const auto at = known.find(&unit);
    if (at != known.end()) return at->second;
    size_t result = 0;
    for (const Unit* in : inputs_of(unit)) result = std::max(result, 1 + depth(*in, known));
    return known[&unit] = result;
  }

  // Orders each unit after its inputs, independent units together, otherwise in the order of the
  // graph.
  void order() {
    std::map<const Unit*, size_t> depths;
    const auto place = [&](const Unit* unit) {
      return std::pair(depth(*unit, depths),
                       position(unit->kernel != nullptr ? unit->kernel : unit->nodes[0]));
    };
    for (const auto& unit : units_.all) units_.order.push_back(unit.get());
    sort_stably(units_.order, {}, place);
  }

  const FuseRules rules_;
  std::vector<const Node*> topological_;
  std::set<const Node*> seen_;
  std::set<const Node*> is_output_;
  std::map<const Node*, std::set<const Node*>> users_;
  Units units_;
};

}  // namespace

Units fuse(const std::vector<NamedOutput>& outputs, const FuseRules& rules) {
  return Fuser(outputs, rules).run();
}

}  // namespace split
