// A tensor as a value: made, computed with, changed, looked at and differentiated, each when it is
// written, as PyTorch has it. Underneath it is a graph that is computed when somebody looks. A
// value names a cell: copies of it are the same tensor, and a view of a cell writes through to it.
// One thread at a time; the Runtime outlives its values.
#pragma once

#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "autograd/indexing.h"
#include "autograd/pointwise.h"

namespace split {
namespace array {
class Runtime;
class Session;
struct Cell;
}  // namespace array

// No gradients are kept for what is made while one is there.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;
};

class Value {
 public:
  Value(const Tensor& of);  // NOLINT(google-explicit-constructor): Value c = a + b
  operator Tensor() const;  // NOLINT(google-explicit-constructor): what it is now

  Dims dims() const;
  DType dtype() const;
  // --- Looked at, and so computed
  double item() const;  // the only element
  template <typename T = float>
  std::vector<T> to_vector() const;
  OwnedTensor values() const;
  std::string to_string() const;  // as PyTorch prints it

  // --- Gradients
  Value& requires_grad_(bool on = true);
  bool requires_grad() const;
  // Adds to grad() of each tensor that asks for one. No dy is ones, and the value's own gradient is
  // kept then. Throws Error(kShape) where nothing asks for one.
  void backward(const std::optional<Tensor>& dy = std::nullopt) const;
  // Throws Error(kNotFound) where there is none.
  Value grad() const;
  bool has_grad() const;
  void zero_grad() const;
  Value& retain_grad();
  Value detach() const;
  Value clone() const;

  // --- In place
  using Self = Value&;
  Value operator[](const Indices& indices) const { return get(*this, indices); }
  Value& assign(const Tensor& x);  // broadcast to its shape, in its type
  Value& set_(const Indices& indices, const Tensor& value, bool accumulate = false);
  Value& fill_(double value) { return assign(Tensor::number(value, dtype())); }
  Value& zero_() { return fill_(0); }
  Value& masked_fill_(const Tensor& mask, const Tensor& value) {
    return assign(masked_fill(*this, mask, value));
  }
  Value& clamp_(const Tensor& least, const Tensor& most) {
    return assign(clamp(*this, least, most));
  }
  Value& add_(const Tensor& z, float alpha = 1) { return assign(add(*this, z, alpha)); }
  Value& sub_(const Tensor& z, float alpha = 1) { return assign(sub(*this, z, alpha)); }
#define UNARY(name, ...) \
  Self name##_() { return assign(split::name(*this)); }
#define WHOLE_UNARY UNARY
#include "tensor/ops.def"
#define UNARY(name, ...) \
  Self name##_() { return assign(split::name(*this)); }
#define BINARY(name, ...) \
  Self name##_(const Tensor& z) { return assign(split::name(*this, z)); }
#define WHOLE_BINARY BINARY
#include "tensor/library.def"
// clang-format off
#define SPLIT_OF_TWO(name) Self name##_(const Tensor& z) { return assign(split::name(*this, z)); }
  SPLIT_OF_TWO(mul) SPLIT_OF_TWO(div) SPLIT_OF_TWO(maximum) SPLIT_OF_TWO(minimum) SPLIT_OF_TWO(remainder)
  SPLIT_OF_TWO(ldexp) SPLIT_OF_TWO(fmax) SPLIT_OF_TWO(fmin)
#define SPLIT_OF_ONE(name) Self name##_() { return assign(split::name(*this)); }
  SPLIT_OF_ONE(frac) SPLIT_OF_ONE(deg2rad) SPLIT_OF_ONE(rad2deg) SPLIT_OF_ONE(log2) SPLIT_OF_ONE(log10)
  SPLIT_OF_ONE(erfc) SPLIT_OF_ONE(sinc) SPLIT_OF_ONE(digamma) SPLIT_OF_ONE(sgn) SPLIT_OF_ONE(selu)
  SPLIT_OF_ONE(elu) SPLIT_OF_ONE(absolute) SPLIT_OF_ONE(arccos) SPLIT_OF_ONE(arccosh) SPLIT_OF_ONE(arcsin)
  SPLIT_OF_ONE(arcsinh) SPLIT_OF_ONE(arctan) SPLIT_OF_ONE(arctanh) SPLIT_OF_ONE(negative) SPLIT_OF_ONE(fix)
#undef SPLIT_OF_ONE
#undef SPLIT_OF_TWO
      // clang-format on

      const std::shared_ptr<array::Cell>& cell() const {
    return cell_;
  }
  explicit Value(std::shared_ptr<array::Cell> cell) : cell_(std::move(cell)) {}

 private:
  std::shared_ptr<array::Cell> cell_;
};

std::ostream& operator<<(std::ostream& out, const Value& value);

// Numbers as they are written: 1, {1, 2} or {{1, 2}, {3, 4}}. Throws Error(kShape) for rows of
// different lengths.
class Numbers {
 public:
  Numbers(double number) : number_(number) {}  // NOLINT(google-explicit-constructor)
  Numbers(std::initializer_list<Numbers> parts)
      : parts_(parts), is_list_(true) {}  // NOLINT(google-explicit-constructor)
  Dims dims() const;
  std::vector<double> flat() const;

 private:
  void add_to(std::vector<double>& all) const;
  double number_ = 0;
  std::vector<Numbers> parts_;
  bool is_list_ = false;
};

// Text of a tensor's numbers as PyTorch 1.13 prints it.
std::string printed(DType dtype, const Dims& dims, const std::vector<double>& numbers,
                    bool requires_grad);

}  // namespace split
