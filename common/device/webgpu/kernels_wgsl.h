// WGSL that the page has, in kernels.js: the op table's functions, and the kernels that no tape
// joins. Their sizes are overrides, by the names in the shaders; binding 0 is the step's symbols,
// the others stand in the shaders too.
#pragma once

#include <string>

namespace split::webgpu {

// Returns kernels.js: `functions`, in an order in which each calls those before it, and `kernels`
// by name.
std::string kernels_js();

}  // namespace split::webgpu
