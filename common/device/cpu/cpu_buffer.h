// Memory of the CPU device: its own, or borrowed and read in place; and a matrix in the order of
// the kernels, made when a program first multiplies by it.
#pragma once

#include <algorithm>
#include <memory>

#include "base/resources/thread_pool.h"
#include "base/system/pages.h"
#include "device/cpu/kernels/kernels.h"
#include "device/device.h"

namespace split {

class CpuBuffer : public Buffer {
 public:
  // Own memory, zeroed and not touched until used.
  explicit CpuBuffer(size_t bytes) : size_(bytes), mapped_(bytes > 0 ? bytes : 1) {
    data_ = take_pages(mapped_);
    if (data_ == nullptr) {
      throw Error(ErrorKind::kDevice, cat("[cpu] no room for ", bytes, " bytes"));
    }
  }
  // Borrowed bytes, read only.
  explicit CpuBuffer(Bytes bytes)
      : size_(bytes.size()), data_(const_cast<std::byte*>(bytes.data())) {}
  ~CpuBuffer() override {
    if (mapped_ > 0) give_pages(data_, mapped_);
  }
  CpuBuffer(const CpuBuffer&) = delete;
  CpuBuffer& operator=(const CpuBuffer&) = delete;

  size_t size() const override { return size_; }
  bool borrows() const override { return mapped_ == 0 && (packed_ == nullptr || in_place_); }
  std::byte* data() const { return data_; }

  // The matrix in the order of the kernels, made at the first call: [inner, width] for matmul(), or
  // for pack_strip().
  std::byte* packed(DType dtype, size_t inner, size_t width, ThreadPool& pool) {
    if (packed_ != nullptr) return packed_->data();
    check_size(dtype, inner, width);
    packed_ = std::make_unique<CpuBuffer>(size_);
    constexpr size_t kEach = 64;
    pool.run((inner + kEach - 1) / kEach, [&](size_t task) {
      pack_matrix(data_, dtype, inner, width, task * kEach, std::min(inner, (task + 1) * kEach),
                  packed_->data());
    });
    return packed_->data();
  }
  std::byte* packed_strips(DType dtype, Rounding rounding, bool transposed, size_t inner,
                           size_t width, ThreadPool& pool) {
    if (packed_ != nullptr) return packed_->data();
    check_size(dtype, inner, width);
    packed_ = std::make_unique<CpuBuffer>(strips_of(width) * steps_of(inner) * step_bytes(dtype));
    pool.run(strips_of(width), [&](size_t strip) {
      pack_strip(data_, dtype, rounding, transposed, inner, width, strip, packed_->data());
    });
    return packed_->data();
  }
  bool has_packed() const { return packed_ != nullptr; }
  // Notes that a program reads data(), packed or not.
  void read_in_place() { in_place_ = true; }

 private:
  void check_size(DType dtype, size_t inner, size_t width) const {
    CHECK(size_ == tensor_bytes(dtype, {static_cast<int64_t>(width), static_cast<int64_t>(inner)}));
  }

  size_t size_ = 0;
  size_t mapped_ = 0;
  std::byte* data_ = nullptr;
  std::unique_ptr<CpuBuffer> packed_;
  bool in_place_ = false;
};

}  // namespace split
