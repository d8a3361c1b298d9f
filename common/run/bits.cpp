#include "run/bits.h"

#include <algorithm>

#include "step/names.h"

namespace split {

std::string bits_of(const Device& device, const Model& model, const ShardOptions& options,
                    const std::function<DType(const Stage&)>& format) {
  // Names equal blocks once; a block's number only if its format differs from the block's before.
  std::string formats, last;
  bool any_block = false;
  bool in_bf16 = options.profile != Profile::kF32 && options.profile != Profile::kF16;
  for (const Stage& stage : model.stages()) {
    const DType own = format(stage);
    in_bf16 = in_bf16 || is_quantised(own);
    const bool block = stage.name.starts_with(names::kBlock);
    std::string what = cat(block ? "block" : stage.name, " ", format_name(own));
    if (what == last) continue;
    formats += cat(formats.empty() ? "" : ", ", block && !any_block ? "block" : stage.name, " ",
                   format_name(own));
    any_block = any_block || block;
    last = std::move(what);
  }
  const DType kv = options.kv.value_or(DType::kF32);
  in_bf16 = in_bf16 || kv == DType::kBF16 || is_quantised(kv);
  return cat(device.arithmetic(in_bf16), "; ", profile_name(options.profile), "; kv ",
             format_name(kv), "; ", options.wide ? names::kWide : names::kNarrow, "; ", formats);
}

}  // namespace split
