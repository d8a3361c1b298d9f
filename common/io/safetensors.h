// The safetensors format, read strictly and written deterministically: 8 bytes of header length, a
// JSON header with every tensor's type, shape and offsets, then the tensors' bytes. Weights on
// disk, blobs on the wire and hidden states in requests all use it, so every length is checked
// before it is used, and each error has its own message. Knows no model and no file system.
//
// Alignment: the format promises none. Readers of a stranger's file use memcpy (as convert() does).
// Our own writer puts the first tensor at a multiple of 8 bytes and the others right behind it in
// the given order, so tensors of one type are aligned.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "tensor/shape.h"

namespace split {

// A parsed file: views into bytes that the caller keeps alive. Immutable, so any number of threads
// may read it.
class Safetensors {
 public:
  using Tensors = std::map<std::string, TensorView, std::less<>>;
  using Metadata = std::map<std::string, std::string>;

  // Parses a whole file; `what` names it in messages. Throws Error(kInput) unless the header is
  // well-formed and its tensors fill the data exactly, without hole or overlap. `max_header`:
  // bytes; 4 MiB, which a checkpoint may need, is the most.
  static Safetensors parse(Bytes file, std::string_view what, uint64_t max_header = 4 << 20);

  const Tensors& tensors() const& { return tensors_; }
  Tensors tensors() && { return std::move(tensors_); }
  const Metadata& metadata() const { return metadata_; }

 private:
  Safetensors() = default;
  Tensors tensors_;
  Metadata metadata_;
};

struct NamedTensor {
  std::string name;
  TensorView view;
};

// Returns the 8-byte length and the JSON, padded with spaces to a multiple of 8 bytes; the tensors'
// bytes must follow in the given order, without gaps. Deterministic. Names are valid UTF-8,
// distinct and not "__metadata__". Views need no bytes: only types and shapes are used.
std::string safetensors_header(std::span<const NamedTensor> tensors,
                               const Safetensors::Metadata& metadata = {});

// Appends the tensors' bytes to their header.
std::string with_tensors(std::string header, std::span<const NamedTensor> tensors);

}  // namespace split
