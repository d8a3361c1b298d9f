// Matrix products on a device, with an epilogue, in every type and company of rows.
#pragma once

#include "support/device_bench.h"
#include "tensor/tensor.h"

namespace split::test {

// gelu(x w + b) over 33 rows, as one matrix and activations of noise make it.
struct Products {
  static constexpr uint32_t kRowCount = 33;
  Products(Device& device, int64_t inner, int64_t columns, DType dtype, bool transposed,
           uint32_t rows = kRowCount)
      : device(device),
        inner(inner),
        columns(columns),
        dtype(dtype),
        transposed(transposed),
        rows(rows) {
    const float scale = 1.0f / std::sqrt(static_cast<float>(inner));
    for (uint32_t i = 0; i < rows * inner; ++i) xs.push_back(noise(i));
    for (uint32_t i = 0; i < inner * columns; ++i) ws.push_back(noise(i + 31, scale));
    for (uint32_t i = 0; i < columns; ++i) bs.push_back(noise(i + 77));
  }
  // Each row's product is a row of the matrix.
  void pick_elements() {
    std::fill(xs.begin(), xs.end(), 0.0f);
    for (uint32_t row = 0; row < rows; ++row) xs[row * inner + row * 65 % inner] = 1;
  }
  std::unique_ptr<Bench> bench() const {
    const Tensor x = input("x", DType::kF32, {kRows, inner});
    const Tensor w = transposed ? transpose(weight("w", dtype, {columns, inner}))
                                : weight("w", dtype, {inner, columns});
    const DType vector = is_quantised(dtype) ? DType::kF32 : dtype;
    // Units take what was made for products alone.
    const Tensor y = gelu_new(matmul(units ? relu(x) : x, w) + weight("b", vector, {columns}));
    Limits limits;
    limits.rows = rows;
    limits.matrix = limits.wide = units;
    auto bench = std::make_unique<Bench>(device, limits);
    bench->set("x", xs);
    bench->set("w", ws);
    bench->set("b", bs);
    bench->add(compile("m", {{"y", y}}, device.fuse_rules()));
    bench->load();
    return bench;
  }
  std::vector<float> run(Bench& bench, uint32_t slice, Phase phase = Phase::kPrompt) const {
    return in_slices(bench, xs, static_cast<size_t>(inner), static_cast<size_t>(columns), rows,
                     slice, phase);
  }
  Device& device;
  int64_t inner, columns;
  DType dtype;
  bool transposed;
  uint32_t rows;
  bool units = false;  // matrix units may compute it
  std::vector<float> xs, ws, bs;
};

// Compares products of each size and type with the reference, and rows in every company with each
// other. `blocks_round_rows`: a product by blocks may round its rows to bf16, 2^-9 of each number;
// else reading blocks rounds nothing.
inline void expect_products(Device& device, std::span<const std::pair<int64_t, int64_t>> sizes,
                            std::span<const DType> dtypes, bool blocks_round_rows = false) {
  for (const auto& [inner, columns] : sizes) {
    for (const DType dtype : dtypes) {
      for (const bool transposed : {false, true}) {
        if (is_quantised(dtype) && !transposed) continue;
        const std::string what = cat(inner, " x ", columns, " ", dtype_name(dtype), transposed);
        const bool rounds = blocks_round_rows && is_quantised(dtype);
        Products products(device, inner, columns, dtype, transposed);
        const auto bench = products.bench();
        const std::vector<float> all = products.run(*bench, Products::kRowCount);
        bench->run_reference(rows_only(Products::kRowCount));
        expect_close(all, bench->reference.values.at("y"), what, rounds ? 4e-3 : 2e-6,
                     rounds ? 4e-3 : 1e-5);
        for (const uint32_t slice : {1u, 2u, 3u, 4u, 8u, 9u}) {
          expect_equal_bits(products.run(*bench, slice), all, cat(what, " by ", slice));
        }
        if (!is_quantised(dtype) || rounds) continue;
        // Where a row picks an element, the bits of the same value as a float.
        products.pick_elements();
        const std::vector<float> picked = products.run(*products.bench(), Products::kRowCount);
        products.dtype = DType::kF32;
        products.ws = bench->rounded("w");
        expect_equal_bits(products.run(*products.bench(), Products::kRowCount), picked, what);
      }
    }
  }
}

}  // namespace split::test
