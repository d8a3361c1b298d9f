// References, in double, of every row of ops.def: the one restatement of the table, which the tests
// of ops, of gradients and of whole programs read. A new row needs its line here.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <stdexcept>
#include <string_view>

#include "base/error.h"
#include "tensor/model_ops.h"
#include "tensor/op.h"

namespace split {

// Every row of ops.def, in its order: op_table()[static_cast<size_t>(op)] is op_info(op).
inline std::span<const OpInfo> op_table() { return {&op_info(Op{}), kModelOps}; }

}  // namespace split

namespace split::test {

using UnaryReference = std::function<double(double)>;
using BinaryReference = std::function<double(double, double)>;
struct ReduceReference {
  double start;
  BinaryReference combine;
};

inline const std::map<std::string_view, UnaryReference> kUnaryReferences = {
    {"neg", [](double x) { return -x; }},
    {"abs", [](double x) { return std::abs(x); }},
    {"square", [](double x) { return x * x; }},
    {"sqrt", [](double x) { return std::sqrt(x); }},
    {"rsqrt", [](double x) { return 1 / std::sqrt(x); }},
    {"reciprocal", [](double x) { return 1 / x; }},
    {"exp", [](double x) { return std::exp(x); }},
    {"log", [](double x) { return std::log(x); }},
    {"tanh", [](double x) { return std::tanh(x); }},
    {"sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }},
    {"erf", [](double x) { return std::erf(x); }},
    {"relu", [](double x) { return std::max(x, 0.0); }},
    {"clean", [](double x) { return std::abs(x) < 0x1p-101 ? 0 : x; }},
    {"silu", [](double x) { return x / (1 + std::exp(-x)); }},
    {"gelu", [](double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }},
    {"gelu_new",
     [](double x) {
       return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
     }},
};

inline const std::map<std::string_view, BinaryReference> kBinaryReferences = {
    {"add", [](double x, double z) { return x + z; }},
    {"sub", [](double x, double z) { return x - z; }},
    {"mul", [](double x, double z) { return x * z; }},
    {"div", [](double x, double z) { return x / z; }},
    {"maximum", [](double x, double z) { return std::max(x, z); }},
    {"minimum", [](double x, double z) { return std::min(x, z); }},
};

inline const std::map<std::string_view, ReduceReference> kReduceReferences = {
    {"sum", {0, [](double a, double b) { return a + b; }}},
    {"max",
     {-std::numeric_limits<double>::infinity(), [](double a, double b) { return std::max(a, b); }}},
    {"min",
     {std::numeric_limits<double>::infinity(), [](double a, double b) { return std::min(a, b); }}},
};

template <typename T>
const T& reference(const std::map<std::string_view, T>& references, std::string_view name) {
  const auto at = references.find(name);
  if (at == references.end()) throw std::runtime_error(cat("no reference for op '", name, "'"));
  return at->second;
}

}  // namespace split::test
