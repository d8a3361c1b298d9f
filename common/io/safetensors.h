// The safetensors format, read strictly and written deterministically: 8 bytes of header length, a
// JSON header that names every tensor's type, shape and place, then the tensors' bytes. Weights on
// disk, blobs on the wire and hidden states in requests all arrive in it, so every length is
// checked before it is used, and each way to be wrong has its own message. This file knows no model
// and no file system.
//
// Alignment: the format does not promise any. A reader that is handed a stranger's file uses memcpy
// (as convert() does). Our own writer puts the first tensor at a multiple of 8 bytes and the others
// right behind one another in the order given, so tensors of one type are aligned.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "tensor/shape.h"

namespace split {

// A parsed file: views into bytes that somebody else keeps alive. Immutable, so any number of
// threads may read it.
class Safetensors {
 public:
  using Tensors = std::map<std::string, TensorView, std::less<>>;
  using Metadata = std::map<std::string, std::string>;

  // The whole file, from its first byte to its last; `what` names it in messages.
  // Throws Error(kInput) unless the header is well-formed and its tensors fill the data exactly,
  // without hole or overlap.
  // `max_header`: of bytes; 4 MiB, of which a checkpoint needs most, is the most there can be.
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

// The 8-byte length and the JSON, padded with spaces to a multiple of 8 bytes; the tensors' bytes
// follow in the given order, with nothing between them. The same arguments give the same bytes.
// Names are valid UTF-8, unlike each other and unlike "__metadata__". Views without bytes will do:
// only types and shapes are looked at.
std::string safetensors_header(std::span<const NamedTensor> tensors,
                               const Safetensors::Metadata& metadata = {});

// A header of them with their bytes behind it.
std::string with_tensors(std::string header, std::span<const NamedTensor> tensors);

}  // namespace split
