// The texts of shaders/, of which glsl.cpp puts kernels together.
#pragma once

#include <string_view>

namespace split::vulkan {

inline constexpr std::string_view kCommon =
#include "device/vulkan/shaders/common.glsl"
    ;
inline constexpr std::string_view kWeights =
#include "device/vulkan/shaders/weights.glsl"
    ;
inline constexpr std::string_view kMatmulShape =
#include "device/vulkan/shaders/matmul_shape.glsl"
    ;
inline constexpr std::string_view kStaged =
#include "device/vulkan/shaders/staged.glsl"
    ;
inline constexpr std::string_view kPair =
#include "device/vulkan/shaders/pair.glsl"
    ;
inline constexpr std::string_view kMatmul =
#include "device/vulkan/shaders/matmul.comp"
    ;
inline constexpr std::string_view kInt8Row =
#include "device/vulkan/shaders/int8_row.glsl"
    ;
inline constexpr std::string_view kInt8Weights =
#include "device/vulkan/shaders/int8_weights.glsl"
    ;
inline constexpr std::string_view kInt8Round =
#include "device/vulkan/shaders/int8_round.comp"
    ;
inline constexpr std::string_view kInt8Rows =
#include "device/vulkan/shaders/int8_rows.comp"
    ;
inline constexpr std::string_view kInt8Units =
#include "device/vulkan/shaders/int8_units.comp"
    ;
inline constexpr std::string_view kInt8Product =
#include "device/vulkan/shaders/int8_product.comp"
    ;
inline constexpr std::string_view kUnits =
#include "device/vulkan/shaders/units.glsl"
    ;
inline constexpr std::string_view kMatrix =
#include "device/vulkan/shaders/matrix.comp"
    ;
inline constexpr std::string_view kThinMatrix =
#include "device/vulkan/shaders/thin_matrix.comp"
    ;
inline constexpr std::string_view kPages =
#include "device/vulkan/shaders/pages.glsl"
    ;
inline constexpr std::string_view kPut =
#include "device/vulkan/shaders/put.glsl"
    ;
inline constexpr std::string_view kKvStore =
#include "device/vulkan/shaders/kv_store.comp"
    ;
inline constexpr std::string_view kAttention =
#include "device/vulkan/shaders/attention.comp"
    ;
inline constexpr std::string_view kCaches =
#include "device/vulkan/shaders/caches.glsl"
    ;
inline constexpr std::string_view kBf16Attention =
#include "device/vulkan/shaders/bf16_attention.comp"
    ;
inline constexpr std::string_view kTiledAttention =
#include "device/vulkan/shaders/tiled_attention.comp"
    ;
inline constexpr std::string_view kMerged =
#include "device/vulkan/shaders/merged.glsl"
    ;
inline constexpr std::string_view kRotate =
#include "device/vulkan/shaders/rotate.comp"
    ;
inline constexpr std::string_view kTopK =
#include "device/vulkan/shaders/topk.glsl"
    ;
inline constexpr std::string_view kBlockMax =
#include "device/vulkan/shaders/block_max.comp"
    ;
inline constexpr std::string_view kRowTopK =
#include "device/vulkan/shaders/topk.comp"
    ;
inline constexpr std::string_view kState =
#include "device/vulkan/shaders/state.glsl"
    ;
inline constexpr std::string_view kConvRows =
#include "device/vulkan/shaders/conv_rows.comp"
    ;
inline constexpr std::string_view kDelta =
#include "device/vulkan/shaders/delta.comp"
    ;
inline constexpr std::string_view kHeadPart =
#include "device/vulkan/shaders/head_part.comp"
    ;

inline constexpr std::string_view kExactFunctions =
#define BOUND(name, bits) "const int " #name " = " #bits ";\n"
#define FUNC(type, name, parameters, ...) #type " " #name #parameters " " #__VA_ARGS__ "\n"
#include "device/exact_functions.def"
    ;

}  // namespace split::vulkan
