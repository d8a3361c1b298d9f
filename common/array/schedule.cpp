#include "array/schedule.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_map>

#include "array/items.h"
#include "base/error.h"

namespace split::array {
namespace {

constexpr int64_t kLeastInner = 16;  // elements of a row that pay for values that are one a row

// Items that become one kernel.
struct Cluster {
  KernelKind kind = KernelKind::kRows;
  int64_t rows = 0, inner = 1, lanes = 1;
  bool open = false;  // pointwise so far: rows may still get elements
  std::vector<int> members;
  int64_t elements() const { return rows * inner; }
};

class Clusters {
 public:
  Clusters(const Items& items, bool fuse) : items_(items), of_(items.all.size(), -1) {
    row_.resize(items.all.size());
    for (size_t i = items.all.size(); i-- > 0;) {
      if (items.all[i].computed() && !(fuse && join(static_cast<int>(i))))
        begin(static_cast<int>(i));
    }
    for (Cluster& cluster : all) std::ranges::sort(cluster.members);
    std::ranges::sort(all, {}, [](const Cluster& cluster) { return cluster.members.back(); });
  }
  bool one_a_row(int item) const { return row_[static_cast<size_t>(item)]; }

  std::vector<Cluster> all;

 private:
  void begin(int i) {
    const Item& item = items_.all[static_cast<size_t>(i)];
    Cluster cluster;
    cluster.members = {i};
    cluster.rows = count_of(item.dims);
    if (item.form == Item::Form::kPointwise) {
      cluster.open = true;
    } else if (item.form == Item::Form::kRows) {
      cluster.inner = item.reduced;
      row_[static_cast<size_t>(i)] = true;
    } else if (item.form == Item::Form::kColumns) {
      cluster.kind = KernelKind::kColumns;
      cluster.rows = item.reduced;
      cluster.lanes = count_of(item.dims);
    } else {
      cluster.kind = KernelKind::kProduct;
    }
    of_[static_cast<size_t>(i)] = static_cast<int>(all.size());
    all.push_back(std::move(cluster));
  }

  // Joins the one kernel that reads it, where that reads it element by element or row by row.
  bool join(int i) {
    const Item& item = items_.all[static_cast<size_t>(i)];
    if (item.form != Item::Form::kPointwise && item.form != Item::Form::kRows) return false;
    if (item.readers.empty()) return false;
    const int which = of_[static_cast<size_t>(item.readers[0].item)];
    Cluster& cluster = all[static_cast<size_t>(which)];
    if (cluster.kind == KernelKind::kProduct) return false;
    if (cluster.kind == KernelKind::kColumns && item.external) return false;  // it keeps sums alone
    const int64_t count = count_of(item.dims);
    std::optional<bool> per_row;
    int64_t rows = cluster.rows, inner = cluster.inner;
    for (const Item::Reader& reader : item.readers) {
      if (of_[static_cast<size_t>(reader.item)] != which) return false;
      const Item& by = items_.all[static_cast<size_t>(reader.item)];
      const Access& access = by.reads[reader.input].access;
      bool row = false;
      if (by.form == Item::Form::kPointwise && one_a_row(reader.item) && !cluster.open) {
        if (!access.flat() || count != cluster.rows) return false;
        row = true;
      } else if (cluster.kind == KernelKind::kColumns) {
        if (!access.flat() || count != cluster.rows * cluster.lanes) return false;
      } else if (!(access.flat() && count == cluster.elements())) {
        if (cluster.open && inner == 1 && !opened(access, count, cluster.elements(), rows, inner)) {
          return false;
        }
        if (count != rows || !access.per_row(rows, inner)) return false;
        row = true;
      }
      if (per_row.value_or(row) != row) return false;
      per_row = row;
    }
    if (item.form == Item::Form::kRows) {
      // Rows of one element each are as many as the elements.
      if (cluster.kind != KernelKind::kRows || item.reduced == 1 || !*per_row) return false;
      if (inner != item.reduced) return false;
    }
    cluster.open = cluster.open && inner == 1;
    cluster.rows = rows;
    cluster.inner = inner;
    row_[static_cast<size_t>(i)] = *per_row;
    of_[static_cast<size_t>(i)] = which;
    cluster.members.push_back(i);
    return true;
  }

