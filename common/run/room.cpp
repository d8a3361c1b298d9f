#include "run/room.h"

#include "base/bytes.h"
#include "base/figures.h"

namespace split {

void expect_room(const Device& device, const std::string& model, uint64_t weights, uint64_t kv,
                 const SystemFiles& files) {
  const uint64_t granted = granted_memory(files);
  if (device.is_gpu() || weights + kv <= granted) return;
  throw Error(ErrorKind::kInput,
              cat("[model] ", model, ": needs ", weights + kv, " bytes, ", human_bytes(weights),
                  " of weights and ", human_bytes(kv), " of keys and values of one text, free are ",
                  granted, "; a smaller format or --context needs less"));
}

}  // namespace split
