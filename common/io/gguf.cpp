#include "io/gguf.h"

#include <algorithm>
#include <utility>

#include "base/json.h"

namespace split {
namespace {

// GPT-2 XL has 582 tensors and some 20 keys.
constexpr uint64_t kMaxTensors = 1 << 16;
constexpr uint64_t kMaxKeys = 1 << 16;
constexpr uint64_t kMaxKey = 65535;  // bytes, by the format
constexpr uint64_t kMaxName = 64;    // bytes, by the format
constexpr uint32_t kMostSizes = 4;
constexpr uint64_t kDefaultAlignment = 32, kMaxAlignment = 1 << 16;
constexpr std::string_view kAlignment = "general.alignment";

// The types of metadata, by the format's numbers.
enum : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64
};
constexpr uint64_t kValueBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

struct TypeInfo {
  GgmlType type;
  std::string_view name;
  GgmlBlock block;
};
constexpr TypeInfo kTypeInfos[] = {
    {GgmlType::kF32, "F32", {1, 4}},      {GgmlType::kF16, "F16", {1, 2}},
    {GgmlType::kBF16, "BF16", {1, 2}},    {GgmlType::kQ4_0, "Q4_0", {32, 18}},
    {GgmlType::kQ8_0, "Q8_0", {32, 34}},  {GgmlType::kQ6_K, "Q6_K", {256, 210}},
    {GgmlType::kQ4_1, "Q4_1", {32, 20}},  {GgmlType::kQ5_0, "Q5_0", {32, 22}},
    {GgmlType::kQ5_1, "Q5_1", {32, 24}},  {GgmlType::kQ4_K, "Q4_K", {256, 144}},
    {GgmlType::kQ5_K, "Q5_K", {256, 176}}};

const TypeInfo* info_of(uint32_t type) {
  const auto at = std::ranges::find(kTypeInfos, static_cast<GgmlType>(type), &TypeInfo::type);
  return at == std::end(kTypeInfos) ? nullptr : at;
}

// Reads from the front of the file. Throws an Error beyond its end.
class Reader {
 public:
  Reader(Bytes file, std::string_view what) : file_(file), what_(what) {}

  [[noreturn]] void fail(const std::string& message) const {
    throw Error(ErrorKind::kInput, cat("[gguf] ", what_, ": ", message));
  }
  Bytes take(uint64_t size, std::string_view of) {
    if (size > file_.size() - at_) {
      fail(cat(of, ": needs ", size, " bytes at ", at_, ", the file has ", file_.size()));
    }
    at_ += size;
    return file_.subspan(at_ - size, size);
  }
  template <typename T>
  T number(std::string_view of) {
    T value;
    std::memcpy(&value, take(sizeof(T), of).data(), sizeof value);
    return value;
  }
  std::string_view string(std::string_view of, uint64_t limit) {
    const auto length = number<uint64_t>(of);
    if (length > limit) fail(cat(of, ": expected at most ", limit, " bytes, got ", length));
    return as_text(take(length, of));
  }
  uint64_t at() const { return at_; }
  uint64_t size() const { return file_.size(); }
  Bytes rest() const { return file_.subspan(at_); }

