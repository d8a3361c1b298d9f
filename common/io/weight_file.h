// A file of weights, a blob or a checkpoint: one safetensors file in which quantised matrices are
// U8 tensors [rows, bytes a row], each described in __metadata__ under its name: "q8_0 [2304, 768]"
// is its format and its shape [rows, K]. Knows no model and no file system.
#pragma once

#include "io/safetensors.h"

namespace split {

// Parses the header alone, and returns the tensors by name, quantised ones as such: views into
// `file`, which `what` names in messages. `max_header`: as Safetensors::parse's. Throws
// Error(kInput) as that does, and for a quantised tensor whose description and bytes disagree.
Safetensors::Tensors parse_weight_file(Bytes file, std::string_view what,
                                       uint64_t max_header = 4 << 20);

// Returns the header; the tensors' bytes must follow in the given order without gaps. Views need no
// bytes.
std::string weight_file_header(std::span<const NamedTensor> tensors);
// Returns the whole file.
std::string write_weight_file(std::span<const NamedTensor> tensors);

}  // namespace split
