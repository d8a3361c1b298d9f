#include "array/store.h"

#include "base/error.h"

namespace split::array {
namespace {

size_t counted(const Dims& dims, const std::string& name) {
  const auto n = element_count(dims);
  if (!n)
    throw Error(ErrorKind::kShape,
                cat("[array] '", name, "': expected sizes, got ", to_string(dims)));
  return static_cast<size_t>(*n);
}

}  // namespace

Store::Entry& Store::add(const std::string& name, Dims dims, bool state) {
  Entry& entry = entries_[name];
  entry = {.dtype = DType::kF32,
           .dims = dims,
           .floats = std::vector<float>(counted(dims, name)),
           .state = state};
  return entry;
}

Store::Entry& Store::add_numbers(const std::string& name, Dims dims) {
  Entry& entry = entries_[name];
  entry = {
      .dtype = DType::kI32, .dims = dims, .numbers = std::vector<int32_t>(counted(dims, name))};
  return entry;
}

Store::Entry& Store::add(const std::string& name, const TensorView& view, bool state) {
  if (view.dtype == DType::kI32) {
    Entry& entry = add_numbers(name, view.dims);
    std::memcpy(entry.numbers.data(), view.bytes.data(), view.bytes.size());
    return entry;
  }
  Entry& entry = add(name, view.dims, state);
  convert(view, DType::kF32, std::as_writable_bytes(std::span(entry.floats)));
  return entry;
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
