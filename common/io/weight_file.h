// A file of weights, a blob or a checkpoint: one safetensors file in which quantised matrices are
// U8 tensors [rows, bytes a row], each described in __metadata__ under its own name: "q8_0 [2304,
// 768]" is its format and its shape [rows, K]. Knows no model and no file system.
#pragma once

#include "io/safetensors.h"

namespace split {

// The tensors by name, quantised ones as such; `max_header` as Safetensors::parse has it. Views
// into `file`, which `what` names in messages; reads the header only. Throws Error(kInput), as
// Safetensors::parse does, and for a quantised tensor whose description and bytes do not agree.
Safetensors::Tensors parse_weight_file(Bytes file, std::string_view what,
                                       uint64_t max_header = 4 << 20);

// Writes the header before the tensors' bytes, which follow in the given order with nothing between
// them. Views without bytes will do.
std::string weight_file_header(std::span<const NamedTensor> tensors);
// The whole file.
std::string write_weight_file(std::span<const NamedTensor> tensors);

}  // namespace split
