// The text of a kernel's shader as it is put together: its numbers, the functions that read and
// write buffers, and the values of its tape. For kernel_glsl.cpp alone.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "array/vulkan/kernel_glsl.h"

namespace split::array {

class ShaderText {
 public:
  ShaderText(const Kernel& kernel, const Bindings& bindings)
      : kernel_(kernel), bindings_(bindings) {}

  // Names of numbers that are read when it runs. Throws Error(kDevice) past 2^30.
  std::string number(int64_t value);
  std::string real(double value, DType dtype = DType::kF32);
  // Element `index` of a buffer, counted from its binding's begin.
  std::string place(int buffer, const std::string& index, int64_t offset = 0);
  // Reads and writes go by functions: a buffer may be in several bindings.
  std::string get(int buffer, const std::string& at);
  std::string put(int buffer, const std::string& at, const std::string& value);
  // Writes a function of an element's number in what the access reads.
  std::string declare_load(const std::string& name, const Operand& operand);
  // Functions of ops by the type of what they read, and how a reduction begins.
  std::string function_of(Op op, DType type);
  std::string start_of(Op op, DType type);
  // GLSL's type of numbers, and their array that a workgroup shares.
  std::string type_of(DType dtype);
  std::string part_of(DType dtype);

  // Makes value `i` of the tape; values of a row are element `row` of what they read.
  std::string line(size_t i, const std::string& row);
  // Makes values, and what they need that is not made.
  std::string statements(std::vector<bool> made, const std::vector<int>& wanted,
                         const std::string& row);
  std::string store(const TapeOutput& output, const std::string& index);
  void declare(const std::string& text) { head_ += text; }

  // The shader whose main function is this, and the words that it reads.
  Dispatch finish(int64_t group, const std::string& body);

 protected:
  const Kernel& kernel_;

 private:
  std::string constant(const std::string& type, const std::vector<uint32_t>& bits);
  std::string cast_of(const std::string& x, DType from, DType to);
  // Adds a function of numbers of this type to the text, once.
  void define(const std::string& name, DType type, const std::string& text);
  // Names a function of element `at` of a buffer that may be in pieces; writes it once.
  std::string accessor(const Bound& bound, std::string_view verb, std::string_view result,
                       std::string_view parameter, std::string_view before,
                       std::string_view behind);

  const Bindings& bindings_;
  std::vector<uint32_t> words_;
  std::vector<std::pair<int64_t, std::string>> numbers_;
  std::string words_text_, reads_, functions_, whole_functions_, head_;
  std::set<std::string> defined_;
  std::set<size_t> loads_;
  std::map<uint32_t, DType> types_;  // by binding
  std::set<DType> parts_;
  bool wide_ = false;  // it computes in 64 bits
};

}  // namespace split::array
