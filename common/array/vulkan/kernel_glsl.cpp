#include "array/vulkan/kernel_glsl.h"

#include <algorithm>

#include "array/vulkan/shader_text.h"
#include "base/error.h"

namespace split::array {
namespace {

constexpr int64_t kMostGroups = 8192;  // most groups of a dispatch; each goes on behind
constexpr int64_t kShareOfLane = 4;    // elements of a row that a lane has at least
constexpr int64_t kColumnLanes = 32;   // columns that are read side by side
constexpr int64_t kTileDepth = 16;     // depth of a product's tile
constexpr int64_t kTileShare = 4;      // rows and columns of a tile that a lane has

int64_t shares_of(int64_t count, int64_t each) { return (count + each - 1) / each; }

// Whether a workgroup has whole rows, in place of any elements.
bool by_rows(const Kernel& kernel) {
  if (kernel.kind != KernelKind::kRows || kernel.inner == 1) return false;
  // A row's own number may be written in place only behind all who read it.
  return std::ranges::any_of(kernel.tape.values, &TapeOp::reduces) ||
         std::ranges::any_of(kernel.tape.outputs, [&](const TapeOutput& output) {
           return !kernel.tape.of(output).full;
         });
}

class Writer : private ShaderText {
 public:
  Writer(const Kernel& kernel, const Bindings& bindings, const Lanes& lanes)
      : ShaderText(kernel, bindings), bindings_(bindings), group_(lanes.group), side_(lanes.side) {}

  Dispatch elements() {
    const bool flat = kernel_.inner == 1;
    const int64_t count = kernel_.rows * kernel_.inner;
    body_ = each("e", count);
    if (!flat) body_ += cat("    const int row = e / ", number(kernel_.inner), ";\n");
    row_ = flat ? "e" : "row";
    std::vector<int> wanted;
    for (const auto& output : kernel_.tape.outputs) wanted.push_back(output.value);
    body_ += statements(std::vector<bool>(kernel_.tape.values.size()), wanted, row_);
    for (const auto& output : kernel_.tape.outputs) body_ += store(output, "e");
    body_ += "  }\n";
    return dispatch_of({groups_for(shares_of(count, group_)), 1, 1}, count);
  }

  // Rows, each by lanes of one workgroup.
  Dispatch rows() {
    int64_t lanes = 1;
    while (lanes < group_ && lanes * kShareOfLane < kernel_.inner) lanes *= 2;
    const std::string rows = number(kernel_.rows);
    row_ = "row";
    lanes_ = number(lanes);
    body_ = cat("  const int lane = int(gl_LocalInvocationIndex) % ", lanes_, ";\n");
    body_ +=
        cat("  for (int first = int(gl_WorkGroupID.x) * (", group_, " / ", lanes_, "); first < ",
            rows, "; first += int(gl_NumWorkGroups.x) * (", group_, " / ", lanes_, ")) {\n");
    body_ += cat("    const int mine = first + int(gl_LocalInvocationIndex) / ", lanes_,
                 ", row = min(mine, ", rows, " - 1), begin = row * ", number(kernel_.inner), ";\n");
    std::vector<bool> made(kernel_.tape.values.size());
    for (size_t i = 0; i < kernel_.tape.values.size(); ++i) {
      const TapeValue& value = kernel_.tape.values[i];
      if (!value.reduces() && value.full) continue;
      if (value.reduces()) {
        reduce(i, made);
      } else {
        body_ += line(i, row_);
      }
      made[i] = true;
    }
    write_rows(made);
    body_ += "    barrier();\n  }\n";
    return dispatch_of({groups_for(shares_of(kernel_.rows * lanes, group_)), 1, 1},
                       kernel_.rows * kernel_.inner);
  }

