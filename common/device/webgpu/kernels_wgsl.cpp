#include "device/webgpu/kernels_wgsl.h"

#include "base/error.h"
#include "tensor/wgsl.h"

namespace split::webgpu {
namespace {

constexpr std::string_view kSymbols =
#include "device/webgpu/shaders/symbols.wgsl"
    ;
constexpr std::string_view kAttention =
#include "device/webgpu/shaders/attention.wgsl"
    ;
constexpr std::string_view kKvStore =
#include "device/webgpu/shaders/kv_store.wgsl"
    ;
constexpr std::string_view kRotate =
#include "device/webgpu/shaders/rotate.wgsl"
    ;
constexpr std::string_view kTopK =
#include "device/webgpu/shaders/topk.wgsl"
    ;

}  // namespace

std::string_view symbols_text() { return kSymbols; }
std::string attention_text() { return cat(op_functions_wgsl(kAttention), kSymbols, kAttention); }
std::string kv_store_text() { return cat(kSymbols, kKvStore); }
std::string rotate_text() { return cat(kSymbols, kRotate); }
std::string topk_text() { return std::string(kTopK); }

}  // namespace split::webgpu
