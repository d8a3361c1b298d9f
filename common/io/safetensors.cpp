#include "io/safetensors.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/sort.h"

namespace split {
namespace {

constexpr size_t kLengthBytes = 8;
// 4 MiB: room for 30,000 tensors (GPT-2 XL has 580, 64 KB). JSON in memory may take ten times its
// text.
constexpr uint64_t kMaxHeader = 4 << 20;
constexpr int kMaxDepth = 3;  // the header, a tensor, its shape
constexpr size_t kMaxDims = 8;
constexpr std::string_view kMetadata = "__metadata__";

struct Entry {
  std::string name;
  DType dtype = DType::kF32;
  Dims dims;
  uint64_t begin = 0, end = 0;  // bytes from the start of the data
};

class Parser {
 public:
  Parser(Bytes file, std::string_view what, uint64_t max_header)
      : file_(file), what_(what), max_header_(max_header) {}

  Bytes data() const { return data_; }

  Json header() {
    if (file_.size() < kLengthBytes) {
      fail("", cat("expected at least ", kLengthBytes, " bytes, got ", file_.size()));
    }
    const uint64_t length = load_le64(file_.data());
    if (length > max_header_) {
      const char* const junk = length > file_.size() ? "no safetensors file: " : "";
      fail("", cat(junk, "a header of ", length, " bytes, expected at most ", max_header_));
    }
    if (length > file_.size() - kLengthBytes) {
      fail("", cat("a header of ", length, " bytes ends past the file's ", file_.size()));
    }
    const std::string_view text = as_text(file_.subspan(kLengthBytes, length));
    if (!text.starts_with('{')) fail("", "the header does not begin with '{'");
    data_ = file_.subspan(kLengthBytes + length);
    return parse_json(text, kMaxDepth, cat("[safetensors] ", what_, ": the header"));
  }

  Entry entry(const std::string& name, const Json& value) const {
    Entry out;
    out.name = name;
    if (!value.is_object()) fail(name, "expected an object of dtype, shape and data_offsets");
    for (const auto& [field, unused] : value.members()) {
      if (field != "dtype" && field != "shape" && field != "data_offsets") {
        fail(name, cat("unknown field ", shown(field)));
      }
    }
    read_dtype(field(name, value, "dtype"), out);
    read_shape(field(name, value, "shape"), out);
    read_offsets(field(name, value, "data_offsets"), out);

    const std::optional<uint64_t> size = tensor_bytes(out.dtype, out.dims);
    if (!size) fail(name, cat("shape ", to_string(out.dims), " overflows"));
    if (out.begin > out.end) fail(name, cat("begins at ", out.begin, ", after its end ", out.end));
    if (out.end > data_.size()) {
      fail(name, cat("ends at ", out.end, ", past the data's ", data_.size(), " bytes"));
    }
    if (out.end - out.begin != *size) {
      fail(name, cat(dtype_name(out.dtype), " ", to_string(out.dims), " takes ", *size,
                     " bytes, data_offsets hold ", out.end - out.begin));
    }
    return out;
  }

  Safetensors::Metadata metadata(const Json& value) const {
    if (!value.is_object()) fail("", "__metadata__ is not an object");
    Safetensors::Metadata out;
    for (const auto& [key, text] : value.members()) {
      if (!text.is_string()) fail("", cat("__metadata__ ", shown(key), " is not a string"));
      out.emplace(key, text.text());
    }
    return out;
  }