  // How elements become rows where `count` values are one a row.
  static bool opened(const Access& access, int64_t count, int64_t elements, int64_t& rows,
                     int64_t& inner) {
    if (count == 0 || elements % count != 0 || elements / count < kLeastInner) return false;
    if (!access.per_row(count, elements / count)) return false;
    rows = count;
    inner = elements / count;
    return true;
  }

  const Items& items_;
  std::vector<int> of_;
  std::vector<bool> row_;  // items with one value a row
};

class Emitter {
 public:
  Emitter(Items& items, const Clusters& clusters) : items_(items), clusters_(clusters) {
    buffer_of_.assign(items.all.size(), -1);
  }

  Schedule emit() {
    std::vector<bool> late(items_.all.size());
    std::vector<const Cluster*> first, last;
    for (const Cluster& cluster : clusters_.all) {
      bool is_late = false;
      for (const int i : cluster.members) {
        const Item& item = items_.all[static_cast<size_t>(i)];
        is_late = is_late || item.updates >= 0;
        for (const Read& read : item.reads)
          is_late = is_late || late[static_cast<size_t>(read.base)];
      }
      for (const int i : cluster.members) late[static_cast<size_t>(i)] = is_late;
      (is_late ? last : first).push_back(&cluster);
    }
    first.insert(first.end(), last.begin(), last.end());
    for (const Cluster* cluster : first) emit(*cluster);
    for (const auto& [name, item, dims] : items_.outputs) {
      out_.outputs.push_back({name, buffer(item), dims});
    }
    place_updates();
    return std::move(out_);
  }

 private:
  int buffer(int i) {
    int& at = buffer_of_[static_cast<size_t>(i)];
    if (at >= 0) return at;
    const Item& item = items_.all[static_cast<size_t>(i)];
    const bool leaf = !item.computed();
    at = static_cast<int>(out_.buffers.size());
    out_.buffers.push_back(
        {leaf ? item.node->name : "", item.dtype, item.dims, count_of(item.dims)});
    return at;
  }

  Operand operand(const Read& read, const Access& access) {
    const Item& base = items_.all[static_cast<size_t>(read.base)];
    Operand operand;
    operand.access = access;
    operand.dtype = base.dtype;
    if (base.op == Op::k_constant) {
      operand.from = Operand::From::kNumber;
      operand.number = base.node->attributes.empty() ? base.node->value : base.node->attributes[0];
    } else if (base.op == Op::k_iota) {
      operand.from = Operand::From::kIota;
    } else {
      operand.buffer = buffer(read.base);
    }
    return operand;
  }

  // The value of a read in a tape; `row`: of a value that is one a row.
  int load(const Cluster& cluster, Kernel& kernel, const Read& read, bool row) {
    if (const auto at = value_of_.find(read.base); at != value_of_.end()) return at->second;
    TapeValue value;
    Access access = simplified(read.access);
    value.full = !row && cluster.inner != 1;
    if (value.full && access.per_row(cluster.rows, cluster.inner)) {
      access.axes = {{cluster.rows, 1, 0, cluster.rows}};
      value.full = false;
    }
    value.load = operand(read, access);
    value.dtype = value.load.dtype;
    value.uniform = !access.bounded() && std::ranges::all_of(access.axes, [&](const Axis& axis) {
      return axis.stride == 0 || value.load.from == Operand::From::kNumber;
    });
    const auto known = std::ranges::find(kernel.tape.values, value);
    if (known != kernel.tape.values.end()) {
      return static_cast<int>(known - kernel.tape.values.begin());
    }
    kernel.tape.values.push_back(std::move(value));
    return static_cast<int>(kernel.tape.values.size()) - 1;
  }

