// print_products FOLDER: writes matrix products in WGSL by every type of weights, inputs, and what
// double precision makes of them.
#include <cmath>
#include <cstring>

#include "compile/compile.h"
#include "device/webgpu/merge_products.h"
#include "device/webgpu/product_wgsl.h"
#include "device/webgpu/weights.h"
#include "tensor/blocks.h"
#include "tensor/tensor.h"
#include "tensor/types.h"
#include "webgpu/cases.h"

namespace split::test {
namespace {

class Printer {
 public:
  explicit Printer(Cases& cases) : cases_(cases) {}

  // `twin`: the product times that by another matrix.
  void add(DType dtype, bool transposed, int64_t inner, int64_t columns, uint32_t rows,
           uint32_t block, bool twin = false) {
    const auto k = static_cast<size_t>(inner), m = static_cast<size_t>(columns);
    const Tensor w = transposed ? transpose(weight("w", dtype, {columns, inner}))
                                : weight("w", dtype, {inner, columns});
    const Tensor in = input("x", DType::kF32, {kRows, inner});
    Tensor y = matmul(in, w) + weight("b", DType::kF32, {columns});
    if (twin) y = y * matmul(in, transpose(weight("twin", dtype, {columns, inner})));
    const webgpu::MergedProgram merged =
        webgpu::merge_products(compile("product", {{"y", y}}, webgpu::kFuseRules));
    const Program& program = merged.program;
    CHECK(program.steps.size() == 1);
    const Step& step = program.steps[0];
    // Rows of the matrix for one of the result, and which of them has the bias.
    const size_t each = twin ? 2 : 1;
    size_t biased = 0;
    if (twin) {
      const int first = merged.weights.at(step.in(inputs::matmul::w)).slots[0];
      biased = program.slots[static_cast<size_t>(first)].name == "w" ? 0 : 1;
    }
    const webgpu::TapeKernel kernel = webgpu::product_kernel(program, step, block);

    const std::vector<float> x = cases_.numbers(rows * k), b = cases_.numbers(m);
    const std::vector<std::byte> bytes = matrix_of(dtype, k * m * each);
    const auto matrix_rows = static_cast<int64_t>(m * each);
    const TensorView view{dtype, transposed ? Dims{matrix_rows, inner} : Dims{inner, columns},
                          bytes};
    std::vector<float> values(k * m * each);
    if (is_quantised(dtype)) {
      const OwnedTensor all = dequantised(view);
      std::memcpy(values.data(), all.view.bytes.data(), values.size() * sizeof(float));
    } else {
      convert(view, DType::kF32, std::as_writable_bytes(std::span(values)));
    }
    std::vector<float> expected;
    double most = 0;
    for (uint32_t r = 0; r < rows; ++r) {
      for (size_t c = 0; c < m; ++c) {
        double made = 1, magnitude = 1;
        for (size_t one = 0; one < each; ++one) {
          double sum = one == biased ? b[c] : 0, size = std::abs(sum);
          for (size_t i = 0; i < k; ++i) {
            const size_t at = transposed ? (c * each + one) * k + i : i * m + c;
            const double product = double{x[r * k + i]} * double{values[at]};
            sum += product;
            size += std::abs(product);
          }
          made *= sum;
          magnitude *= size;
        }
        expected.push_back(static_cast<float>(made));
        most = std::max(most, magnitude);
      }
    }
    webgpu::Matrix packed = webgpu::packed(view, transposed);
    if (packed.scales.empty()) packed.scales.push_back(0);
    Json buffers = {cases_.file(std::vector<uint32_t>{rows, 0}), cases_.file(x),
                    cases_.file(packed.numbers), cases_.file(packed.scales)};
    for (const webgpu::TapeKernel::Bind& bind : kernel.binds) {
      buffers.push_back(bind.written ? cases_.result(expected) : cases_.file(b));
    }
    Json overrides = {
        {"COLUMNS", columns}, {"CAPACITY", 1}, {"COLUMN0", 0}, {"PIECE", matrix_rows}};
    for (const auto& [name, value] : kernel.overrides) overrides[name] = value;
    const auto outputs = static_cast<int64_t>(webgpu::product_columns(step, block));
    cases_.add(
        {{"name", cat(dtype_name(dtype), transposed ? " [" : "^T [", rows, ", ", inner, "] x ",
                      columns, " by ", block, twin ? ", and a twin" : "")},
         {"kernel", {{"text", kernel.text}, {"bases", webgpu::product_bases(program, step)}}},
         {"overrides", overrides},
         {"buffers", buffers},
         {"size", most},
         {"groups", {(rows + block - 1) / block, (matrix_rows + outputs - 1) / outputs}}});
  }

 private:
  // Blocks of noise, some of whose halves have no leading one.
  std::vector<std::byte> matrix_of(DType dtype, size_t n) {
    if (!is_quantised(dtype)) {
      const std::vector<float> made = cases_.numbers(n);
      std::vector<std::byte> bytes(n * dtype_size(dtype));
      convert({DType::kF32, {static_cast<int64_t>(n)}, std::as_bytes(std::span(made))}, dtype,
              bytes);
      return bytes;
    }
    const size_t block = block_bytes(dtype);
    std::vector<std::byte> bytes(n / block_elements(dtype) * block);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(cases_.random());
    for (size_t at = 0; at < bytes.size(); at += block) {
      const auto half = [&](size_t offset) {
        const uint16_t bits = f32_to_f16(cases_.random() % 3 == 0 ? 3e-6f : 0.013f);
        std::memcpy(bytes.data() + at + offset, &bits, sizeof bits);
      };
      half(dtype == DType::kQ6_K ? block - 2 : 0);
      if (dtype == DType::kQ4_K) half(2);
    }
    return bytes;
  }

  Cases& cases_;
};

void print(Cases& cases) {
  Printer printer(cases);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const bool transposed : {false, true}) {
      printer.add(dtype, transposed, 320, 70, 1, 1);
      printer.add(dtype, transposed, 45, 3, 5, 4);
    }
  }
  for (const DType dtype : {DType::kQ8_0, DType::kQ4_0, DType::kQ4_K, DType::kQ6_K}) {
    printer.add(dtype, true, 512, 70, 1, 1);
    printer.add(dtype, true, 256, 9, 5, 4);
    printer.add(dtype, true, 256, 9, 5, 8, true);
  }
  for (const DType dtype : {DType::kF16, DType::kQ4_0}) {  // twice as many lanes
    printer.add(dtype, true, 2048, 9, 1, 1);
    printer.add(dtype, true, 2304, 9, 11, 8, true);
  }
}

}  // namespace
}  // namespace split::test

int main(int argc, char** argv) {
  return split::test::print_cases(argc, argv, "products", split::test::print);
}
