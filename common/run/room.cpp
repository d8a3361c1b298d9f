#include "run/room.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/figures.h"
#include "base/system/pages.h"

namespace split {
namespace {

constexpr uint64_t kPositions = 4096;  // a text's limit if the room is not measured

// Bytes of this machine's memory beside the weights, the eighth included that
// memory_left_for_requests() leaves aside.
uint64_t memory_beside(const TextRoom& room, const SystemFiles& files) {
  const uint64_t granted = granted_memory(files);
  return granted - std::min(granted, room.weights + granted / 8);
}

}  // namespace

void expect_room(const Device& device, const std::string& model, uint64_t weights, uint64_t kv,
                 const SystemFiles& files) {
  const uint64_t granted = granted_memory(files);
  if (device.is_gpu() || weights + kv <= granted) return;
  throw Error(ErrorKind::kInput,
              cat("[model] ", model, ": needs ", weights + kv, " bytes, ", human_bytes(weights),
                  " of weights and ", human_bytes(kv), " of keys and values of one text, free are ",
                  granted, "; a smaller format or --context needs less"));
}

uint64_t default_kv_budget(const Model& model, Profile profile, std::optional<DType> kv,
                           const TextRoom& room, const SystemFiles& files) {
  constexpr uint64_t kUsual = kLazyPages ? 1 << 30 : 1 << 27;
  const uint64_t states = state_bytes_for(model, {}), all = kv_bytes_for(model, {}, profile, 1, kv);
  const auto context = static_cast<uint64_t>(model.config().context);
  const uint64_t some = states + (all - states) / context * std::min(context, kPositions);
  const uint64_t whole =
      room.is_gpu ? 0 : std::min({all, memory_beside(room, files) / 2, room.most});
  return std::max({kUsual, some, whole});
}

std::string fit_context(Model& model, Profile profile, std::optional<DType> kv,
                        const TextRoom& room, const SystemFiles& files) {
  constexpr uint64_t kLeast = 256;  // positions
  const auto context = static_cast<uint64_t>(model.config().context);
  const uint64_t states = state_bytes_for(model, {}),
                 all = kv_bytes_for(model, {}, profile, 1, kv) - states;
  if (all == 0) return {};
  const uint64_t page = all / ((context + kPageTokens - 1) / kPageTokens);
  const uint64_t left = room.is_gpu ? UINT64_MAX : memory_beside(room, files) / room.texts;
  const uint64_t bytes = std::min(room.budget, left);
  const uint64_t fits = (bytes - std::min(bytes, states)) / page * kPageTokens;
  const uint64_t bound = std::min(context, fits < kLeast ? kPositions : fits);
  if (bound == context) return {};
  model.lower_context(static_cast<int>(bound));
  const std::string by = room.budget <= left
                             ? cat("--kv-budget, ", human_bytes(room.budget))
                             : cat("the memory, ", human_bytes(granted_memory(files)));
  return cat("context ", bound, " of the ", model.config().max_positions,
             " that the model was made for: ", by, ", bounds it (", human_bytes(page / kPageTokens),
             " a position)");
}

}  // namespace split