  void emit(const Cluster& cluster) {
    Kernel kernel;
    kernel.kind = cluster.kind;
    if (cluster.kind == KernelKind::kProduct) return emit_single(cluster.members[0]);
    kernel.rows = cluster.rows;
    kernel.inner = cluster.inner;
    kernel.lanes = cluster.lanes;
    value_of_.clear();
    for (const int i : cluster.members) {
      const Item& item = items_.all[static_cast<size_t>(i)];
      const bool row = clusters_.one_a_row(i) && item.form != Item::Form::kRows;
      int in[3] = {-1, -1, -1};
      for (size_t k = 0; k < item.reads.size(); ++k)
        in[k] = load(cluster, kernel, item.reads[k], row);
      if (cluster.kind == KernelKind::kColumns && i == cluster.members.back()) {
        kernel.reduce = item.op;
        kernel.dtype = item.dtype;
        // The last value is what is reduced, an operand or an op's.
        if (in[0] + 1 != static_cast<int>(kernel.tape.values.size())) {
          kernel.tape.values.push_back({{.op = Op::k_detach, .dtype = item.dtype, .x = in[0]}, {}});
        }
        kernel.tape.outputs.push_back({static_cast<int>(kernel.tape.values.size()) - 1, buffer(i)});
        break;
      }
      TapeValue value;
      value.op = item.op;
      value.dtype = item.dtype;
      const bool ternary = op_info(item.op).kind == OpKind::kTernary;
      value.c = ternary ? in[0] : -1;
      value.x = in[ternary ? 1 : 0];
      value.z = in[ternary ? 2 : 1];
      value.full = !clusters_.one_a_row(i) && cluster.inner != 1;
      value_of_[i] = static_cast<int>(kernel.tape.values.size());
      kernel.tape.values.push_back(std::move(value));
      const bool last = i == cluster.members.back();
      if (last || item.external) kernel.tape.outputs.push_back({value_of_[i], buffer(i)});
    }
    out_.kernels.push_back(std::move(kernel));
  }

  void emit_single(int i) {
    const Item& item = items_.all[static_cast<size_t>(i)];
    Kernel kernel;
    kernel.kind = item.op == Op::k_take    ? KernelKind::kTake
                  : item.op == Op::k_put   ? KernelKind::kPut
                  : item.op == Op::k_scan  ? KernelKind::kScan
                  : item.op == Op::k_order ? KernelKind::kOrder
                                           : KernelKind::kProduct;
    const Access& a = item.reads[0].access;
    if (item.reads.size() == 1) {
      kernel.a = operand(item.reads[0], simplified(a));
      kernel.rows = item.dims[0];
      kernel.inner = item.dims[1];
    }
    kernel.dtype = items_.all[static_cast<size_t>(item.reads[0].base)].dtype;
    if (kernel.kind == KernelKind::kPut || kernel.kind == KernelKind::kScan) {
      kernel.reduce = static_cast<Op>(item.node->attributes[0]);
    }
    if (kernel.kind == KernelKind::kOrder) kernel.descending = item.node->attributes[0] != 0;
    if (item.reads.size() == 1) {
      kernel.tape.outputs.push_back({0, buffer(i)});
      out_.kernels.push_back(std::move(kernel));
      return;
    }
    const Access& b = item.reads[1].access;
    const bool product = kernel.kind == KernelKind::kProduct;
    kernel.a = operand(item.reads[0], product ? a : simplified(a));
    kernel.b = operand(item.reads[1], product ? b : simplified(b));
    if (product) {
      const size_t axes = item.dims.size();
      kernel.batch = count_of({item.dims.begin(), item.dims.end() - 2});
      kernel.r = item.dims[axes - 2];
      kernel.k = a.axes.back().size;
      kernel.m = item.dims[axes - 1];
    } else {
      kernel.r = b.count();
      kernel.m = item.dims[1];
      kernel.k = kernel.kind == KernelKind::kTake ? a.axes[0].size : item.dims[0];
    }
    kernel.tape.outputs.push_back({0, buffer(i)});
    out_.kernels.push_back(std::move(kernel));
  }

