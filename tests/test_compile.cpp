// compile/ over the graphs of nn/: what is fused, where it lies, and that the listing says so.
#include <gtest/gtest.h>

#include "base/file.h"
#include "compile/compile.h"
#include "nn/functional.h"
#include "nn/model.h"

namespace split {
namespace {

std::unique_ptr<Model> demo() {
  return make_model(
      read_file(std::string(SPLIT_SOURCE_DIR) + "/weights/demo/config.json", 1 << 20));
}

DType half(const std::string&) { return DType::kF16; }

TEST(Print, B) {
  std::cout << to_string(compile("block.0", demo()->trace_block(0, half, DType::kF32), {}));
  std::cout << to_string(
      compile("block.0", demo()->trace_block(0, half, DType::kF32), {true, true, true}));
  std::cout << to_string(compile("head", demo()->trace_head(half), {}));
  std::cout << to_string(compile("embed", demo()->trace_embed(half), {}));
}

}  // namespace
}  // namespace split
