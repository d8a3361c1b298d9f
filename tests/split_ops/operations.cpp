#include "tests/split_ops/operations.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "autograd/imaging.h"
#include "autograd/indexing.h"
#include "autograd/layers.h"
#include "autograd/pointwise.h"
#include "autograd/reductions.h"
#include "base/error.h"
#include "tests/split_ops/programs.h"

namespace split::ops {

const Tensor* Call::find(const char* name) const {
  const auto at = inputs.find(name);
  return at == inputs.end() ? nullptr : &at->second;
}
const Tensor& Call::operator[](const char* name) const {
  if (const Tensor* const tensor = find(name); tensor != nullptr) return *tensor;
  throw Error(ErrorKind::kInput, cat("[goldens] no input '", name, "'"));
}
const Json* Call::arg(const char* name) const { return json.at("args").find(name); }
double Call::number(const char* name, double otherwise) const {
  const Json* const value = arg(name);
  if (value == nullptr || value->is_null()) return otherwise;
  if (!value->is_string()) return value->get<double>();
  const double infinity = std::numeric_limits<double>::infinity();
  return value->text() == "inf" ? infinity : value->text() == "-inf" ? -infinity : std::nan("");
}
bool Call::truth(const char* name, bool otherwise) const {
  const Json* const value = arg(name);
  return value == nullptr ? otherwise : value->get<bool>();
}
std::string Call::word(const char* name, const char* otherwise) const {
  const Json* const value = arg(name);
  return value == nullptr ? otherwise : value->text();
}
Tensor Call::truth_leaf() const {
  constexpr std::byte kTrue{1};
  return home.leaf({DType::kBool, {}, {&kTrue, 1}});
}
Dims Call::list(const char* name) const {
  const Json* const value = arg(name);
  if (value == nullptr || value->is_null()) return {};
  if (!value->is_array()) return {value->get<int64_t>()};
  Dims dims;
  for (const Json& one : *value) dims.push_back(one.get<int64_t>());
  return dims;
}

namespace {

int64_t dim(const Call& call, const char* name = "dim") {
  return static_cast<int64_t>(call.number(name));
}
float real(const Call& call, const char* name, double otherwise = 0) {
  return static_cast<float>(call.number(name, otherwise));
}

// A number with its kind: true or false, whole, real.
Tensor number_of(const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return value.get<int64_t>();
  return value.get<float>();
}
Results both(const Found& found) { return {found.values, found.indices}; }

// Reductions over `dim`, or all.
Function reduction(Tensor (*function)(const Tensor&, const Axes&, bool)) {
  return [function](const Call& call) -> Results {
    return {function(call["x"], call.list("dim"), call.truth("keepdim"))};
  };
}
Function unary(Tensor (*function)(const Tensor&)) {
  return [function](const Call& call) -> Results { return {function(call["x"])}; };
}
// Joins x and z, one of which the expression may have as a number.
Function binary(Tensor (*function)(const Tensor&, const Tensor&)) {
  return [function](const Call& call) -> Results {
    if (const Tensor* const z = call.find("z"); z != nullptr) {
      if (call.arg("rounding_mode") != nullptr) {
        return {divide(call["x"], *z, call.word("rounding_mode"))};
      }
      return {function(call["x"], *z)};
    }
    if (call.arg("other") != nullptr) return {function(call["x"], number_of(*call.arg("other")))};
    const std::string& text = call.json.at("expr").text();
    if (text.starts_with("x ")) return {function(call["x"], std::stof(text.substr(4)))};
    return {function(std::stof(text), call["x"])};
  };
}
// Calls the plain function, or that of x and z times alpha where alpha is given.
Function with_alpha(Function plain, Tensor (*function)(const Tensor&, const Tensor&, float)) {
  return [plain = std::move(plain), function](const Call& call) -> Results {
    if (call.arg("alpha") == nullptr) return plain(call);
    return {function(call["x"], call["z"], real(call, "alpha"))};
  };
}
Targets targets(const Call& call) {
  const std::string how = call.word("reduction", "mean");
  return {call.find("w"), static_cast<int64_t>(call.number("ignore_index", -100)),
          real(call, "label_smoothing"),
          how == "none"  ? Reduction::kNone
          : how == "sum" ? Reduction::kSum
                         : Reduction::kMean};
}
Reduction how(const Call& call) {
  const std::string word = call.word("reduction", "mean");
  return word == "none"        ? Reduction::kNone
         : word == "sum"       ? Reduction::kSum
         : word == "batchmean" ? Reduction::kBatchMean
                               : Reduction::kMean;
}
Dims list_or(const Call& call, const char* name, int64_t otherwise) {
  const Json* const value = call.arg(name);
  return value == nullptr || value->is_string() ? Dims{otherwise} : call.list(name);
}
Convolution convolution(const Call& call) {
  const Json* const padding = call.arg("padding");
  return {list_or(call, "stride", 1),
          list_or(call, "padding", 0),
          list_or(call, "dilation", 1),
          static_cast<int64_t>(call.number("groups", 1)),
          list_or(call, "output_padding", 0),
          padding != nullptr && padding->is_string() && padding->text() == "same"};
}
Pooling pooling(const Call& call) {
  Pooling by{call.list("kernel_size"),
             call.list("stride"),
             list_or(call, "padding", 0),
             list_or(call, "dilation", 1),
             call.truth("ceil_mode"),
             call.truth("count_include_pad", true),
             {}};
  if (call.arg("divisor_override") != nullptr) by.divisor = real(call, "divisor_override");
  return by;
}
Results interpolated(const Call& call) {
  const Tensor& x = call["x"];
  const size_t axes = x.dims().size() - 2;
  std::string mode = call.word("mode");
  if (mode == "bilinear" || mode == "trilinear") mode = "linear";
  Dims sizes = call.list("size");
  if (sizes.size() == 1) sizes = Dims(axes, sizes[0]);
  std::vector<double> scales;
  if (sizes.empty()) {
    scales.assign(axes, call.number("scale_factor"));
    for (size_t i = 0; i < axes; ++i) {
      sizes.push_back(static_cast<int64_t>(static_cast<double>(x.dims()[i + 2]) * scales[i]));
    }
  }
  return {
      interpolate(x, sizes, {mode, call.truth("align_corners"), call.truth("antialias"), scales})};
}
Results arange(const Call& call) {
  const bool real_type = call.json.at("expr").text().find("float32") != std::string::npos;
  const double start = call.number("start"), end = call.number("end"),
               step = call.number("step", 1);
  const auto n = static_cast<int64_t>(std::ceil((end - start) / step));
  if (real_type) return {iota(n) * static_cast<float>(step) + static_cast<float>(start)};
  return {iota(n, DType::kI64) * static_cast<int64_t>(step) + static_cast<int64_t>(start)};
}

Results triangle(const Call& call, bool lower) {
  const Tensor& x = call["x"];
  const int64_t rows = x.dims()[x.dims().size() - 2], columns = x.dims().back();
  const auto diagonal = static_cast<int64_t>(call.number("diagonal"));
  const Tensor below = lower_triangle(rows, columns, lower ? diagonal : diagonal - 1);
  return {lower ? select(below, x, 0.0f) : select(below, 0.0f, x)};
}

Results pads(const Call& call) {
  const Tensor& x = call["x"];
  const Dims around = call.list("pad");
  if (call.word("mode") != "constant") return {pad_with(x, around, call.word("mode"))};
  Dims before(x.dims().size(), 0), behind = before;
  for (size_t i = 0; i + 1 < around.size(); i += 2) {
    before[before.size() - 1 - i / 2] = around[i];
    behind[behind.size() - 1 - i / 2] = around[i + 1];
  }
  return {pad(x, before, behind, real(call, "value"))};
}

Results slices(const Call& call) {
  constexpr int64_t kEnd = std::numeric_limits<int64_t>::max() / 2;
  const auto at = [&](const char* name, int64_t otherwise) {
    return static_cast<int64_t>(call.number(name, static_cast<double>(otherwise)));
  };
  return {slice(call["x"], dim(call), at("start", 0), at("end", kEnd), at("step", 1))};
}

Indices indices(const Call& call) {
  Indices all;
  for (const Json& one : *call.arg("index")) {
    if (one.is_null()) {
      all.emplace_back(kNewAxis);
    } else if (one.is_string()) {
      all.emplace_back(kEllipsis);
    } else if (one.is_number()) {
      all.emplace_back(one.get<int64_t>());
    } else if (const Json* const range = one.find("slice"); range != nullptr) {
      const auto bound = [&](size_t i) {
        return (*range)[i].is_null() ? std::optional<int64_t>() : (*range)[i].get<int64_t>();
      };
      all.emplace_back(Slice{bound(0), bound(1), bound(2).value_or(1)});
    } else {
      all.emplace_back(call[one.at("tensor").text().c_str()]);
    }
  }
  return all;
}

// --- Products

Tensor times(const Tensor& x, const Tensor& z) {
  const size_t a = x.dims().size(), b = z.dims().size();
  Tensor result = matmul(a == 1 ? unsqueeze(x, 0) : x, b == 1 ? unsqueeze(z, 1) : z);
  if (b == 1) result = squeeze(result, -1);
  if (a == 1) result = squeeze(result, b == 1 ? -1 : -2);
  return result;
}

Results attention(const Call& call) {
  const Tensor& q = call["q"];
  const auto size = static_cast<float>(q.dims().back());
  const float scale = real(call, "scale", 1 / std::sqrt(size));
  std::optional<Tensor> seen;
  if (call.truth("is_causal")) {
    seen = lower_triangle(q.dims()[q.dims().size() - 2], call["k"].dims()[q.dims().size() - 2], 0);
  }
  if (call.find("c") != nullptr) seen = call["c"];
  if (call.find("b") != nullptr) seen = call["b"];
  return {attend(q, call["k"], call["v"], scale, seen ? &*seen : nullptr)};
}

const std::map<std::string, Function>& functions() {
  static const std::map<std::string, Function> table = [] {
#define OP(...) [](const Call& c) -> Results { return {__VA_ARGS__}; }
    std::map<std::string, Function> made = {
#include "tests/split_ops/operations.def"
    };
#undef OP
    for (auto& [name, program] : programs()) made.emplace(name, program);
    return made;
  }();
  return table;
}

}  // namespace

Results evaluate(const Call& call) {
  const std::string& name = call.json.at("op").text();
  const auto at = functions().find(name);
  if (at == functions().end()) throw Error(ErrorKind::kNotFound, cat("no operation '", name, "'"));
  return at->second(call);
}

}  // namespace split::ops