  Dispatch columns() {
    const int64_t lanes = std::min<int64_t>(kColumnLanes, group_), shares = group_ / lanes;
    row_ = "e";
    body_ = cat("  const int lane = int(gl_LocalInvocationIndex) % ", lanes,
                ", share = int(gl_LocalInvocationIndex) / ", lanes, ";\n");
    body_ += cat("  for (int first = int(gl_WorkGroupID.x) * ", lanes, "; first < ",
                 number(kernel_.lanes), "; first += int(gl_NumWorkGroups.x) * ", lanes, ") {\n");
    body_ += cat("    const int column = min(first + lane, ", number(kernel_.lanes), " - 1);\n");
    const std::string join = function_of(kernel_.reduce, kernel_.dtype),
                      part = part_of(kernel_.dtype);
    body_ += cat("    ", type_of(kernel_.dtype), " sum = ", start_of(kernel_.reduce, kernel_.dtype),
                 ";\n    for (int m = share; m < ", number(kernel_.rows), "; m += ", shares,
                 ") {\n      const int e = m * ", number(kernel_.lanes), " + column;\n");
    const int last = static_cast<int>(kernel_.tape.values.size()) - 1;
    body_ += statements(std::vector<bool>(kernel_.tape.values.size()), {last}, row_);
    body_ += cat("      sum = ", join, "(sum, t", last, ");\n    }\n");
    body_ += tree("sum", join, part, "share", cat(shares), cat(" * ", lanes));
    const std::string at = place(kernel_.out(), "column");
    body_ += cat("    if (share == 0 && first + lane < ", number(kernel_.lanes), ") ",
                 put(kernel_.out(), at, cat(part, "[lane]")), "    barrier();\n  }\n");
    return dispatch_of({groups_for(shares_of(kernel_.lanes, lanes)), 1, 1},
                       kernel_.rows * kernel_.lanes);
  }

  // y [batch, R, M] in tiles, each of which a workgroup sums in the order of K.
  Dispatch product() {
    const int64_t tile = side_ * kTileShare;
    group_ = side_ * side_;
    const auto strides = [](const Operand& operand) {
      const auto& axes = operand.access.axes;
      return std::pair(axes[axes.size() - 2].stride, axes.back().stride);
    };
    const auto [a_row, a_k] = strides(kernel_.a);
    const auto [b_k, b_column] = strides(kernel_.b);
    // A driver for a processor takes its time over what is unrolled.
    const char* const unroll = side_ < 16 ? "[[dont_unroll]]" : "[[unroll]]";
    const std::string r = number(kernel_.r), k = number(kernel_.k), m = number(kernel_.m);
    declare(cat("const int TILE = ", tile, ", DEPTH = ", kTileDepth, ", SIDE = ", side_,
                ", SHARE = ", kTileShare, ";\n",
                "shared float a_tile[DEPTH * (TILE + 1)], b_tile[DEPTH * (TILE + 1)];\n"));
    body_ =
        cat("  const int lid = int(gl_LocalInvocationIndex), x = lid % SIDE, y = lid / SIDE;\n"
            "  const int r0 = int(gl_WorkGroupID.y) * TILE, m0 = int(gl_WorkGroupID.x) * TILE;\n"
            "  for (int one = int(gl_WorkGroupID.z); one < ",
            number(kernel_.batch), "; one += int(gl_NumWorkGroups.z)) {\n",
            "    const int from_a = ", matrix(kernel_.a), ", from_b = ", matrix(kernel_.b), ";\n",
            "    float sum[SHARE * SHARE];\n"
            "    for (int i = 0; i < SHARE * SHARE; ++i) sum[i] = 0.0;\n"
            "    for (int k0 = 0; k0 < ",
            k, "; k0 += DEPTH) {\n");
    body_ += fill("a_tile", kernel_.a, "from_a", "r0", r, k, a_row, a_k);
    body_ += fill("b_tile", kernel_.b, "from_b", "m0", m, k, b_column, b_k);
    body_ += cat(
        "      barrier();\n"
        "      ",
        unroll,
        " for (int d = 0; d < DEPTH; ++d) {\n"
        "        float b[SHARE];\n"
        "        [[unroll]] for (int j = 0; j < SHARE; ++j) b[j] = b_tile[d * (TILE + 1) + x + "
        "j * SIDE];\n"
        "        [[unroll]] for (int i = 0; i < SHARE; ++i) {\n"
        "          const float a = a_tile[d * (TILE + 1) + y + i * SIDE];\n"
        "          [[unroll]] for (int j = 0; j < SHARE; ++j)\n"
        "            sum[i * SHARE + j] = fma(a, b[j], sum[i * SHARE + j]);\n"
        "        }\n"
        "      }\n"
        "      barrier();\n"
        "    }\n"
        "    [[unroll]] for (int i = 0; i < SHARE; ++i) [[unroll]] for (int j = 0; j < SHARE; "
        "++j) {\n"
        "      const int row = r0 + y + i * SIDE, column = m0 + x + j * SIDE;\n"
        "      if (row < ",
        r, " && column < ", m, ") ",
        put(kernel_.out(), place(kernel_.out(), cat("(one * ", r, " + row) * ", m, " + column")),
            "sum[i * SHARE + j]"),
        "    }\n  }\n");
    Dispatch made = dispatch_of({static_cast<uint32_t>(shares_of(kernel_.m, tile)),
                                 static_cast<uint32_t>(shares_of(kernel_.r, tile)),
                                 static_cast<uint32_t>(std::min<int64_t>(kernel_.batch, 65535))},
                                0);
    made.products = static_cast<uint64_t>(kernel_.batch * kernel_.r * kernel_.k * kernel_.m);
    return made;
  }

