#include "cloud_server/commands/model_path.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"

#ifndef SPLIT_DATA_DIR  // where the bundled model is installed
#define SPLIT_DATA_DIR "/usr/share/splitcompute"
#endif

namespace split::cloud {

std::filesystem::path bundled_model() {
  std::error_code error;
  auto folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (int up = 0; up < 4 && !folder.empty(); ++up, folder = folder.parent_path()) {
    if (std::filesystem::exists(folder / "weights/demo/config.json", error))
      return folder / "weights/demo";
    if (std::filesystem::exists(folder / "share/splitcompute/demo/config.json", error)) {
      return folder / "share/splitcompute/demo";
    }
  }
  std::filesystem::path installed = SPLIT_DATA_DIR "/demo";
  if (std::filesystem::exists(installed / "config.json", error)) return installed;
  throw Error(ErrorKind::kInput,
              "--model: the bundled model is not beside the program, expected --model PATH");
}

void expect_model(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::exists(path, error)) return;
  const std::string given = path.string();
  const std::string name = given.starts_with("weights/") ? given.substr(8) : given;
  const std::filesystem::path fetched = std::filesystem::path("weights") / path.filename();
  const bool is_name = !path.is_absolute() && !name.starts_with(".") && !name.ends_with(".gguf") &&
                       std::ranges::count(name, '/') <= 1;
  throw Error(ErrorKind::kNotFound, cat("--model ", shown(given), ": no such file or folder",
                                        !is_name ? ""
                                        : std::filesystem::exists(fetched, error)
                                            ? cat("; ", fetched.string(), " is there")
                                            : cat("; scripts/fetch_model.sh ", name,
                                                  " fetches it into ", fetched.string())));
}

}  // namespace split::cloud
