// Tensors by name in memory that plans read as their leaves and write in place: weights, state and
// arguments. One thread at a time.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "tensor/shape.h"

namespace split::array {

class Store {
 public:
  struct Entry {
    DType dtype = DType::kF32;
    Dims dims;
    std::vector<float> floats;     // of F32
    std::vector<int32_t> numbers;  // of I32
    bool state = false;            // plans may write it
  };
  // A tensor, of zeros or as given (F32, F16, BF16 as F32; I32), in the place of one of its name,
  // which no plan reads any more. Throws Error(kShape).
  Entry& add(const std::string& name, Dims dims, bool state = false);
  Entry& add(const std::string& name, const TensorView& view, bool state = false);
  Entry& add_numbers(const std::string& name, Dims dims);
  Entry* find(const std::string& name);
  Entry& at(const std::string& name);  // throws Error(kNotFound)
  const std::map<std::string, Entry>& entries() const { return entries_; }

 private:
  std::map<std::string, Entry> entries_;  // whose memory stays where it is
};

}  // namespace split::array
