#include "device/webgpu/kernels_wgsl.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "compile/tape_text.h"
#include "device/webgpu/tape_wgsl.h"
#include "tensor/wgsl.h"

namespace split::webgpu {
namespace {

constexpr std::pair<const char*, std::string_view> kKernels[] = {
    {
        "symbols",
#include "device/webgpu/shaders/symbols.wgsl"
    },
    {
        "product",
#include "device/webgpu/shaders/product.wgsl"
    },
    {
        "dense",
#include "device/webgpu/shaders/dense.wgsl"
    },
    {
        "blocks",
#include "device/webgpu/shaders/blocks.wgsl"
    },
    {
        "rows1",
#include "device/webgpu/shaders/rows1.wgsl"
    },
    {
        "rows4",
#include "device/webgpu/shaders/rows4.wgsl"
    },
    {
        "attention",
#include "device/webgpu/shaders/attention.wgsl"
    },
    {
        "attention_rows",
#include "device/webgpu/shaders/attention_rows.wgsl"
    },
    {
        "attention_row",
#include "device/webgpu/shaders/attention_row.wgsl"
    },
    {
        "norm_weight",
#include "device/webgpu/shaders/norm_weight.wgsl"
    },
    {
        "kv_store",
#include "device/webgpu/shaders/kv_store.wgsl"
    },
    {
        "rotate",
#include "device/webgpu/shaders/rotate.wgsl"
    },
    {
        "best",
#include "device/webgpu/shaders/best.wgsl"
    },
    {
        "topk_blocks",
#include "device/webgpu/shaders/topk_blocks.wgsl"
    },
    {
        "topk",
#include "device/webgpu/shaders/topk.wgsl"
    },
};

// fn start_<op>(), and fn tree_<op>(value, lane): a reduction over the lanes of a workgroup, the
// same value in all: kStride sums of every kStride-th lane, then these in order.
std::string reduction(Op op) {
  constexpr uint32_t kStride = 16;
  const std::string combine = function_name(op);
  return cat("fn start_", op_info(op).name, "() -> f32 { return ", wgsl_of(op_info(op).start),
             "; }\nfn tree_", op_info(op).name,
             "(value: f32, lane: u32) -> f32 {\n"
             "  exchange[lane] = value;\n"
             "  workgroupBarrier();\n"
             "  if (lane < ",
             kStride, "u) {\n    var part = value;\n    for (var i = lane + ", kStride, "u; i < ",
             kLanes, "u; i += ", kStride, "u) { part = ", combine,
             "(part, exchange[i]); }\n"
             "    exchange[lane] = part;\n  }\n"
             "  workgroupBarrier();\n"
             "  var all = exchange[0];\n"
             "  for (var i = 1u; i < ",
             kStride, "u; i++) { all = ", combine,
             "(all, exchange[i]); }\n"
             "  workgroupBarrier();\n"
             "  return all;\n}\n");
}

}  // namespace

std::string kernels_js() {
  std::string rows, functions;  // all that may call a function of the table
  nlohmann::ordered_json kernels;
  for (const auto& [name, text] : kKernels) {
    kernels[name] = text;
    rows += text;
  }
  for (size_t i = 0; i < static_cast<size_t>(Op::k_constant); ++i) {
    const auto op = static_cast<Op>(i);
    if (op_info(op).forward.empty()) continue;
    rows += cat(op_info(op).forward, ";", op_info(op).start, ";");
    functions += function_text(op, DType::kF32, kWgsl);
    if (op_info(op).kind == OpKind::kReduce) functions += reduction(op);
  }
  return cat(
      "export const functions = ", nlohmann::json(op_functions_wgsl(rows) + functions).dump(),
      ";\nexport const kernels = ", kernels.dump(1), ";\n");
}

}  // namespace split::webgpu
