// The specialisation constants of kernels in C++: Constant::LANES and so on, rows of
// shaders/constants.def. Behind the table's ids come those of tapes, which are numbered while a
// kernel's text is put together.
#pragma once

#include <cstdint>
#include <string_view>

namespace split::vulkan {

enum class Constant : uint32_t {
#define CONSTANT(type, name, value) name,
#include "device/vulkan/shaders/constants.def"
  kCount
};

constexpr uint32_t id_of(Constant constant) { return static_cast<uint32_t>(constant); }

// The first id of a tape's constants.
inline constexpr uint32_t kTapeConstants = id_of(Constant::kCount);

struct ConstantRow {
  std::string_view type, name, value;  // GLSL
};
// By id.
inline constexpr ConstantRow kConstantRows[] = {
#define CONSTANT(type, name, value) {#type, #name, #value},
#include "device/vulkan/shaders/constants.def"
};

}  // namespace split::vulkan
