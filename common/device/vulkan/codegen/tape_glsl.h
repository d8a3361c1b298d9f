// GLSL from a Tape: over the rows of a group, over one element of a matmul's result, or over the
// row that a matmul reads. Several tapes fit into one kernel: each numbers its names from a base of
// its own.
#pragma once

#include <algorithm>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "device/vulkan/codegen/glsl.h"

namespace split::vulkan {

// A kernel's bindings and constants, as its text is put together.
class KernelParts {
 public:
  explicit KernelParts(uint32_t first_binding) : first_binding_(first_binding) {}

  uint32_t bind(const Bind& bind) {
    binds_.push_back(bind);
    return next_binding() - 1;
  }
  // The binding of a slot that is bound already.
  uint32_t binding_of(const Bind& bind) const {
    const auto at = std::find(binds_.begin(), binds_.end(), bind);
    CHECK(at != binds_.end());
    return first_binding_ + static_cast<uint32_t>(at - binds_.begin());
  }
  uint32_t next_binding() const { return first_binding_ + static_cast<uint32_t>(binds_.size()); }
  uint32_t constant(uint32_t value) {
    constants_.push_back(value);
    return kTapeConstants + static_cast<uint32_t>(constants_.size()) - 1;
  }
  Kernel kernel(std::string text) && {
    return {std::move(text), std::move(binds_), std::move(constants_)};
  }

 private:
  uint32_t first_binding_;
  std::vector<Bind> binds_;
  std::vector<uint32_t> constants_;
};

// The ops of some tapes as functions. Reductions need `shared float exchange[ROW_CHAINS]`.
std::string op_functions(const std::vector<const Tape*>& tapes);

class TapeWriter {
 public:
  // `tape` and `halves` outlive the writer; `stores`: its outputs go to their slots; `made`: a slot
  // that an epilogue reads as the variable `twin`. Throws Error(kDevice) for a tape this device
  // cannot run.
  TapeWriter(const Program& program, const Tape& tape, KernelParts& parts, size_t base, bool stores,
             size_t max_range, const Halves& halves, int made = -1);

  // Buffers, constants and loaders.
  std::string declarations() const { return declared_.str(); }
  // void main(): the tape over the row of this workgroup. Of up to some columns lanes hold what
  // they read, each element once.
  std::string group(int64_t columns) const;
  // void fetch(n, r, c): what the tape reads beside the product, and void finish(n, r, c, product):
  // the tape over one element of a matmul's result; with `put` the result also goes to put_kv(). A
  // kernel may fetch for FETCHES elements before it finishes them: n tells them apart.
  std::string epilogue(bool put) const;
  // void fetch_<name>(n, r, c), and float value_<name>(n, r, c, product), which returns the one
  // output.
  std::string value(std::string_view name) const;
  // bool takes_tile(r, c) and void finish_tile(r, c, product, other): the same over a tile of
  // matrix units that is whole, where that can be: nothing passes through lanes. `other`: of its
  // twin. What the tape does not store goes to keep_tile().
  std::string tile_epilogue(bool put, const Step* twin) const;
  // void fetch_stage(r, lane): what the tape reads of row r; then void stage(r, lane): the tape
  // over it, whose one output goes to put_x().
  std::string prologue() const;

 private:
  // An epilogue's variables, and the bodies of its two functions.
  struct Finish {
    std::string variables, fetch, compute;
  };
  Finish finish() const;

  const Slot& slot(int index) const { return program_.slots[static_cast<size_t>(index)]; }
  const Operand& load_of(size_t i) const { return tape_.values[i].load; }
  bool is_weight_table(const Operand& operand) const;
  bool is_half(const TapeOutput& output) const {
    return !halves_.empty() && halves_[static_cast<size_t>(output.slot)];
  }
  void uint_constant(const std::string& name, uint32_t value);
  void buffer_of_words(const std::string& name, const Bind& bind);
  void declare();
  void declare_gather(size_t i);
  void declare_loader(size_t i, uint32_t pieces);

  std::string name(int value) const;
  std::string load(size_t i, const char* indent, std::string_view columns,
                   const char* type = "float ") const;
  std::string staging() const;
  std::string held_group() const;
  std::string compute(size_t i, const char* indent) const;
  bool is_held(size_t i) const;
  std::string slice(const std::vector<int>& values, std::string_view columns, bool held) const;
  std::string row_body(std::string_view columns, bool stage) const;
  template <typename Predicate>
  std::string stores(const char* indent, const Predicate& wanted) const;

  const Program& program_;
  const Tape& tape_;
  KernelParts& parts_;
  const size_t base_;
  const bool stores_;
  const size_t max_range_;
  const Halves& halves_;
  const int made_;
  const size_t loads_;   // values that stand first
  uint32_t pieces_ = 1;  // pieces of each table
  std::ostringstream declared_;
};

}  // namespace split::vulkan
