// Tensors by name in memory that plans read as their leaves and write in place: weights, state and
// arguments. On a device they have copies there, which go up before a run and come down when they
// are looked at. One Runtime and one thread at a time.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tensor/shape.h"

namespace split::array {

class Store {
 public:
  struct Entry;
  // Its copy on a device, whose plans read and write that.
  class Remote {
   public:
    virtual ~Remote() = default;
    virtual void pull(Entry& entry) = 0;  // onto the host
  };
  struct Entry {
    DType dtype = DType::kF32;
    Dims dims;
    std::vector<float> floats = {};     // F32, F16 and BF16
    std::vector<int32_t> numbers = {};  // I32, U8 and BOOL
    std::vector<int64_t> wides = {};    // I64
    bool state = false;                 // plans may write it
    std::shared_ptr<Remote> remote = nullptr;
    bool changed = true;           // since it was sent there
    bool stale = false;            // plans have written it there
    std::span<std::byte> bytes();  // the numbers, as they are computed with
  };
  // A tensor, of zeros or as given (F32, F16, BF16 as F32; I32), in the place of one of its name,
  // which no plan reads any more. Throws Error(kShape).
  Entry& add(const std::string& name, Dims dims, bool state = false);
  Entry& add(const std::string& name, const TensorView& view, bool state = false);
  Entry& add_numbers(const std::string& name, Dims dims);
  // A tensor of any type, which it keeps: zeros, or as given.
  Entry& add_typed(const std::string& name, DType dtype, Dims dims, bool state = false);
  Entry& add_typed(const std::string& name, const TensorView& view, bool state = false);
  Entry* find(const std::string& name);
  // To be changed: asked for anew after each run of a plan. Throws Error(kNotFound).
  Entry& at(const std::string& name);
  const Entry& read(const std::string& name) const;  // not to be changed
  const std::map<std::string, Entry>& entries() const;
  // Brings what plans have written.
  static void fetch(Entry& entry);

 private:
  mutable std::map<std::string, Entry> entries_;  // a map: their memory stays where it is
};

// Numbers of any type as they are computed with (floats of halves, I32 of U8 and BOOL), and back.
void widen_numbers(const TensorView& view, std::span<std::byte> to);
OwnedTensor narrowed_numbers(std::span<const std::byte> from, DType dtype, const Dims& dims);

}  // namespace split::array
