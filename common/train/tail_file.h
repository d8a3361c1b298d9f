// Files of a tail: the trained tensors, in F32, by Hugging Face's names (PEFT's for a LoRA), and
// the state of a run that is resumed later. Both are safetensors.
#pragma once

#include <filesystem>
#include <string>

#include "io/safetensors.h"
#include "train/tail.h"

namespace split::train {

// Writes the trained tensors. `prefix`: of the checkpoint's names ("transformer."). Throws
// Error(kIo).
void write_tail(const std::filesystem::path& path, const Tail& tail, array::Store& store,
                const std::string& prefix, const Safetensors::Metadata& metadata);
// PEFT's description of a LoRA, for the file beside it.
std::string adapter_config(const Tail& tail, const std::string& base);

// Writes all of the store's state, with the run's names; and reads it back. Throws Error(kIo);
// reading Error(kInput) for any other file.
void write_state(const std::filesystem::path& path, const array::Store& store,
                 const Safetensors::Metadata& metadata);
Safetensors::Metadata read_state(const std::filesystem::path& path, array::Store* store);

}  // namespace split::train
