#include "tests/split_ops/goldens.h"

#include <cstring>

#include "base/error.h"

namespace split::ops {
namespace {

template <typename T, typename To = float>
std::vector<To> widened(Bytes bytes) {
  std::vector<To> result(bytes.size() / sizeof(T));
  for (size_t i = 0; i < result.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
    result[i] = static_cast<To>(value);
  }
  return result;
}

}  // namespace

std::vector<float> numbers_of(const TensorView& view) {
  switch (view.dtype) {
    case DType::kF32:
      return widened<float>(view.bytes);
    case DType::kI32:
      return widened<int32_t>(view.bytes);
    case DType::kI64:
      return widened<int64_t>(view.bytes);
    case DType::kBool:
    case DType::kU8:
      return widened<uint8_t>(view.bytes);
    case DType::kF16:
    case DType::kBF16:
      return widened<float>(converted(view, DType::kF32).view.bytes);
    default:
      throw Error(ErrorKind::kInput,
                  cat("[goldens] expected numbers, got ", dtype_name(view.dtype)));
  }
}

std::vector<int64_t> wholes_of(const TensorView& view) {
  return view.dtype == DType::kI64   ? widened<int64_t, int64_t>(view.bytes)
         : view.dtype == DType::kI32 ? widened<int32_t, int64_t>(view.bytes)
                                     : widened<uint8_t, int64_t>(view.bytes);
}

namespace {

auto unbroken(const auto& read) {
  try {
    return read();
  } catch (const Error& error) {
    throw BrokenGoldens(error.kind(), error.what());
  }
}

}  // namespace

Bytes Goldens::bytes(const std::string& file, std::optional<MappedFile>& mapped) const {
  if (given_.empty()) return mapped.emplace(folder_ / file).bytes();
  const auto at = given_.find(file);
  if (at == given_.end()) throw Error(ErrorKind::kNotFound, cat("[goldens] no file ", file));
  return at->second;
}

Json Goldens::json(const std::string& file) const {
  return unbroken([&] {
    std::optional<MappedFile> mapped;
    const Bytes all = bytes(file, mapped);
    const std::string_view text(reinterpret_cast<const char*>(all.data()), all.size());
    return parse_json(text, 32, cat("[", (folder_ / file).string(), "]"));
  });
}

const Safetensors::Tensors& Goldens::tensors(const std::string& file) {
  auto at = files_.find(file);
  if (at == files_.end()) {
    at = unbroken([&] {
      std::optional<MappedFile> mapped;
      Safetensors parsed = Safetensors::parse(bytes(file, mapped), (folder_ / file).string());
      return files_.emplace(file, File{std::move(mapped), std::move(parsed)}).first;
    });
  }
  return at->second.tensors.tensors();
}

const TensorView& Goldens::tensor(const std::string& file, const std::string& name) {
  const auto& all = tensors(file);
  const auto at = all.find(name);
  if (at == all.end()) {
    throw BrokenGoldens(ErrorKind::kInput,
                        cat("[", (folder_ / file).string(), "] no tensor '", name, "'"));
  }
  return at->second;
}

std::vector<float> Goldens::numbers(const std::string& file, const std::string& name) {
  return numbers_of(tensor(file, name));
}

}  // namespace split::ops
