// The home of a graph's leaves, so that a function whose result's shape is a value (nonzero) can
// have it computed.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "tensor/tensor.h"

namespace split {

class Home {
 public:
  virtual ~Home() = default;
  // A tensor's numbers now.
  virtual OwnedTensor values(const Tensor& x) = 0;
  // A leaf with these numbers.
  virtual Tensor leaf(const TensorView& view) = 0;
};

// A leaf of a home, by its name there.
Tensor input_at(std::shared_ptr<Home> home, std::string name, DType dtype, Dims dims);
// The home of the first leaf of a graph that has one. Throws Error(kShape), with `where`.
std::shared_ptr<Home> home_of(const Tensor& x, std::string_view where);
// The elements of a tensor in I64.
std::vector<int64_t> evaluated(const Tensor& x, std::string_view where);

}  // namespace split
