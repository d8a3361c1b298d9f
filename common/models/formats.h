// The number format of the weights of each kind of stage. Only matrices of products are ever
// quantised, so the embedding and the final norm come as floats.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tensor/shape.h"

namespace split {

// Formats by kind of stage; nothing: the checkpoint's.
struct StageFormats {
  std::optional<DType> embed, block, norm, head;

  // "auto", "f32", "f16": all stages. "q8_0": blocks and head. "q4_0": blocks, with a q8_0 head (a
  // head of four bits costs as much as all blocks together). "head=q8_0,block=q4_0": by kind; also
  // behind one of the words, "q4_0,head=q4_0". Throws Error(kInput), one line.
  static StageFormats parse(std::string_view text);

  // The format of a stage by its name: "embed", "block.3", "norm", "head".
  std::optional<DType> of(std::string_view stage) const;
  // Whether any format is in blocks.
  bool quantise() const;

  // Writes a text that parse() reads as this: "auto" or "block=q4_0,head=q8_0".
  std::string text() const;

  bool operator==(const StageFormats&) const = default;
};

}  // namespace split
