// Rewrites kernels that find their buffers in a descriptor set into kernels that get the addresses
// as push constants: one memory read less before a kernel can begin, which on an H200 is 0.3 to 0.5
// us of each dispatch. Needs bufferDeviceAddress, shaderInt16 and room for the addresses.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace split::vulkan {

// Takes SPIR-V of compile_glsl(), whose storage buffers are bindings 0 .. n of set 0. The result
// has no bindings: behind its push constants (a block of words, a multiple of 8 bytes), the address
// of binding i follows at 8 * i bytes. CHECKs that the module has this form.
std::vector<uint32_t> with_addresses(std::span<const uint32_t> words);

}  // namespace split::vulkan
