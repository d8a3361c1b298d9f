#include "step/wanted.h"

namespace split {

size_t Wanted::count(uint32_t rows) const {
  switch (kind) {
    case kNone:
      return 0;
    case kLast:
      return rows > 0 ? 1 : 0;
    case kAll:
      return rows;
    case kList:
      return list.size();
  }
  return 0;
}

uint32_t Wanted::first(uint32_t rows) const {
  if (kind == kList) return list.empty() ? rows : list.front();
  return rows - static_cast<uint32_t>(count(rows));
}

Wanted Wanted::slice(uint32_t rows, uint32_t first, uint32_t count) const {
  if (kind == kLast && first + count < rows) return kNone;
  if (kind != kList) return kind;
  std::vector<uint32_t> inside;
  for (const uint32_t row : list) {
    if (row >= first && row < first + count) inside.push_back(row - first);
  }
  return Wanted(std::move(inside));
}

void Wanted::append_to(std::vector<uint32_t>& out, uint32_t rows, uint32_t offset) const {
  if (kind == kList) {
    for (const uint32_t row : list) out.push_back(offset + row);
    return;
  }
  const auto wanted = static_cast<uint32_t>(count(rows));
  for (uint32_t row = rows - wanted; row < rows; ++row) out.push_back(offset + row);
}

}  // namespace split
