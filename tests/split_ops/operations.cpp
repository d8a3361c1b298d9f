#include "tests/split_ops/operations.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "autograd/functions.h"
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
Dims Call::list(const char* name) const {
  const Json* const value = arg(name);
  if (value == nullptr || value->is_null()) return {};
  if (!value->is_array()) return {value->get<int64_t>()};
  Dims dims;
  for (const Json& one : *value) dims.push_back(one.get<int64_t>());
  return dims;
}

namespace {

using Function = std::function<std::optional<Results>(const Call&)>;
constexpr auto kNotThere = std::nullopt;

int64_t dim(const Call& call, const char* name = "dim") {
  return static_cast<int64_t>(call.number(name));
}
float real(const Call& call, const char* name, double otherwise = 0) {
  return static_cast<float>(call.number(name, otherwise));
}

// Reductions over `dim`, or all.
Function reduction(Tensor (*function)(const Tensor&, const Axes&, bool)) {
  return [function](const Call& call) -> std::optional<Results> {
    // A NaN is nothing to the rows max and min, and logsumexp's gradient is that of its parts.
    if (call.json.at("name").text().starts_with("special.") && function != sum &&
        function != mean) {
      return kNotThere;
    }
    return Results{function(call["x"], call.list("dim"), call.truth("keepdim"))};
  };
}
Function unary(Tensor (*function)(const Tensor&)) {
  return [function](const Call& call) -> std::optional<Results> {
    return Results{function(call["x"])};
  };
}
// Joins x and z, one of which the expression may have as a number.
Function binary(Tensor (*function)(const Tensor&, const Tensor&)) {
  return [function](const Call& call) -> std::optional<Results> {
    if (const Tensor* const z = call.find("z"); z != nullptr) {
      const float alpha = real(call, "alpha", 1);
      if (call.arg("rounding_mode") != nullptr) return kNotThere;
      return Results{function(call["x"], alpha == 1 ? *z : *z * alpha)};
    }
    const std::string& text = call.json.at("expr").text();
    if (text.starts_with("torch.")) return kNotThere;
    if (text.starts_with("x ")) return Results{function(call["x"], std::stof(text.substr(4)))};
    return Results{function(std::stof(text), call["x"])};
  };
}
Function compared(Op op, bool swapped = false, bool negated = false) {
  return [=](const Call& call) -> std::optional<Results> {
    const Tensor &x = call[swapped ? "z" : "x"], &z = call[swapped ? "x" : "z"];
    const Tensor holds = compare(op, x, z);
    return Results{negated ? 1.0f - holds : holds};
  };
}

std::optional<Results> triangle(const Call& call, bool lower) {
  const Tensor& x = call["x"];
  const int64_t rows = x.dims()[x.dims().size() - 2], columns = x.dims().back();
  const auto diagonal = static_cast<int64_t>(call.number("diagonal"));
  const Tensor below = lower_triangle(rows, columns, lower ? diagonal : diagonal - 1);
  return Results{lower ? select(below, x, 0.0f) : select(below, 0.0f, x)};
}

std::optional<Results> pads(const Call& call) {
  if (call.word("mode") != "constant") return kNotThere;
  const Tensor& x = call["x"];
  const Dims around = call.list("pad");
  Dims before(x.dims().size(), 0), behind = before;
  for (size_t i = 0; i + 1 < around.size(); i += 2) {
    before[before.size() - 1 - i / 2] = around[i];
    behind[behind.size() - 1 - i / 2] = around[i + 1];
  }
  return Results{pad(x, before, behind, real(call, "value"))};
}

std::optional<Results> slices(const Call& call) {
  constexpr int64_t kEnd = std::numeric_limits<int64_t>::max() / 2;
  const auto at = [&](const char* name, int64_t otherwise) {
    return static_cast<int64_t>(call.number(name, static_cast<double>(otherwise)));
  };
  return Results{slice(call["x"], dim(call), at("start", 0), at("end", kEnd), at("step", 1))};
}

Tensor selected(const Tensor& x, int64_t axis, int64_t index) {
  const size_t at = axis_of(x.dims(), axis, "select");
  if (index < 0) index += x.dims()[at];
  return squeeze(slice(x, axis, index, index + 1), axis);
}

// Numbers, slices, new axes, "..." and one tensor of indices.
std::optional<Results> indexed(const Call& call) {
  Tensor x = call["x"];
  constexpr int64_t kEnd = std::numeric_limits<int64_t>::max() / 2;
  const Json& index = *call.arg("index");
  int64_t axis = 0;
  size_t used = 0;
  for (const Json& one : index) used += one.is_null() || one.is_string() ? 0 : 1;
  const size_t skipped = x.dims().size() - used;
  for (const Json& one : index) {
    if (one.is_null()) {
      x = unsqueeze(x, axis++);
    } else if (one.is_string()) {
      axis += static_cast<int64_t>(skipped);
    } else if (one.is_number()) {
      x = selected(x, axis, one.get<int64_t>());
    } else if (const Json* const range = one.find("slice"); range != nullptr) {
      const auto bound = [&](size_t i, int64_t otherwise) {
        return (*range)[i].is_null() ? otherwise : (*range)[i].get<int64_t>();
      };
      x = slice(x, axis++, bound(0, 0), bound(1, kEnd), bound(2, 1));
    } else {
      const Tensor& by = call[one.at("tensor").text().c_str()];
      for (const Json& other : index) {
        if (other.is_object() && other.contains("tensor") && &other != &one) return kNotThere;
      }
      // Negative indices count from the end. A mask's result has a shape that is a value.
      if (const Json* const tag = call.json.find("tag"); tag != nullptr && tag->text() == "mask") {
        return kNotThere;
      }
      const auto n = static_cast<float>(x.dims()[static_cast<size_t>(axis)]);
      const Tensor from_start = select(by < 0.0f, by + n, by * 1.0f);
      const Tensor moved = axis == 0 ? x : transpose(x, 0, axis);
      const Tensor rows = take(moved, from_start);
      if (axis == 0) return Results{rows};
      if (by.dims().size() != 1) return kNotThere;
      return Results{transpose(rows, 0, axis)};
    }
  }
  return Results{x};
}

Tensor index_select(const Tensor& x, int64_t axis, const Tensor& index) {
  const Tensor first = transpose(x, 0, axis);
  return transpose(take(first, index), 0, axis);
}

// --- Products

Tensor times(const Tensor& x, const Tensor& z) {
  const size_t a = x.dims().size(), b = z.dims().size();
  Tensor result = matmul(a == 1 ? unsqueeze(x, 0) : x, b == 1 ? unsqueeze(z, 1) : z);
  if (b == 1) result = squeeze(result, -1);
  if (a == 1) result = squeeze(result, b == 1 ? -1 : -2);
  return result;
}

std::optional<Results> einsum(const Call& call) {
  const std::string equation = call.word("equation");
  const Tensor& x = call["x"];
  if (equation == "ij->ji") return Results{transpose(x, 0, 1)};
  if (equation == "ij->j") return Results{sum(x, {0})};
  if (equation == "ij,ij->") return Results{sum(x * call["z"])};
  if (equation == "i,j->ij") return Results{unsqueeze(x, 1) * call["z"]};
  if (equation == "bhqd,bhkd->bhqk") return Results{matmul(x, transpose(call["z"], -1, -2))};
  if (equation == "ij,jk->ik" || equation == "bij,jk->bik") return Results{matmul(x, call["z"])};
  return kNotThere;
}

std::optional<Results> attention(const Call& call) {
  const Tensor& q = call["q"];
  const auto size = static_cast<float>(q.dims().back());
  const float scale = real(call, "scale", 1 / std::sqrt(size));
  if (call.find("b") != nullptr) {
    const Tensor scores = matmul(q, transpose(call["k"], -2, -1)) * scale + call["b"];
    return Results{matmul(softmax(scores, -1), call["v"])};
  }
  std::optional<Tensor> seen;
  if (call.truth("is_causal")) {
    seen = lower_triangle(q.dims()[q.dims().size() - 2], call["k"].dims()[q.dims().size() - 2], 0);
  }
  if (call.find("c") != nullptr) seen = call["c"];
  return Results{attend(q, call["k"], call["v"], scale, seen ? &*seen : nullptr)};
}

// --- Norms

// x [N, C, ...] by one number a channel.
Tensor by_channel(const Tensor& x, const Tensor& one) {
  Dims dims(x.dims().size(), 1);
  dims[1] = x.dims()[1];
  return reshape(one, dims);
}
Tensor with_affine(const Call& call, const Tensor& x, bool channels) {
  Tensor y = x;
  if (const Tensor* const w = call.find("w"); w != nullptr) {
    y = y * (channels ? by_channel(x, *w) : *w);
  }
  if (const Tensor* const b = call.find("b"); b != nullptr) {
    y = y + (channels ? by_channel(x, *b) : *b);
  }
  return y;
}
Axes last_axes(size_t n) {
  Axes axes;
  for (size_t i = 0; i < n; ++i) axes.push_back(-1 - static_cast<int64_t>(i));
  return axes;
}
std::optional<Results> group_norm(const Call& call, int64_t groups) {
  const Tensor& x = call["x"];
  const Tensor normed =
      normalise(reshape(x, {x.dims()[0], groups, -1}), {2}, real(call, "eps", 1e-5));
  return Results{with_affine(call, reshape(normed, x.dims()), true)};
}

// --- Losses

Tensor reduced(const Call& call, const Tensor& each) {
  const std::string how = call.word("reduction", "mean");
  if (how == "none") return each;
  Tensor all = sum(each);
  if (how == "sum") return all;
  const int64_t n = how == "batchmean" ? each.dims()[0] : count_of(each.dims());
  return all / static_cast<float>(n);
}

// Takes log-probabilities [N, V, ...] or [V] and targets, with PyTorch's weights and ignored ones.
std::optional<Results> nll(const Call& call, const Tensor& logs) {
  const Tensor& targets = call["t"];
  if (targets.dims() == logs.dims()) return kNotThere;
  const int64_t axis = logs.dims().size() == 1 ? 0 : 1;
  const int64_t classes = logs.dims()[static_cast<size_t>(axis)];
  const Tensor moved = logs.dims().size() <= 2 ? logs : permute(logs, [&] {
    Axes order{0};
    for (size_t i = 2; i < logs.dims().size(); ++i) order.push_back(static_cast<int64_t>(i));
    order.push_back(1);
    return order;
  }());
  const Tensor hit = one_hot(targets, classes);
  const Tensor kept = 1.0f - (targets == real(call, "ignore_index", -100));
  const Tensor weights = call.find("w") != nullptr ? call["w"] : expand(1.0f, {classes});
  const Tensor weight = sum(select(hit, expand(weights, moved.dims()), 0.0f), {-1}) * kept;
  Tensor each = neg(sum(select(hit, moved, 0.0f), {-1})) * weight;
  if (const float smooth = real(call, "label_smoothing"); smooth > 0) {
    const Tensor spread = neg(sum(moved * weights, {-1})) * kept;
    each = each * (1 - smooth) + spread * (smooth / static_cast<float>(classes));
  }
  const std::string how = call.word("reduction", "mean");
  if (how == "none") return Results{each};
  return Results{how == "sum" ? sum(each) : sum(each) / sum(weight)};
}

std::optional<Results> cross_entropy(const Call& call) {
  const Tensor& x = call["x"];
  const int64_t axis = x.dims().size() == 1 ? 0 : 1;
  if (call["t"].dims() != x.dims()) return nll(call, log_softmax(x, axis));
  // Targets are probabilities.
  const float smooth = real(call, "label_smoothing");
  const Tensor t = softmax(call["t"], 1) * (1 - smooth) +
                   smooth / static_cast<float>(x.dims()[static_cast<size_t>(axis)]);
  return Results{sum(neg(log_softmax(x, axis) * t)) / static_cast<float>(x.dims()[0])};
}

Tensor smooth_l1(const Tensor& x, const Tensor& t, float beta) {
  const Tensor far = abs(x - t);
  return select(far < beta, square(far) * (0.5f / beta), far - 0.5f * beta);
}
Tensor bce(const Tensor& x, const Tensor& t) {
  // A log is at least -100.
  return neg(t * maximum(log(x), -100.0f) + (1.0f - t) * maximum(log(1.0f - x), -100.0f));
}
// log(1 + e^x), which does not overflow.
Tensor softplus(const Tensor& x) { return relu(x) + log(1.0f + exp(neg(abs(x)))); }

const std::map<std::string, Function>& functions() {
  static const std::map<std::string, Function> all = [] {
#define OP(...) [](const Call& c) -> std::optional<Results> { return Results{__VA_ARGS__}; }
    std::map<std::string, Function> made = {
#include "tests/split_ops/operations.def"
    };
#undef OP
    for (auto& [name, program] : programs()) made.emplace(name, program);
    return made;
  }();
  return all;
}

}  // namespace

bool is_known(const std::string& operation) { return functions().count(operation) > 0; }
std::optional<Results> evaluate(const Call& call) {
  const auto at = functions().find(call.json.at("op").text());
  return at == functions().end() ? std::nullopt : at->second(call);
}

}  // namespace split::ops