 private:
  Bytes file_;
  std::string_view what_;
  uint64_t at_ = 0;
};

GgufArray read_array(Reader& in, const std::string& of) {
  GgufArray array;
  array.type = in.number<uint32_t>(of);
  array.count = in.number<uint64_t>(of);
  if (array.type > kF64 || array.type == kArray) {
    in.fail(cat(of, ": arrays of type ", array.type, " are not supported"));
  }
  if (array.type != kString) {
    const auto size = checked_mul(array.count, kValueBytes[array.type]);
    if (!size) in.fail(cat(of, ": ", array.count, " elements overflow"));
    array.bytes = in.take(*size, of);
    return array;
  }
  const Bytes from = in.rest();
  const uint64_t begin = in.at();
  // Each takes at least 8 bytes, so a false count ends with the file.
  for (uint64_t i = 0; i < array.count; ++i) in.string(of, in.size());
  array.bytes = from.first(in.at() - begin);
  return array;
}

Gguf::Value read_value(Reader& in, const std::string& of) {
  const auto type = in.number<uint32_t>(of);
  switch (type) {
    case kU8:
      return uint64_t{in.number<uint8_t>(of)};
    case kI8:
      return int64_t{in.number<int8_t>(of)};
    case kU16:
      return uint64_t{in.number<uint16_t>(of)};
    case kI16:
      return int64_t{in.number<int16_t>(of)};
    case kU32:
      return uint64_t{in.number<uint32_t>(of)};
    case kI32:
      return int64_t{in.number<int32_t>(of)};
    case kF32:
      return double{in.number<float>(of)};
    case kBool: {
      const auto byte = in.number<uint8_t>(of);
      if (byte > 1) in.fail(cat(of, ": expected a bool of 0 or 1, got ", int{byte}));
      return byte == 1;
    }
    case kString:
      return in.string(of, in.size());
    case kArray:
      return read_array(in, of);
    case kU64:
      return in.number<uint64_t>(of);
    case kI64:
      return in.number<int64_t>(of);
    case kF64:
      return in.number<double>(of);
    default:
      in.fail(cat(of, ": unknown type ", type));
  }
}

struct Place {
  uint64_t begin, size;  // from the start of the data
  std::string name;
};

GgufTensor read_tensor_info(Reader& in, const std::string& of, Place& place) {
  GgufTensor tensor;
  const auto count = in.number<uint32_t>(of);
  if (count == 0 || count > kMostSizes) {
    in.fail(cat(of, ": expected 1 to ", kMostSizes, " sizes, got ", count));
  }
  uint64_t elements = 1;
  for (uint32_t i = 0; i < count; ++i) {
    const auto size = in.number<uint64_t>(of);
    const auto product = checked_mul(elements, size);
    if (size == 0) in.fail(cat(of, ": has a size of 0"));
    if (!product || *product > static_cast<uint64_t>(INT64_MAX)) {
      in.fail(cat(of, ": its sizes overflow"));
    }
    elements = *product;
    tensor.dims.push_back(static_cast<int64_t>(size));
  }
  const auto row = static_cast<uint64_t>(tensor.dims[0]);
  std::reverse(tensor.dims.begin(), tensor.dims.end());
  const auto type = in.number<uint32_t>(of);
  const TypeInfo* info = info_of(type);
  if (info == nullptr) {
    in.fail(cat(of, ": type ", type,
                " is not supported, expected F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, "
                "Q5_K or Q6_K"));
  }
  tensor.type = info->type;
  if (row % info->block.elements != 0) {
    in.fail(cat(of, ": rows of ", row, " are no whole blocks of ", info->block.elements, " (",
                info->name, ")"));
  }
  const auto bytes = checked_mul(elements / info->block.elements, info->block.bytes);
  if (!bytes) in.fail(cat(of, ": its sizes overflow"));
  place.begin = in.number<uint64_t>(of);
  place.size = *bytes;
  return tensor;
}

void check_overlaps(const Reader& in, std::vector<Place>& places) {
  std::ranges::sort(places, {}, &Place::begin);
  for (size_t i = 1; i < places.size(); ++i) {
    const Place &before = places[i - 1], &next = places[i];
    if (next.begin < before.begin + before.size) {
      in.fail(cat("tensor ", shown(next.name), ": begins at ", next.begin, " and overlaps ",
                  shown(before.name)));
    }
  }
}

}  // namespace

GgmlBlock ggml_block(GgmlType type) { return info_of(static_cast<uint32_t>(type))->block; }
std::string_view ggml_type_name(GgmlType type) {
  return info_of(static_cast<uint32_t>(type))->name;
}

Gguf Gguf::parse(Bytes file, std::string_view what) {
  Gguf out;
  out.what_ = what;
  Reader in(file, what);
  if (as_text(in.take(4, "the magic")) != "GGUF") in.fail("does not begin with GGUF");
  const auto version = in.number<uint32_t>("the version");
  if (version != 2 && version != 3) {
    if ((version & 0xffff) == 0) in.fail("is big-endian, which is not supported");
    in.fail(cat("version ", version, ", expected 2 or 3",
                version == 1 ? "; llama.cpp's gguf-py writes the present one" : ""));
  }
  const auto tensors = in.number<uint64_t>("the number of tensors");
  const auto keys = in.number<uint64_t>("the number of keys");
  if (tensors > kMaxTensors) in.fail(cat(tensors, " tensors, expected at most ", kMaxTensors));
  if (keys > kMaxKeys) in.fail(cat(keys, " keys, expected at most ", kMaxKeys));

  for (uint64_t i = 0; i < keys; ++i) {
    const std::string key(in.string(cat("key ", i), kMaxKey));
    const std::string of = cat("key ", shown(key));
    if (!out.metadata_.emplace(key, read_value(in, of)).second)
      in.fail(cat(of, ": is there twice"));
  }
  uint64_t alignment = kDefaultAlignment;
  if (out.has(kAlignment)) {
    alignment = out.integer(kAlignment, 1, kMaxAlignment);
    if (alignment % 8 != 0 || (alignment & (alignment - 1)) != 0) {
      in.fail(cat(kAlignment, ": expected a power of two from 8 on, got ", alignment));
    }
  }

  std::vector<Place> places;
  for (uint64_t i = 0; i < tensors; ++i) {
    Place place{0, 0, std::string(in.string(cat("the name of tensor ", i), kMaxName))};
    const std::string of = cat("tensor ", shown(place.name));
    GgufTensor tensor = read_tensor_info(in, of, place);
    if (!out.tensors_.emplace(place.name, std::move(tensor)).second) {
      in.fail(cat(of, ": is there twice"));
    }
    places.push_back(std::move(place));
  }
  // The header ends inside the file, so this does not overflow; the padding may be missing if there
  // are no data.
  const uint64_t start = (in.at() + alignment - 1) / alignment * alignment;
  const Bytes data = start < file.size() ? file.subspan(start) : Bytes();
  for (const Place& place : places) {
    const std::string of = cat("tensor ", shown(place.name));
    if (place.begin % alignment != 0) {
      in.fail(cat(of, ": begins at ", place.begin, ", no multiple of ", alignment));
    }
    if (place.begin > data.size() || place.size > data.size() - place.begin) {
      in.fail(cat(of, ": ", place.size, " bytes at ", place.begin, ", the file has ", data.size(),
                  " of data"));
    }
    out.tensors_.find(place.name)->second.bytes = data.subspan(place.begin, place.size);
  }
  check_overlaps(in, places);
  return out;
}