  // A leaf's new value is made in its place where nobody reads the old one later, or else copied.
  void place_updates() {
    for (size_t i = 0; i < items_.all.size(); ++i) {
      if (items_.all[i].updates < 0) continue;
      const int made = buffer(static_cast<int>(i)), leaf = buffer(items_.all[i].updates);
      out_.written.push_back(leaf);
      bool in_place = true, made_yet = false;
      for (const Kernel& kernel : out_.kernels) {
        const bool makes = std::ranges::any_of(
            kernel.tape.outputs, [&](const TapeOutput& output) { return output.slot == made; });
        in_place = in_place && !(makes && kernel.kind != KernelKind::kRows);
        kernel.each_operand([&](const Operand& operand) {
          if (operand.from != Operand::From::kBuffer || operand.buffer != leaf) return;
          if (made_yet || (makes && !operand.access.flat())) in_place = false;
        });
        made_yet = made_yet || makes;
      }
      if (!in_place) {
        out_.copies.emplace_back(made, leaf);
        continue;
      }
      replace(made, leaf);
    }
  }
  void replace(int made, int leaf) {
    const auto change = [&](int& buffer) { buffer = buffer == made ? leaf : buffer; };
    for (Kernel& kernel : out_.kernels) {
      for (TapeOutput& output : kernel.tape.outputs) change(output.slot);
      for (TapeValue& value : kernel.tape.values) change(value.load.buffer);
      change(kernel.a.buffer);
      change(kernel.b.buffer);
    }
    for (Schedule::Output& output : out_.outputs) change(output.buffer);
    for (auto& copy : out_.copies) change(copy.first);
  }

  Items& items_;
  const Clusters& clusters_;
  Schedule out_;
  std::vector<int> buffer_of_;
  std::unordered_map<int, int> value_of_;
};

}  // namespace

Schedule schedule(const Graph& graph, bool fuse) {
  Items items = make_items(graph);
  const Clusters clusters(items, fuse);
  return Emitter(items, clusters).emit();
}

namespace {

std::string line_of(const Schedule& schedule, const Operand& operand) {
  if (operand.from == Operand::From::kNumber && !operand.access.bounded())
    return cat(operand.number);
  std::string base = operand.from == Operand::From::kIota     ? "iota"
                     : operand.from == Operand::From::kNumber ? cat(operand.number)
                     : schedule.buffers[static_cast<size_t>(operand.buffer)].leaf()
                         ? schedule.buffers[static_cast<size_t>(operand.buffer)].name
                         : cat("%", operand.buffer);
  if (operand.access.flat()) return base;
  std::string axes;
  for (const Axis& axis : operand.access.axes) {
    axes += cat(axes.empty() ? "" : ", ", axis.size, "x", axis.stride);
    if (!axis.whole()) axes += cat(" in ", axis.from, "..", axis.to);
  }
  return cat(base, "[", axes, operand.access.offset != 0 ? cat(" + ", operand.access.offset) : "",
             "]");
}

}  // namespace

std::string text_of(const Schedule& schedule) {
  static constexpr std::string_view kKinds[] = {"rows", "columns", "product", "take",
                                                "put",  "scan",    "order"};
  std::string text;
  for (const Kernel& kernel : schedule.kernels) {
    text += kKinds[static_cast<size_t>(kernel.kind)];
    if (kernel.kind == KernelKind::kRows) {
      text += cat(" [", kernel.rows, ", ", kernel.inner, "]");
    } else if (kernel.kind == KernelKind::kColumns) {
      text += cat(" [", kernel.rows, ", ", kernel.lanes, "] ", op_info(kernel.reduce).name);
    } else if (kernel.kind == KernelKind::kScan || kernel.kind == KernelKind::kOrder) {
      text += cat(" [", kernel.rows, ", ", kernel.inner, "] ", line_of(schedule, kernel.a));
    } else {
      text += cat(" ", kernel.batch, " x [", kernel.r, ", ", kernel.k, ", ", kernel.m, "] ",
                  line_of(schedule, kernel.a), " ", line_of(schedule, kernel.b));
    }
    for (size_t i = 0; i < kernel.tape.values.size(); ++i) {
      const TapeValue& value = kernel.tape.values[i];
      if (value.loads()) {
        text += cat("; ", i, " = ", line_of(schedule, value.load));
        continue;
      }
      text += cat("; ", i, " = ", value.op == Op::k_detach ? "copy" : op_info(value.op).name);
      for (const int in : {value.c, value.x, value.z}) {
        if (in >= 0) text += cat(" ", in);
      }
    }
    for (const auto& output : kernel.tape.outputs) {
      const BufferSpec& buffer = schedule.buffers[static_cast<size_t>(output.slot)];
      text += cat(" -> ", buffer.leaf() ? buffer.name : cat("%", output.slot));
    }
    text += "\n";
  }
  return text;
}

}  // namespace split::array
