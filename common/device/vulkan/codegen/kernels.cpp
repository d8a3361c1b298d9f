#include "device/vulkan/codegen/kernels.h"

#include <algorithm>

namespace split::vulkan {

const Program* Kernels::like(const Program& program) {
  Program nameless = program;
  nameless.name.clear();
  for (Slot& slot : nameless.slots) {
    if (slot.dtype != DType::kI32) slot.name.clear();  // a symbol of the step is known by its name
  }
  const auto at = std::find(programs_.begin(), programs_.end(), nameless);
  return at != programs_.end() ? &*at : &programs_.emplace_back(std::move(nameless));
}

const KeptKernel& Kernels::get(const Key& key, const std::function<Kernel()>& make) {
  if (const auto known = kernels_.find(key); known != kernels_.end()) return known->second;
  Kernel made = make();
  KeptKernel kept{pipelines_.kept(std::move(made.text)), std::move(made.binds),
                  std::move(made.constants)};
  return kernels_.emplace(key, std::move(kept)).first->second;
}

}  // namespace split::vulkan