void Gguf::refuse(const std::string& message) const {
  throw Error(ErrorKind::kInput, cat("[gguf] ", what_, ": ", message));
}

const Gguf::Value& Gguf::value(std::string_view key) const {
  const auto at = metadata_.find(key);
  if (at == metadata_.end()) refuse(cat("no key ", shown(key)));
  return at->second;
}

uint64_t Gguf::integer(std::string_view key, uint64_t low, uint64_t high) const {
  const Value& found = value(key);
  uint64_t number = 0;
  if (const auto* natural = std::get_if<uint64_t>(&found)) {
    number = *natural;
  } else if (const auto* whole = std::get_if<int64_t>(&found); whole != nullptr && *whole >= 0) {
    number = static_cast<uint64_t>(*whole);
  } else {
    refuse(cat(key, ": expected a whole number from 0 on"));
  }
  if (number < low || number > high) {
    refuse(cat(key, ": expected a whole number in ", low, "..", high, ", got ", number));
  }
  return number;
}

double Gguf::number(std::string_view key, double low, double high) const {
  const auto* number = std::get_if<double>(&value(key));
  if (number == nullptr) refuse(cat(key, ": expected a floating-point number"));
  if (!(*number >= low && *number <= high)) {
    refuse(cat(key, ": expected a number in ", low, "..", high, ", got ", *number));
  }
  return *number;
}

std::string_view Gguf::text(std::string_view key) const {
  const auto* text = std::get_if<std::string_view>(&value(key));
  if (text == nullptr) refuse(cat(key, ": expected a string"));
  return *text;
}

std::vector<std::string_view> Gguf::texts(std::string_view key, uint64_t limit) const {
  const auto* array = std::get_if<GgufArray>(&value(key));
  if (array == nullptr || array->type != kString || array->count > limit) {
    refuse(cat(key, ": expected an array of at most ", limit, " strings"));
  }
  std::vector<std::string_view> out;
  out.reserve(array->count);
  for (Bytes rest = array->bytes; out.size() < array->count;) {
    const uint64_t length = load_le64(rest.data());
    out.push_back(as_text(rest.subspan(8, length)));
    rest = rest.subspan(8 + length);
  }
  return out;
}

std::vector<int32_t> Gguf::integers(std::string_view key, uint64_t limit) const {
  const auto* array = std::get_if<GgufArray>(&value(key));
  if (array == nullptr || (array->type != kI32 && array->type != kU32) || array->count > limit) {
    refuse(cat(key, ": expected an array of at most ", limit, " 32-bit numbers"));
  }
  std::vector<int32_t> out(array->count);
  if (!out.empty()) std::memcpy(out.data(), array->bytes.data(), array->bytes.size());
  return out;
}

std::vector<bool> Gguf::flags(std::string_view key, uint64_t limit) const {
  const auto* array = std::get_if<GgufArray>(&value(key));
  if (array == nullptr || array->type != kBool || array->count > limit) {
    refuse(cat(key, ": expected an array of at most ", limit, " bools"));
  }
  std::vector<bool> out;
  for (const std::byte byte : array->bytes) out.push_back(byte != std::byte{0});
  return out;
}

bool Gguf::is_list(std::string_view key) const {
  return std::holds_alternative<GgufArray>(value(key));
}

Bytes Gguf::bytes(std::string_view key, uint64_t limit) const {
  const auto* array = std::get_if<GgufArray>(&value(key));
  if (array == nullptr || (array->type != kU8 && array->type != kI8) || array->count > limit) {
    refuse(cat(key, ": expected an array of at most ", limit, " bytes"));
  }
  return array->bytes;
}

std::vector<float> Gguf::floats(std::string_view key, uint64_t limit) const {
  const auto* array = std::get_if<GgufArray>(&value(key));
  if (array == nullptr || array->type != kF32 || array->count > limit) {
    refuse(cat(key, ": expected an array of at most ", limit, " floats"));
  }
  std::vector<float> out(array->count);
  if (!out.empty()) std::memcpy(out.data(), array->bytes.data(), array->bytes.size());
  // NaN has no place in any order.
  if (std::ranges::any_of(out, [](float x) { return x != x; })) refuse(cat(key, ": not a number"));
  return out;
}

bool Gguf::flag(std::string_view key, bool otherwise) const {
  if (!has(key)) return otherwise;
  const auto* flag = std::get_if<bool>(&value(key));
  if (flag == nullptr) refuse(cat(key, ": expected true or false"));
  return *flag;
}

}  // namespace split
