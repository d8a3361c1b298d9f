#include "tests/split_ops/reference.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "array/plan.h"
#include "autograd/functions.h"
#include "autograd/grad.h"
#include "base/error.h"
#include "base/file.h"
#include "tensor/op.h"
#include "tests/split_ops/operations.h"
#include "tests/split_ops/report.h"

namespace split::ops {
namespace {

constexpr int64_t kPoints = 241;
constexpr double kFrom = -4, kTo = 4, kWidth = 240, kHeight = 120;

// A home that no plot asks: its inputs have no values outside of it.
class NoHome final : public Home {
 public:
  OwnedTensor values(const Tensor&) override { throw Error(ErrorKind::kShape, "[plot] no values"); }
  Tensor leaf(const TensorView&) override { throw Error(ErrorKind::kShape, "[plot] no values"); }
};

std::string line_of(std::span<const float> values, const char* colour) {
  std::string text;
  bool drawn = false;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!(std::abs(values[i]) <= kTo)) {
      drawn = false;
      continue;
    }
    char point[48];
    std::snprintf(point, sizeof point, "%s%.1f %.1f", drawn ? "L" : "M",
                  kWidth * static_cast<double>(i) / static_cast<double>(values.size() - 1),
                  kHeight / 2 * (1 - values[i] / kTo));
    text += point;
    drawn = true;
  }
  return cat("<path fill=none stroke=", colour, " d=\"", text, "\"/>");
}

// Forward and gradient from -4 to 4; nothing where the operation is no function of one number.
std::string plot_of(const Json& entry, array::Runtime& runtime) {
  const std::string& name = entry.at("name").text();
  if (!name.starts_with("unary.") && !name.starts_with("activation.")) return "";
  if (entry.at("inputs").size() != 1 || entry.at("dtype").text() != "F32") return "";
  try {
    NoHome home;
    array::Store store;
    store.add("unused", Dims{1});
    const Tensor x = iota(kPoints) * static_cast<float>((kTo - kFrom) / (kPoints - 1)) +
                     static_cast<float>(kFrom);
    const std::map<std::string, Tensor> inputs{{"x", x}};
    const Results results = evaluate({entry, inputs, home});
    if (results.size() != 1 || results[0].dims() != x.dims()) return "";
    const Tensor y = cast(results[0], DType::kF32);
    const Tensor dx = autograd::grad(std::vector{y}, std::vector{x})[0];
    array::Plan plan(runtime, {{{"y", y}, {"dx", dx}}, {}}, store);
    plan.run();
    return cat("<svg viewBox=\"0 0 ", kWidth, " ", kHeight, "\" width=", kWidth,
               " height=", kHeight, "><path stroke=#ccc d=\"M0 ", kHeight / 2, "H", kWidth, "M",
               kWidth / 2, " 0V", kHeight, "\"/>", line_of(plan.output("dx"), "#c60"),
               line_of(plan.output("y"), "#06c"), "</svg>");
  } catch (const Error&) {
    return "";
  }
}

// The row of an op by that name, as its table has it.
std::string row_of(const std::string& name) {
  for (size_t i = 0; i < static_cast<size_t>(Op::k_constant); ++i) {
    const OpInfo& info = op_info(static_cast<Op>(i));
    if (info.name != name ||
        (info.forward.empty() && whole_info(static_cast<Op>(i)).forward.empty())) {
      continue;
    }
    const std::string_view body =
        info.forward.empty() ? whole_info(static_cast<Op>(i)).forward : info.forward;
    return cat("<code>", escaped(body), "</code><br>gradient <code>", escaped(info.gradient_x),
               info.gradient_z.empty() ? "" : "; ", escaped(info.gradient_z), "</code>");
  }
  return "";
}

// The lines of an operation in the list of them.
std::string lines_of(const std::string& list, const std::string& name) {
  const size_t at = list.find(cat("{\"", name, "\","));
  if (at == list.npos) return "";
  const size_t end = list.find("\n{\"", at);
  return cat("<code>", escaped(std::string_view(list).substr(at, end - at)), "</code>");
}

}  // namespace

std::string reference_page(Goldens& goldens, const std::string& source) {
  struct Operation {
    size_t cases = 0, gradients = 0;
    std::set<std::string> types;
    std::string plot;
  };
  std::map<std::string, Operation> all;
  array::Runtime runtime(1u);
  const Json index = goldens.json("index.json");
  for (const Json& entry : index.at("cases")) {
    Operation& of = all[entry.at("op").text()];
    ++of.cases;
    of.types.insert(entry.at("dtype").text());
    if (entry.at("grads").size() > 0) ++of.gradients;
    if (of.plot.empty()) of.plot = plot_of(entry, runtime);
  }
  const std::string list = read_file(source + "/tests/split_ops/operations.def", 1 << 20);
  std::string rows;
  for (const auto& [name, of] : all) {
    std::string types;
    for (const std::string& type : of.types) types += (types.empty() ? "" : " ") + type;
    const std::string row = row_of(name);
    rows += cat("<tr><th scope=row>", escaped(name), "<td>", of.plot, "<td>",
                row.empty() ? lines_of(list, name) : row, "<td>", types, "<td>", of.cases, "<td>",
                of.gradients, "\n");
  }
  return cat(
      "<!doctype html><html lang=en><meta charset=utf-8>"
      "<meta name=viewport content=\"width=device-width\"><title>Operations</title>"
      "<style>body{font:16px/1.4 system-ui;margin:1rem}table{border-collapse:collapse}"
      "td,th{text-align:left;vertical-align:top;padding:.3rem .6rem;border-bottom:1px solid #ddd}"
      "code{white-space:pre-wrap;overflow-wrap:anywhere;font-size:.85rem}</style>"
      "<h1>",
      all.size(), " operations of the tensor library</h1><p>Blue is the operation from -4 ",
      "to 4, orange its gradient, as this machine's CPU computes them. Cases and gradients are ",
      "those that are checked against PyTorch.<table><tr><th>operation<th>plot<th>row or lines"
      "<th>types<th>cases<th>gradients\n",
      rows, "</table></html>\n");
}

}  // namespace split::ops
