// The kernels of a device's programs. A model's layers have the same Steps and differ in names and
// buffers alone, so that a kernel's text is written once for all of them. Knows no buffer.
#pragma once

#include <list>
#include <map>

#include "device/vulkan/codegen/glsl.h"
#include "device/vulkan/program/pipelines.h"

namespace split::vulkan {

// A Kernel whose text is one of Pipelines::kept().
struct KeptKernel {
  const std::string* text = nullptr;
  std::vector<Bind> binds;
  std::vector<uint32_t> constants;
};

// One thread at a time.
class Kernels {
 public:
  explicit Kernels(Pipelines& pipelines) : pipelines_(pipelines) {}
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;

  // Returns the one program for all that differ from this one in names alone.
  const Program* like(const Program& program);

  // The kinds of kernels that one device has.
  enum class What : uint8_t {
    kGroup,
    kMatmul,
    kInt8Matmul,
    kInt8Rows,
    kInt8Units,
    kInt8Round,
    kMatrix,
    kThinMatrix,
    kStore,
    kSplitAttention,
    kGroupAttention,
    kRowAttention,
    kBf16Attention,
    kTiledAttention,
    kRotate,
    kNormRotate,
    kBlockMax,
    kTopK,
    kConvRows,
    kDelta,
    kHeadPart
  };
  // All that its text, bindings and constants depend on.
  struct Key {
    What what = What::kGroup;
    const Program* like = nullptr;  // set if they depend on the step
    size_t step = 0;
    Takes takes = {};
    Halves halves = {};
    uint32_t pieces = 0;            // pieces of each cache
    std::optional<bool> half = {};  // attention's rows are joined, and kept as halves
    bool biased = false;            // scores have a bias
    auto operator<=>(const Key&) const = default;
  };
  // Returns the result of `make`, called the first time. Stays in place.
  const KeptKernel& get(const Key& key, const std::function<Kernel()>& make);

 private:
  Pipelines& pipelines_;
  std::list<Program> programs_;  // unlike each other, without the names
  std::map<Key, KeptKernel> kernels_;
};

}  // namespace split::vulkan
