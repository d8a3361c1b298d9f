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
constexpr double kFrom = -4, kTo = 4;

// A home that no plot asks: its inputs have no values outside of it.
class NoHome final : public Home {
 public:
  OwnedTensor values(const Tensor&) override { throw Error(ErrorKind::kShape, "[plot] no values"); }
  Tensor leaf(const TensorView&) override { throw Error(ErrorKind::kShape, "[plot] no values"); }
};

std::string path_of(std::span<const float> values) {
  std::string text;
  bool drawn = false;
  for (size_t i = 0; i < values.size(); ++i) {
    const bool shown = std::abs(values[i]) <= kTo;
    if (shown) {
      char point[48];
      std::snprintf(point, sizeof point, "%s%.1f %.1f", drawn ? "L" : "M",
                    kPlotWidth * static_cast<double>(i) / static_cast<double>(values.size() - 1),
                    kPlotHeight / 2.0 * (1 - values[i] / kTo));
      text += point;
    }
    drawn = shown;
  }
  return text;
}

}  // namespace

std::map<std::string, About> operations_of(const Json& index) {
  std::map<std::string, About> all;
  for (const Json& entry : index.at("cases")) {
    const auto [at, fresh] = all.try_emplace(entry.at("op").text());
    About& of = at->second;
    if (fresh) of.expression = entry.at("expr").text(), of.place = all.size();
    ++of.cases;
    of.types.insert(entry.at("dtype").text());
    if (entry.at("grads").size() > 0) ++of.gradients;
  }
  return all;
}

Plot plot_of(const Json& entry, array::Runtime& runtime) {
  const std::string& name = entry.at("name").text();
  if (!name.starts_with("unary.") && !name.starts_with("activation.")) return {};
  if (entry.at("inputs").size() != 1 || entry.at("dtype").text() != "F32") return {};
  try {
    NoHome home;
    array::Store store;
    const Tensor x = iota(kPoints) * static_cast<float>((kTo - kFrom) / (kPoints - 1)) +
                     static_cast<float>(kFrom);
    const std::map<std::string, Tensor> inputs{{"x", x}};
    const Results results = evaluate({entry, inputs, home});
    if (results.size() != 1 || results[0].dims() != x.dims()) return {};
    const Tensor y = cast(results[0], DType::kF32);
    const Tensor dx = autograd::grad(std::vector{y}, std::vector{x})[0];
    array::Plan plan(runtime, {{{"y", y}, {"dx", dx}}, {}}, store);
    plan.run();
    return {path_of(plan.output("y")), path_of(plan.output("dx"))};
  } catch (const Error&) {
    return {};
  }
}

Code code_of(const std::string& operation, const About& about, const std::string& list) {
  for (size_t i = 0; i < static_cast<size_t>(Op::k_constant); ++i) {
    const auto op = static_cast<Op>(i);
    const OpInfo& info = op_info(op);
    const std::string_view body = info.forward.empty() ? whole_info(op).forward : info.forward;
    if (info.name != operation || body.empty()) continue;
    return {std::string(body),
            cat(info.gradient_x, info.gradient_z.empty() ? "" : "; ", info.gradient_z)};
  }
  const size_t at = list.find(cat("{\"", operation, "\","));
  if (at == list.npos) return {"# PyTorch\n" + about.expression, ""};
  return {list.substr(at, list.find("\n{\"", at) - at), ""};
}

std::string reference_page(Goldens& goldens, const std::string& list) {
  array::Runtime runtime(1u);
  const Json index = goldens.json("index.json");
  std::map<std::string, Plot> plots;
  for (const Json& entry : index.at("cases")) {
    Plot& plot = plots[entry.at("op").text()];
    if (plot.forward.empty()) plot = plot_of(entry, runtime);
  }
  const auto code = [](const std::string& text) { return cat("<code>", escaped(text), "</code>"); };
  const auto line = [](const char* colour, const std::string& path) {
    return cat("<path fill=none stroke=", colour, " d=\"", path, "\"/>");
  };
  const auto all = operations_of(index);
  std::string rows;
  for (const auto& [name, of] : all) {
    std::string types;
    for (const std::string& type : of.types) types += (types.empty() ? "" : " ") + type;
    const Code text = code_of(name, of, list);
    const Plot& plot = plots[name];
    rows += cat("<tr><th scope=row>", escaped(name), "<td>");
    if (!plot.forward.empty()) {
      rows += cat("<svg viewBox=\"0 0 ", kPlotWidth, " ", kPlotHeight, "\" width=", kPlotWidth,
                  " height=", kPlotHeight, ">",
                  line("#ccc", cat("M0 ", kPlotHeight / 2, "H", kPlotWidth, "M", kPlotWidth / 2,
                                   " 0V", kPlotHeight)),
                  line("#c60", plot.gradient), line("#06c", plot.forward), "</svg>");
    }
    rows += cat("<td>", code(text.forward));
    if (!text.gradient.empty()) rows += "<br>gradient " + code(text.gradient);
    rows += cat("<td>", types, "<td>", of.cases, "<td>", of.gradients, "\n");
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
