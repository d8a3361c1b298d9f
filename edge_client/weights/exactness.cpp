#include "edge_client/weights/exactness.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "run/bits.h"

namespace split::edge {

std::string own_bits(const Shard& shard, const wire::ModelInfo& info, const StageFormats& formats) {
  return bits_of(shard, [&](const Stage& stage) {
    if (const auto asked = formats.of(stage.name)) return *asked;
    const auto at = std::ranges::find(info.stages, stage.name, &wire::StageInfo::name);
    const std::string& format = at == info.stages.end() ? info.format : at->format;
    return dtype_from_format(format).value_or(DType::kF32);
  });
}

bool is_exact(Remote& remote, const wire::ModelInfo& info, Batcher& tail, Cut highest) {
  Shard& shard = tail.shard();
  if (info.bits.empty() || info.bits != own_bits(shard, info, shard.options().formats))
    return false;
  if (on_any_device(info.bits)) return true;
  const ModelConfig& config = shard.model().config();
  const int blocks = highest.blocks(config.layers);
  if (blocks == 0) return true;
  std::array<int32_t, 8> ids{};
  for (int32_t i = 0; i < 8; ++i) ids[static_cast<size_t>(i)] = (i * 7 + 1) % config.vocab;
  Traffic traffic;
  SequenceRows rows{.range = {.to = blocks}, .tokens = ids, .wanted = Wanted::kAll};
  const AskedModel asked{.id = info.id,
                         .channels = static_cast<uint32_t>(config.channels),
                         .row_parts = config.row_parts};
  const std::vector<float> there = remote.ask({Send::kForward, {}, rows, &traffic}, asked);
  const Point from = std::min(shard.floor(), Point(blocks));
  std::vector<float> below;
  if (!from.is_tokens()) {
    rows.range.to = from;
    below = remote.ask({Send::kForward, {}, rows, &traffic}, asked);
    rows = {.range = {from, blocks},
            .hidden = below,
            .width = static_cast<uint32_t>(shard.width(from)),
            .wanted = Wanted::kAll};
  }
  if (from == Point(blocks)) return true;  // there is no block to compare
  std::vector<float> here(there.size());
  const SequenceId sequence = shard.pages().open();
  const std::shared_ptr<void> close(nullptr, [&](void*) { shard.pages().close(sequence); });
  Job job{.sequence = sequence, .rows = rows, .out = here.data()};
  tail.run(job);
  return std::memcmp(here.data(), there.data(), here.size() * sizeof(float)) == 0;
}

}  // namespace split::edge
