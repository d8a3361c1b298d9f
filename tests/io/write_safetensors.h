// Whole files of tensors, as tests write them.
#pragma once

#include "io/safetensors.h"

namespace split {

inline std::string write_safetensors(std::span<const NamedTensor> tensors,
                                     const Safetensors::Metadata& metadata = {}) {
  return with_tensors(safetensors_header(tensors, metadata), tensors);
}

}  // namespace split