  // Checks that every byte of the data belongs to exactly one tensor.
  void check_cover(std::vector<Entry>& entries) const {
    sort_stably(entries, [](const Entry& a, const Entry& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    uint64_t covered = 0;
    for (const Entry& entry : entries) {
      if (entry.begin < covered) {
        fail(entry.name, cat("begins at ", entry.begin,
                             " and overlaps the tensor before it, which ends at ", covered));
      }
      if (entry.begin > covered) {
        fail(entry.name, cat("begins at ", entry.begin, " and leaves a hole after byte ", covered));
      }
      covered = entry.end;
    }
    if (covered != data_.size()) {
      fail("", cat(data_.size() - covered, " bytes of data after the last tensor"));
    }
  }

 private:
  [[noreturn]] void fail(std::string_view tensor, const std::string& message) const {
    const std::string where = tensor.empty() ? "" : cat("tensor ", shown(tensor), ": ");
    throw Error(ErrorKind::kInput, cat("[safetensors] ", what_, ": ", where, message));
  }

  const Json& field(const std::string& name, const Json& value, const char* key) const {
    const Json* found = value.find(key);
    if (found == nullptr) fail(name, cat("no ", key));
    return *found;
  }

  void read_dtype(const Json& value, Entry& out) const {
    if (!value.is_string()) fail(out.name, "dtype is not a string");
    const auto& text = value.text();
    const std::optional<DType> dtype = dtype_from_name(text);
    if (!dtype) fail(out.name, cat("dtype ", shown(text), " is not supported"));
    out.dtype = *dtype;
  }

  void read_shape(const Json& value, Entry& out) const {
    if (!value.is_array()) fail(out.name, "shape is not an array");
    if (value.size() > kMaxDims) {
      fail(out.name, cat("shape has ", value.size(), " sizes, expected at most ", kMaxDims));
    }
    for (const Json& size : value) {
      if (size.is_number_integer() && !size.is_number_unsigned()) {
        fail(out.name, "shape has a negative size");
      }
      if (!size.is_number_unsigned()) fail(out.name, "shape has a size that is not a whole number");
      const auto n = size.get<uint64_t>();
      if (n > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        fail(out.name, cat("shape has a size of ", n, ", over 63 bits"));
      }
      out.dims.push_back(static_cast<int64_t>(n));
    }
  }

  void read_offsets(const Json& value, Entry& out) const {
    if (!value.is_array() || value.size() != 2) fail(out.name, "data_offsets is not a pair");
    if (!value[0].is_number_unsigned() || !value[1].is_number_unsigned()) {
      fail(out.name, "data_offsets are not whole numbers from 0");
    }
    out.begin = value[0].get<uint64_t>();
    out.end = value[1].get<uint64_t>();
  }

  Bytes file_;
  Bytes data_;
  std::string_view what_;
  uint64_t max_header_;
};

// Returns the text as a JSON string.
std::string quoted(const std::string& text) {
  try {
    return Json(text).dump({.refuse_bytes = true});
  } catch (const Error&) {  // not UTF-8
  }
  check_failed(__FILE__, __LINE__, "names and metadata are valid UTF-8");
}

}  // namespace

Safetensors Safetensors::parse(Bytes file, std::string_view what, uint64_t max_header) {
  Parser parser(file, what, std::min(max_header, kMaxHeader));
  const Json header = parser.header();
  Safetensors out;
  std::vector<Entry> entries;
  entries.reserve(header.size());
  for (const auto& [name, value] : header.members()) {
    if (name == kMetadata) {
      out.metadata_ = parser.metadata(value);
    } else {
      entries.push_back(parser.entry(name, value));
    }
  }
  parser.check_cover(entries);
  for (Entry& entry : entries) {
    const Bytes bytes = parser.data().subspan(entry.begin, entry.end - entry.begin);
    out.tensors_.emplace(std::move(entry.name),
                         TensorView{entry.dtype, std::move(entry.dims), bytes});
  }
  return out;
}

std::string safetensors_header(std::span<const NamedTensor> tensors,
                               const Safetensors::Metadata& metadata) {
  std::string text = "{";
  const auto member = [&](const std::string& name) -> std::string& {
    if (!text.ends_with('{')) text += ',';
    return text += quoted(name) + ':';
  };
  if (!metadata.empty()) {
    member(std::string(kMetadata)) += '{';
    for (const auto& [key, value] : metadata) member(key) += quoted(value);
    text += '}';
  }
  std::set<std::string_view> names;
  uint64_t offset = 0;
  for (const auto& [name, view] : tensors) {
    CHECK(name != kMetadata && names.insert(name).second);
    CHECK(!is_quantised(view.dtype) && view.dims.size() <= kMaxDims);
    const std::optional<uint64_t> bytes = tensor_bytes(view.dtype, view.dims);
    CHECK(bytes && (view.bytes.empty() || view.bytes.size() == *bytes));
    const uint64_t end = offset + *bytes;
    member(name) += cat(R"({"dtype":")", dtype_name(view.dtype), R"(","shape":[)");
    for (size_t i = 0; i < view.dims.size(); ++i) text += cat(i == 0 ? "" : ",", view.dims[i]);
    text += cat(R"(],"data_offsets":[)", offset, ",", end, "]}");
    offset = end;
  }
  text += '}';
  text.append((8 - text.size() % 8) % 8, ' ');
  CHECK(text.size() <= kMaxHeader);

  std::string out(kLengthBytes, '\0');
  const uint64_t length = text.size();
  std::memcpy(out.data(), &length, kLengthBytes);  // little-endian, as load_le64 asserts
  return out + text;
}

std::string with_tensors(std::string header, std::span<const NamedTensor> tensors) {
  size_t size = header.size();
  for (const NamedTensor& tensor : tensors) size += tensor.view.bytes.size();
  header.reserve(size);
  for (const NamedTensor& tensor : tensors) header += as_text(tensor.view.bytes);
  return header;
}

}  // namespace split
