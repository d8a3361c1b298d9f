// WGSL of the kernels that no tape joins. Their sizes are overrides, by the names in the shaders;
// binding 0 is the step's symbols, the others stand in the shaders too.
#pragma once

#include <string>
#include <string_view>

namespace split::webgpu {

// Declares the step's symbols.
std::string_view symbols_text();
std::string attention_text();
std::string kv_store_text();
std::string rotate_text();
std::string topk_text();

}  // namespace split::webgpu
