// Any bytes as a server's manifest: refused with Error(kInput), or a manifest whose hashes are
// hashes, that can be said again and is the same, and whose model can be made or is refused.
#include "fuzz.h"
#include "models/model.h"
#include "wire/protocol.h"

using namespace split;  // NOLINT(google-build-using-namespace): a program of its own

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::refused_or([&] {
    const wire::ModelInfo info = wire::parse_model_info(fuzz::text_of(data, size));
    for (const wire::StageInfo& stage : info.stages) {
      for (const wire::BlobInfo& blob : stage.blobs) CHECK(is_lower_hex(blob.sha256, 64));
    }
    for (const wire::FileInfo& file : info.files) CHECK(is_lower_hex(file.sha256, 64));
    const std::string said = to_json(info);
    CHECK(to_json(wire::parse_model_info(said)) == said);
    fuzz::refused_or([&] { make_model(info.config_json); });
  });
  return 0;
}
