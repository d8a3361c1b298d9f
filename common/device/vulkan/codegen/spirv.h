// SPIR-V for a kernel's GLSL: made at build time for the known models (compile_shaders.cpp), or
// compiled when it is first seen. Without the optimiser: drivers have their own. No float operation
// is contracted or reordered: a kernel's bits are those of its text.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace split::vulkan {

struct EmbeddedKernel {
  const char* key;  // kernel_key() of its text
  std::span<const uint32_t> words;
};
// In the file that compile_shaders writes, ascending by key.
std::span<const EmbeddedKernel> embedded_kernels();

std::string kernel_key(const std::string& glsl);  // SHA-256, hex
// By glslang. Throws Error(kDevice) with its log. Any thread.
std::vector<uint32_t> compile_glsl(const std::string& glsl);

}  // namespace split::vulkan
