// The GGUF format, versions 2 and 3, little-endian, read strictly: the magic, metadata of typed
// keys and values, the tensors' types, shapes and offsets, then their bytes at multiples of an
// alignment. Files come from anywhere, so every length is checked before it is used, nothing is
// copied, and each error has its own message. Knows no model and no file system. Source: ggml's
// docs/gguf.md.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "tensor/shape.h"

namespace split {

// Supported types of tensors, by ggml's numbers.
enum class GgmlType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBF16 = 30
};
std::string_view ggml_type_name(GgmlType type);  // "Q4_K"

// Elements and bytes of a type's unit.
struct GgmlBlock {
  uint64_t elements, bytes;
};
GgmlBlock ggml_block(GgmlType type);

// Consists of whole blocks along the last axis.
struct GgufTensor {
  GgmlType type = GgmlType::kF32;
  Dims dims;  // 1 to 4, outermost first: the file's order reversed
  Bytes bytes;
};

// Elements as stored in the file: numbers, or strings with their lengths. All within the file.
struct GgufArray {
  uint32_t type = 0;  // an element's, by the format's number
  uint64_t count = 0;
  Bytes bytes;
};

// A parsed file: views into bytes that the caller keeps alive. Immutable.
class Gguf {
 public:
  using Value = std::variant<uint64_t, int64_t, double, bool, std::string_view, GgufArray>;
  using Tensors = std::map<std::string, GgufTensor, std::less<>>;

  // Parses the whole file; `what` names it in messages. Throws Error(kInput).
  static Gguf parse(Bytes file, std::string_view what);

  const Tensors& tensors() const { return tensors_; }

  // The metadata of a key. Throw Error(kInput) that names the key if it is missing, of another type
  // or out of range.
  bool has(std::string_view key) const { return metadata_.find(key) != metadata_.end(); }
  uint64_t integer(std::string_view key, uint64_t low, uint64_t high) const;
  double number(std::string_view key, double low, double high) const;
  std::string_view text(std::string_view key) const;
  // Reads a list of at most `limit` elements.
  std::vector<std::string_view> texts(std::string_view key, uint64_t limit) const;
  std::vector<int32_t> integers(std::string_view key, uint64_t limit) const;
  std::vector<float> floats(std::string_view key, uint64_t limit) const;
  std::vector<bool> flags(std::string_view key, uint64_t limit) const;
  Bytes bytes(std::string_view key, uint64_t limit) const;
  bool is_list(std::string_view key) const;
  bool flag(std::string_view key, bool otherwise) const;  // `otherwise`: the default

  // Throws Error(kInput): "[gguf] FILE: " and the message.
  [[noreturn]] void refuse(const std::string& message) const;

 private:
  Gguf() = default;
  const Value& value(std::string_view key) const;

  std::string what_;
  std::map<std::string, Value, std::less<>> metadata_;
  Tensors tensors_;
};

// Converts `count` elements from `first` on, both multiples of the type's block, to floats: exactly
// the file's values (a half or a block's product fits a float).
void gguf_floats(const GgufTensor& tensor, size_t first, size_t count, float* out);

}  // namespace split