  // Rows of a table by an index, or added to one: an element of the result is one lane's, so that
  // sums have the index's order.
  Dispatch indexed() {
    const bool takes = kernel_.kind == KernelKind::kTake;
    const int64_t count = (takes ? kernel_.r : kernel_.k) * kernel_.m;
    const std::string m = number(kernel_.m), k = number(kernel_.k), r = number(kernel_.r);
    const std::string index = declare_load("index", kernel_.b), type = type_of(kernel_.dtype);
    const std::string index_type = type_of(kernel_.b.dtype);
    const std::string start = takes ? cat(type, "(0)") : start_of(kernel_.reduce, kernel_.dtype);
    body_ = cat(each("e", count), "    const int row = e / ", m, ", column = e % ", m, ";\n    ",
                type, " y = ", start, ";\n");
    const std::string checked =
        cat(index_type, " at = ", index, "(r);\n      if (!(at >= ", index_type, "(0) && at < ",
            index_type, "(", k, "))) {\n        ", put(kFault, place(kFault, "0"), "1"), "        ",
            put(kFault, place(kFault, "1"), "int(at)"), "        continue;\n      }\n");
    const auto row_of = [&](const char* row) {
      return get(kernel_.a.buffer,
                 place(kernel_.a.buffer, cat(row, " * ", m, " + column"), kernel_.a.access.offset));
    };
    if (takes) {
      body_ += cat("    { const int r = row;\n      const ", checked,
                   "      y = ", row_of("int(at)"), ";\n    }\n");
    } else {
      body_ += cat("    for (int r = 0; r < ", r, "; ++r) {\n      const ", checked,
                   "      if (int(at) == row) y = ", function_of(kernel_.reduce, kernel_.dtype),
                   "(y, ", row_of("r"), ");\n    }\n");
    }
    const int to = kernel_.out();
    body_ += cat("    ", put(to, place(to, "e"), "y"), "  }\n");
    return dispatch_of({groups_for(shares_of(count, group_)), 1, 1},
                       takes ? count : count * kernel_.r);
  }

