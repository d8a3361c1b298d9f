#include "step/point.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/error.h"
#include "step/names.h"

namespace split {

std::optional<Point> Point::parse(std::string_view text, int layers) {
  if (text == names::kNorm) return norm();
  if (text == names::kHead) return head();
  const auto block = parse_u64(text, 0, static_cast<uint64_t>(layers));
  if (!block) return std::nullopt;
  return static_cast<int>(*block);
}

int Point::block() const {
  CHECK(order_ <= kBehind);
  return std::max(0, order_);
}

int Point::blocks_before(int layers) const { return std::clamp(order_, 0, layers); }

int Point::stage(int layers) const {
  if (order_ > kBehind) return layers + order_ - kBehind;
  CHECK(order_ <= layers);
  return order_;
}

std::string Point::name() const {
  if (*this == tokens()) return "tokens";
  if (*this == norm()) return std::string(names::kNorm);
  if (*this == head()) return std::string(names::kHead);
  return *this == top() ? "top" : std::to_string(order_);
}

int default_cut(int layers) { return std::max(0, layers - 2); }

}  // namespace split
