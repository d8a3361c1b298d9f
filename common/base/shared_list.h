// An immutable list that copies share.
#pragma once

#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace split {

template <typename T>
class SharedList {
 public:
  SharedList() = default;
  SharedList(std::vector<T> values)
      : values_(std::make_shared<const std::vector<T>>(std::move(values))) {}
  SharedList(std::initializer_list<T> values) : SharedList(std::vector<T>(values)) {}

  size_t size() const { return all().size(); }
  bool empty() const { return all().empty(); }
  auto begin() const { return all().begin(); }
  auto end() const { return all().end(); }
  const T& operator[](size_t i) const { return all()[i]; }

 private:
  std::span<const T> all() const {
    return values_ == nullptr ? std::span<const T>() : std::span<const T>(*values_);
  }
  std::shared_ptr<const std::vector<T>> values_;
};

}  // namespace split