  // A row's elements one after another, by one lane.
  Dispatch scan() {
    const std::string inner = number(kernel_.inner), type = type_of(kernel_.dtype);
    const int to = kernel_.out();
    body_ = cat(each("row", kernel_.rows), "    ", type,
                " acc = ", start_of(kernel_.reduce, kernel_.dtype), ";\n    for (int e = row * ",
                inner, "; e < (row + 1) * ", inner,
                "; ++e) {\n      acc = ", function_of(kernel_.reduce, kernel_.dtype), "(acc, ",
                element("e"), ");\n      ", put(to, place(to, "e"), "acc"), "    }\n  }\n");
    return dispatch_of({groups_for(shares_of(kernel_.rows, group_)), 1, 1},
                       kernel_.rows * kernel_.inner);
  }

  // Each element goes to the place that as many others of its row stand before.
  Dispatch order() {
    const int64_t count = kernel_.rows * kernel_.inner;
    const std::string inner = number(kernel_.inner), type = type_of(kernel_.dtype);
    const int to = kernel_.out();
    const bool floats = type == "float";
    const std::string own = kernel_.descending ? "y" : "x", other = kernel_.descending ? "x" : "y";
    const auto less = [&](const std::string& a, const std::string& b) {
      return floats ? cat("(", b, " != ", b, " ? ", a, " == ", a, " : ", a, " < ", b, ")")
                    : cat("(", a, " < ", b, ")");
    };
    body_ = cat(
        each("e", count), "    const int begin = e / ", inner, " * ", inner, ";\n    const ", type,
        " x = ", element("e"), ";\n    int rank = 0;\n    for (int k = begin; k < begin + ", inner,
        "; ++k) {\n      const ", type, " y = ", element("k"), ";\n      if (", less(other, own),
        " || (!", less(own, other), " && k < e)) ++rank;\n    }\n    ",
        put(to, place(to, "begin + rank"), cat(type_of(DType::kI64), "(e - begin)")), "  }\n");
    return dispatch_of({groups_for(shares_of(count, group_)), 1, 1}, count * kernel_.inner);
  }

 private:
  // Element `at` of the one operand, which lies in order.
  std::string element(const char* at) {
    return get(kernel_.a.buffer, place(kernel_.a.buffer, at, kernel_.a.access.offset));
  }
  static uint32_t groups_for(int64_t groups) {
    return static_cast<uint32_t>(std::clamp<int64_t>(groups, 1, kMostGroups));
  }

  // Begins a loop in which each lane has some of `count`.
  std::string each(const char* name, int64_t count) {
    return cat("  for (int ", name, " = int(gl_GlobalInvocationID.x); ", name, " < ", number(count),
               "; ", name, " += int(gl_NumWorkGroups.x) * ", group_, ") {\n");
  }

  // Joins the sums of `count` lanes, where `lane` is their number among these, into the first's.
  static std::string tree(const std::string& sum, const std::string& join, const std::string& part,
                          const char* lane, const std::string& count, const std::string& apart) {
    return cat("    ", part, "[gl_LocalInvocationIndex] = ", sum, ";\n    barrier();\n",
               "    for (int step = ", count, " / 2; step > 0; step /= 2) {\n      if (", lane,
               " < step) ", part, "[gl_LocalInvocationIndex] = ", join, "(", part,
               "[gl_LocalInvocationIndex], ", part, "[gl_LocalInvocationIndex + step", apart,
               "]);\n      barrier();\n    }\n");
  }

  std::string each_element(const std::string& inside) {
    return cat("    for (int k = lane; k < ", number(kernel_.inner), "; k += ", lanes_,
               ") {\n      const int e = begin + k;\n", inside, "    }\n");
  }

  void reduce(size_t i, const std::vector<bool>& made) {
    const TapeValue& value = kernel_.tape.values[i];
    const std::string join = function_of(value.op, value.dtype), part = part_of(value.dtype);
    const std::string type = type_of(value.dtype);
    body_ += cat("    ", type, " sum", i, " = ", start_of(value.op, value.dtype), ";\n");
    body_ += each_element(statements(made, {value.x}, row_) +
                          cat("      sum", i, " = ", join, "(sum", i, ", t", value.x, ");\n"));
    body_ += cat(tree(cat("sum", i), join, part, "lane", lanes_, ""), "    const ", type, " t", i,
                 " = ", part, "[int(gl_LocalInvocationIndex) - lane];\n    barrier();\n");
  }

