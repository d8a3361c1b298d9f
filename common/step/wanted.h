// The rows of a step whose result is wanted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace split {

struct Wanted {
  enum Kind : uint8_t { kNone, kLast, kAll, kList };

  Wanted(Kind rows = kLast) : kind(rows) {}
  // These rows, ascending.
  explicit Wanted(std::vector<uint32_t> rows) : kind(kList), list(std::move(rows)) {}
  bool operator==(const Wanted&) const = default;

  // Number of them among `rows`.
  size_t count(uint32_t rows) const;
  // Index of the first one among `rows`; `rows` if there is none.
  uint32_t first(uint32_t rows) const;
  // The wanted rows of [first, first + count) among `rows`, counted from the first of them.
  Wanted slice(uint32_t rows, uint32_t first, uint32_t count) const;
  // Appends the rows among `rows`, each plus `offset`.
  void append_to(std::vector<uint32_t>& out, uint32_t rows, uint32_t offset) const;

  Kind kind;
  std::vector<uint32_t> list;  // kList's
};

}  // namespace split
