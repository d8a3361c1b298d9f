#include "run/bits.h"

#include <algorithm>

#include "step/names.h"

namespace split {

std::string bits_of(const Shard& shard, const std::function<DType(const Stage&)>& format) {
  const ShardOptions& options = shard.options();
  // Names equal blocks once; a block's number only if its format differs from the block's before.
  std::string formats, last;
  bool any_block = false, blocks_alone = true;  // in which products are by rows in int8
  bool in_bf16 = options.profile != Profile::kF32 && options.profile != Profile::kF16;
  for (const Stage& stage : shard.model().stages()) {
    const DType own = format(stage);
    in_bf16 = in_bf16 || is_quantised(own);
    const bool multiplies = stage.name != names::kEmbed && stage.name != names::kNorm;
    blocks_alone = blocks_alone && (is_quantised(own) || !multiplies);
    const bool block = stage.name.starts_with(names::kBlock);
    std::string what = cat(block ? "block" : stage.name, " ", format_name(own));
    if (what == last) continue;
    formats += cat(formats.empty() ? "" : ", ", block && !any_block ? "block" : stage.name, " ",
                   format_name(own));
    any_block = any_block || block;
    last = std::move(what);
  }
  const DType kv = options.kv.value_or(DType::kF32);
  std::string failed;
  if (options.profile == Profile::kInt8 && kv == DType::kBF16 && blocks_alone) {
    const char* const step = shard.differs_from_exact();
    if (step == nullptr) return cat("exact1; kv ", format_name(kv), "; ", formats);
    failed = cat("; exact1 failed at ", step);
  }
  in_bf16 = in_bf16 || kv == DType::kBF16 || is_quantised(kv);
  return cat(shard.device().arithmetic(in_bf16), "; ", profile_name(options.profile), "; kv ",
             format_name(kv), "; ", options.wide ? names::kWide : names::kNarrow, "; ", formats,
             failed);
}

}  // namespace split
