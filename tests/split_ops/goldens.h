// The goldens of tensor operations: an index of cases and the files of tensors that they name.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "io/safetensors.h"

namespace split::ops {

// A folder or file of goldens that is not there or broken.
struct BrokenGoldens : Error {
  using Error::Error;
};

class Goldens {
 public:
  // Reading throws BrokenGoldens.
  explicit Goldens(std::filesystem::path folder) : folder_(std::move(folder)) {}

  Json json(const std::string& file) const;
  bool has(const std::string& file) const { return std::filesystem::exists(folder_ / file); }
  const TensorView& tensor(const std::string& file, const std::string& name);
  const Safetensors::Tensors& tensors(const std::string& file);
  // As numbers: F32 as they are, whole numbers and truth values exactly where they are below 2^24.
  // Throws Error(kInput) for another type.
  std::vector<float> numbers(const std::string& file, const std::string& name);

 private:
  struct File {
    MappedFile mapped;
    Safetensors tensors;
  };
  std::filesystem::path folder_;
  std::map<std::string, File> files_;
};

std::vector<float> numbers_of(const TensorView& view);
std::vector<int64_t> wholes_of(const TensorView& view);  // not of floating ones

}  // namespace split::ops