  void write_rows(const std::vector<bool>& made) {
    std::vector<int> wanted;
    std::string full, own;
    for (const auto& output : kernel_.tape.outputs) {
      const bool is_full = kernel_.tape.of(output).full;
      if (is_full) wanted.push_back(output.value);
      (is_full ? full : own) += store(output, is_full ? "e" : "row");
    }
    if (!own.empty()) body_ += "    barrier();\n";  // all have read what is written in its place
    if (!full.empty()) {
      body_ += cat("    if (mine == row) {\n", each_element(statements(made, wanted, row_) + full),
                   "    }\n");
    }
    if (!own.empty()) body_ += cat("    if (lane == 0 && mine == row) {\n", own, "    }\n");
  }

  // Where matrix `one` of a batch begins.
  std::string matrix(const Operand& operand) {
    const auto& axes = operand.access.axes;
    std::string at = number(bindings_.of(operand.buffer).offset + operand.access.offset);
    int64_t behind = 1;
    for (size_t i = axes.size() - 2; i-- > 0; behind *= axes[i].size) {
      if (axes[i].stride == 0 || axes[i].size == 1) continue;
      at += cat(" + one / ", number(behind), " % ", number(axes[i].size), " * ",
                number(axes[i].stride));
    }
    return at;
  }

  // Brings a tile of [size, K] to where lanes read it: neighbours of memory side by side.
  std::string fill(const char* tile, const Operand& operand, const char* base, const char* first,
                   const std::string& size, const std::string& k, int64_t stride,
                   int64_t k_stride) {
    const bool k_first = k_stride == 1;
    return cat("      [[dont_unroll]] for (int i = 0; i < TILE * DEPTH; i += SIDE * SIDE) {\n",
               "        const int d = ", k_first ? "(i + lid) % DEPTH" : "(i + lid) / TILE",
               ", n = ", k_first ? "(i + lid) / DEPTH" : "(i + lid) % TILE", ";\n",
               "        float x = 0.0;\n        if (", first, " + n < ", size, " && k0 + d < ", k,
               ") x = ",
               get(operand.buffer, cat(base, " + (", first, " + n) * ", number(stride),
                                       " + (k0 + d) * ", number(k_stride))),
               ";\n        ", tile, "[d * (TILE + 1) + n] = x;\n      }\n");
  }

  Dispatch dispatch_of(std::array<uint32_t, 3> groups, int64_t elements) {
    Dispatch dispatch = finish(group_, body_);
    dispatch.groups = groups;
    dispatch.elements = static_cast<uint64_t>(elements);
    return dispatch;
  }

  const Bindings& bindings_;
  int64_t group_, side_;
  std::string body_, row_, lanes_;
};

}  // namespace

std::optional<Dispatch> dispatch_for(const Kernel& kernel, const Bindings& bindings,
                                     const Lanes& lanes) {
  Writer writer(kernel, bindings, lanes);
  if (kernel.kind == KernelKind::kRows) {
    if (kernel.rows == 0 || (kernel.inner == 0 && !by_rows(kernel))) return {};
    return by_rows(kernel) ? writer.rows() : writer.elements();
  }
  if (kernel.kind == KernelKind::kColumns) {
    if (kernel.lanes > 0) return writer.columns();
  } else if (kernel.kind == KernelKind::kProduct) {
    if (kernel.batch * kernel.r * kernel.m > 0) return writer.product();
  } else if (kernel.kind == KernelKind::kScan || kernel.kind == KernelKind::kOrder) {
    if (kernel.rows * kernel.inner > 0) {
      return kernel.kind == KernelKind::kScan ? writer.scan() : writer.order();
    }
  } else if ((kernel.kind == KernelKind::kTake ? kernel.r : kernel.k) * kernel.m > 0) {
    return writer.indexed();
  }
  return {};
}

}  // namespace split::array
