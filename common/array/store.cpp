#include "array/store.h"

#include <cstring>

#include "array/row_loops.h"
#include "base/error.h"
#include "tensor/types.h"

namespace split::array {
Store::Entry& Store::add(const std::string& name, Dims dims, bool state) {
  return add_typed(name, DType::kF32, std::move(dims), state);
}
Store::Entry& Store::add_numbers(const std::string& name, Dims dims) {
  return add_typed(name, DType::kI32, std::move(dims));
}
Store::Entry& Store::add(const std::string& name, const TensorView& view, bool state) {
  const DType type = view.dtype == DType::kI32 ? DType::kI32 : DType::kF32;
  Entry& entry = add_typed(name, type, view.dims, state);
  widen_numbers(view, entry.bytes());
  return entry;
}

std::span<std::byte> Store::Entry::bytes() {
  if (!wides.empty()) return std::as_writable_bytes(std::span(wides));
  return numbers.empty() ? std::as_writable_bytes(std::span(floats))
                         : std::as_writable_bytes(std::span(numbers));
}

Store::Entry& Store::add_typed(const std::string& name, DType dtype, Dims dims, bool state) {
  Entry& entry = entries_[name];
  const auto count = element_count(dims);
  if (!count) {
    throw Error(ErrorKind::kShape,
                cat("[array] '", name, "': expected sizes, got ", to_string(dims)));
  }
  const auto n = static_cast<size_t>(*count);
  entry = {.dtype = dtype, .dims = std::move(dims), .state = state};
  switch (computing(dtype)) {
    case DType::kF32:
      entry.floats.resize(n);
      break;
    case DType::kI64:
      entry.wides.resize(n);
      break;
    default:
      entry.numbers.resize(n);
  }
  return entry;
}

Store::Entry& Store::add_typed(const std::string& name, const TensorView& view, bool state) {
  Entry& entry = add_typed(name, view.dtype, view.dims, state);
  widen_numbers(view, entry.bytes());
  return entry;
}

void widen_numbers(const TensorView& view, std::span<std::byte> to) {
  if (is_floating(view.dtype) || is_quantised(view.dtype)) return convert(view, DType::kF32, to);
  if (computing(view.dtype) == view.dtype) {
    if (!to.empty()) std::memcpy(to.data(), view.bytes.data(), to.size());
    return;
  }
  for (size_t i = 0; i < view.bytes.size(); ++i) {  // U8 and BOOL
    const auto number = static_cast<int32_t>(view.bytes[i]);
    std::memcpy(to.data() + i * sizeof number, &number, sizeof number);
  }
}

OwnedTensor narrowed_numbers(std::span<const std::byte> from, DType dtype, const Dims& dims) {
  OwnedTensor made;
  if (is_half(dtype)) return converted({DType::kF32, dims, from}, dtype);
  const size_t size = dtype_size(computing(dtype));
  made.storage.resize(from.size() / size * dtype_size(dtype));
  for (size_t i = 0; i < made.storage.size() && size != dtype_size(dtype); ++i) {
    made.storage[i] = from[i * size];  // the lowest byte
  }
  if (size == dtype_size(dtype) && !from.empty()) {
    std::memcpy(made.storage.data(), from.data(), from.size());
  }
  made.view = {dtype, dims, made.storage};
  return made;
}

void Store::fetch(Entry& entry) {
  if (entry.stale) entry.remote->pull(entry);
  entry.stale = false;
}

Store::Entry* Store::find(const std::string& name) {
  const auto at = entries_.find(name);
  return at == entries_.end() ? nullptr : &at->second;
}
const Store::Entry& Store::read(const std::string& name) const {
  const auto at = entries_.find(name);
  if (at == entries_.end()) {
    throw Error(ErrorKind::kNotFound, cat("[array] no tensor '", name, "'"));
  }
  fetch(at->second);
  return at->second;
}
Store::Entry& Store::at(const std::string& name) {
  read(name);
  Entry& entry = entries_.at(name);
  entry.changed = true;
  return entry;
}
const std::map<std::string, Store::Entry>& Store::entries() const {
  for (auto& [name, entry] : entries_) fetch(entry);
  return entries_;
}

}  // namespace split::array
