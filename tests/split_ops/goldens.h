// The goldens of tensor operations: an index of cases and the files of tensors that they name.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
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
  // Maps files of a folder; or has those that are given, by name, whose bytes outlive it. Reading
  // throws BrokenGoldens.
  explicit Goldens(std::filesystem::path folder) : folder_(std::move(folder)) {}
  explicit Goldens(std::map<std::string, Bytes> given) : given_(std::move(given)) {}

  Json json(const std::string& file) const;
  const TensorView& tensor(const std::string& file, const std::string& name);
  const Safetensors::Tensors& tensors(const std::string& file);
  // As numbers: F32 as they are, whole numbers and truth values exactly where they are below 2^24.
  // Throws Error(kInput) for another type.
  std::vector<float> numbers(const std::string& file, const std::string& name);

 private:
  struct File {
    std::optional<MappedFile> mapped;
    Safetensors tensors;
  };
  Bytes bytes(const std::string& file, std::optional<MappedFile>& mapped) const;

  const std::filesystem::path folder_;
  const std::map<std::string, Bytes> given_;
  std::map<std::string, File> files_;
};

std::vector<float> numbers_of(const TensorView& view);
std::vector<int64_t> wholes_of(const TensorView& view);  // not of floating ones

}  // namespace split::ops
