// The text of a kernel's shader as it is put together: its numbers, the functions that read and
// write buffers, and the values of its tape. For kernel_glsl.cpp alone.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "array/vulkan/kernel_glsl.h"

namespace split::array {

bool reduces(const Value& value);

class ShaderText {
 public:
  ShaderText(const Kernel& kernel, const Bindings& bindings)
      : kernel_(kernel), bindings_(bindings) {}

  // Names of numbers that are read when it runs. Throws Error(kDevice) past 2^30.
  std::string number(int64_t value);
  std::string real(float value);
  // Element `index` of a buffer, counted from its binding's begin.
  std::string place(int buffer, const std::string& index, int64_t offset = 0);
  // Reads and writes go by functions: a buffer may be in several bindings.
  std::string get(int buffer, const std::string& at);
  std::string put(int buffer, const std::string& at, const std::string& value);
  // Writes a function of an element's number in what the access reads.
  std::string declare_load(const std::string& name, const Operand& operand);
  // Functions of ops, and how a reduction begins.
  std::string join_of(Op op);
  std::string function_of(Op op);
  static std::string start_of(Op op);

  // Makes value `i` of the tape; values of a row are element `row` of what they read.
  std::string line(size_t i, const std::string& row);
  // Makes values, and what they need that is not made.
  std::string statements(std::vector<bool> made, const std::vector<int>& wanted,
                         const std::string& row);
  std::string store(const Kernel::Output& output, const std::string& index);
  void declare(const std::string& text) { head_ += text; }

  // The shader whose main function is this, and the words that it reads.
  Dispatch finish(int64_t group, const std::string& body);

 protected:
  const Kernel& kernel_;

 private:
  std::string constant(const char* type, uint32_t bits);
  void touch(const Bound& bound);

  const Bindings& bindings_;
  std::vector<uint32_t> words_;
  std::vector<std::pair<int64_t, std::string>> numbers_;
  std::string words_text_, reads_, functions_, head_;
  std::set<Op> ops_;
  std::set<size_t> loads_;
  std::set<uint32_t> gets_, puts_, number_bindings_;
};

}  // namespace split::array
