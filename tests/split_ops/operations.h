// The operations of the goldens by their PyTorch names, as functions of graphs.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "tensor/home.h"
#include "tensor/tensor.h"

namespace split::ops {

// A case's inputs and arguments, as its expression names them.
struct Call {
  const Json& json;  // the whole case
  const std::map<std::string, Tensor>& inputs;
  Home& home;  // home of the inputs

  const Tensor& operator[](const char* name) const;
  const Tensor* find(const char* name) const;
  const Json* arg(const char* name) const;
  double number(const char* name, double otherwise = 0) const;
  bool truth(const char* name, bool otherwise = false) const;
  std::string word(const char* name, const char* otherwise = "") const;
  Tensor truth_leaf() const;          // true, with a home
  Dims list(const char* name) const;  // of one number too; empty where it is not given
};
using Results = std::vector<Tensor>;

using Function = std::function<Results(const Call&)>;

// The results. Throws Error(kNotFound) where the operation is not there.
Results evaluate(const Call& call);

}  // namespace split::ops
