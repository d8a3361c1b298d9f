// Numbers and layouts that kernels state too: rows of shaders/numbers.def.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "device/device.h"

namespace split::vulkan {

// The arrays of a step: its symbols, and what is made of them.
enum class StepArray : uint32_t {
#define SYMBOL(name, input) name,
#include "device/vulkan/shaders/numbers.def"
  kCount
};

// The array by which a program gathers that names this input; none for another name.
inline std::optional<StepArray> step_array_of(std::string_view input) {
  constexpr std::string_view kInputs[] = {
#define SYMBOL(name, input) input,
#include "device/vulkan/shaders/numbers.def"
  };
  for (uint32_t i = 0; i < std::size(kInputs); ++i) {
    if (!input.empty() && kInputs[i] == input) return static_cast<StepArray>(i);
  }
  return std::nullopt;
}

namespace shader {
#define NUMBER(name, value) inline constexpr uint32_t name = value;
#define FORMULA(name, x, ...) \
  constexpr uint32_t name(uint32_t x) { return __VA_ARGS__; }
#include "device/vulkan/shaders/numbers.def"
}  // namespace shader

}  // namespace split::vulkan
