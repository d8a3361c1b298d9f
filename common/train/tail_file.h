// Files of a tail: the tensors that were trained, in F32, by Hugging Face's names (PEFT's for a
// LoRA), and the state of a course that goes on later. Both are safetensors.
#pragma once

#include <filesystem>
#include <string>

#include "io/safetensors.h"
#include "train/tail.h"

namespace split::train {

// The trained tensors as a file has them. `prefix`: of the checkpoint's names ("transformer.").
// Throws Error(kIo).
void write_tail(const std::filesystem::path& path, const Tail& tail, array::Store& store,
                const std::string& prefix, const Safetensors::Metadata& metadata);
// PEFT's description of a LoRA beside it.
std::string adapter_config(const Tail& tail, const std::string& base);

// All of the store's state, with what names the course; and back. Throws Error(kIo); reading
// Error(kInput) for a file that is none of such.
void write_state(const std::filesystem::path& path, const array::Store& store,
                 const Safetensors::Metadata& metadata);
Safetensors::Metadata read_state(const std::filesystem::path& path, array::Store* store);

}  // namespace split::train
