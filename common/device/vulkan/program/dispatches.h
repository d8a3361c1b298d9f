// Declarations that the files that make dispatches share.
#pragma once

#include <algorithm>
#include <bit>
#include <initializer_list>

#include "device/vulkan/program/executable.h"
#include "device/vulkan/tuning/layouts.h"

namespace split::vulkan {

inline constexpr size_t kSharedBytes = 16 * 1024;
inline constexpr size_t kOneRow = 0, kLongRow = 1;  // the narrow variants, of few keys and of many

inline constexpr uint32_t kRowChains = 256;  // of a row's sums, whatever the lanes

// Lanes that work on a row together, alone or before a matrix: at most a chain each.
inline uint32_t row_lanes(const Capabilities& device) {
  return device.small_tiles ? 64 : std::min(kRowChains, device.most_lanes);
}

// Lanes of a workgroup that sums no row.
inline uint32_t most_lanes(const Capabilities& device) {
  return device.small_tiles ? row_lanes(device) : std::min(512u, device.most_lanes);
}

inline uint32_t ceil_div(uint64_t a, uint64_t b) { return static_cast<uint32_t>((a + b - 1) / b); }

inline void add_constants(PipelineKey& key,
                          std::initializer_list<std::pair<Constant, uint32_t>> constants) {
  for (const auto& [constant, value] : constants) {
    key.constants.emplace_back(id_of(constant), value);
  }
}

inline void add_tape_constants(const KeptKernel& kernel, PipelineKey& key) {
  for (size_t i = 0; i < kernel.constants.size(); ++i) {
    key.constants.emplace_back(kTapeConstants + static_cast<uint32_t>(i), kernel.constants[i]);
  }
}

// Whether each workgroup has a row (common.glsl). Of 3 or 4 rows, and of 5 to 8, there is one
// recording, with a workgroup for each that it may have.
inline void add_counted(size_t variant, PipelineKey& key) {
  add_constants(key,
                {{Constant::COUNTED, variant >= kWide || kNarrowRows[variant] <= 2 ? 1u : 0u}});
}

// The sizes of what a matrix unit multiplies.
inline void add_unit_sizes(PipelineKey& key) {
  add_constants(key,
                {{Constant::LM, kUnitTile}, {Constant::LN, kUnitTile}, {Constant::LK, kUnitTile}});
}

inline std::vector<int> rowwise_slots(const KeptKernel& kernel) {
  std::vector<int> result;
  for (const Bind& bind : kernel.binds) {
    if (bind.kind == Bind::Kind::kRowwise) result.push_back(bind.slot);
  }
  return result;
}

}  // namespace split::vulkan
