// Numbers as PyTorch 1.13 prints them: all of one width, 4 digits, large tensors by their edges.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "array/value.h"
#include "base/error.h"

namespace split {
namespace {

constexpr int64_t kMost = 1000, kEdge = 3, kLineWidth = 80;

class Printer {
 public:
  Printer(DType dtype, const Dims& dims, const std::vector<double>& numbers)
      : dtype_(dtype), dims_(dims), numbers_(numbers), whole_(!is_floating(dtype)) {
    summarised_ = static_cast<int64_t>(numbers_.size()) > kMost;
    measure();
  }
  std::string text() const { return tensor(0, 0, 7); }

 private:
  // Indices of an axis that are shown; -1 stands for those that are not.
  std::vector<int64_t> shown(int64_t n) const {
    std::vector<int64_t> all;
    for (int64_t i = 0; i < n; ++i) {
      if (summarised_ && n > 2 * kEdge && i == kEdge) {
        all.push_back(-1);
        i = n - kEdge;
      }
      all.push_back(i);
    }
    return all;
  }
  void each(size_t axis, int64_t at, const auto& call) const {
    if (axis == dims_.size()) return call(numbers_[static_cast<size_t>(at)]);
    for (const int64_t i : shown(dims_[axis])) {
      if (i >= 0) each(axis + 1, at * dims_[axis] + i, call);
    }
  }
  void measure() {
    double least = 0, most = 0;
    bool some = false;
    each(0, 0, [&](double x) {
      if (whole_ || !std::isfinite(x) || x == 0) return;
      const double size = std::abs(x);
      least = some ? std::min(least, size) : size;
      most = some ? std::max(most, size) : size;
      some = true;
      fractions_ = fractions_ || std::ceil(x) != x;
    });
    if (some) {
      scientific_ = most / least > 1000 || most > 1e8 || (fractions_ && least < 1e-4);
    }
    each(0, 0, [&](double x) {
      if (whole_ || (std::isfinite(x) && x != 0)) width_ = std::max(width_, plain(x).size());
    });
  }
  std::string plain(double x) const {
    if (dtype_ == DType::kBool) return x != 0 ? "True" : "False";
    if (whole_) return cat(static_cast<int64_t>(x));
    if (std::isnan(x)) return "nan";
    if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
    char text[64];
    std::snprintf(text, sizeof text, scientific_ ? "%.4e" : fractions_ ? "%.4f" : "%.0f.", x);
    return text;
  }
  std::string number(double x) const {
    const std::string text = plain(x);
    return std::string(width_ - std::min(width_, text.size()), ' ') + text;
  }
  std::string tensor(size_t axis, int64_t at, size_t indent) const {
    if (axis == dims_.size()) {
      return dims_.empty() ? plain(numbers_[0]) : number(numbers_[static_cast<size_t>(at)]);
    }
    const int64_t n = dims_[axis];
    const bool last = axis + 1 == dims_.size();
    // A line has room for so many of a row.
    const int64_t a_line = std::max<int64_t>(
        1, (kLineWidth - static_cast<int64_t>(indent)) / static_cast<int64_t>(width_ + 2));
    std::string text = "[";
    int64_t done = 0;
    for (const int64_t i : shown(n)) {
      if (done > 0) {
        text += ",";
        if (last && done % a_line != 0) {
          text += " ";
        } else {
          text +=
              std::string(last ? 1 : dims_.size() - axis - 1, '\n') + std::string(indent + 1, ' ');
        }
      }
      ++done;
      text += i < 0 ? (last ? " ..." : "...") : tensor(axis + 1, at * n + i, indent + 1);
    }
    return text + "]";
  }

  const DType dtype_;
  const Dims& dims_;
  const std::vector<double>& numbers_;
  const bool whole_;
  bool summarised_ = false, fractions_ = false, scientific_ = false;
  size_t width_ = 0;
};

}  // namespace

std::string printed(DType dtype, const Dims& dims, const std::vector<double>& numbers,
                    bool requires_grad) {
  const Printer printer(dtype, dims, numbers);
  std::string text = "tensor(" + printer.text();
  const bool empty = count_of(dims) == 0;
  if (empty) {
    text = "tensor([]";
    if (dims.size() != 1) {
      text += ", size=(";
      for (size_t i = 0; i < dims.size(); ++i) text += cat(i == 0 ? "" : ", ", dims[i]);
      text += ")";
    }
  }
  const char* const type = dtype == DType::kF16             ? "torch.float16"
                           : dtype == DType::kBF16          ? "torch.bfloat16"
                           : dtype == DType::kI32           ? "torch.int32"
                           : dtype == DType::kU8            ? "torch.uint8"
                           : empty && dtype == DType::kI64  ? "torch.int64"
                           : empty && dtype == DType::kBool ? "torch.bool"
                                                            : nullptr;
  if (type != nullptr) text += cat(", dtype=", type);
  return text + (requires_grad ? ", requires_grad=True)" : ")");
}

}  // namespace split
