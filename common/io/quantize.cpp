#include "io/quantize.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>

#include "base/json.h"

namespace split {
namespace {

constexpr size_t kLanes = 8;  // partial sums: a fixed order with several at once

// A block rounded to multiples of d. The multiples are floats until the block is packed, so that
// every loop here is over floats.
struct Rounded {
  uint16_t d = 0;
  float error = 0;  // sum of squares
  std::array<float, kBlock> q{};
};

struct Format {
  float low, high;  // range of q
};
constexpr Format kQ8{-127, 127}, kQ4{-8, 7};

// Rounds to nearest even, for |x| < 2^22: one addition pushes the fraction out of the mantissa.
float nearest(float x) {
  constexpr float kPush = 12582912.0f;  // 1.5 * 2^23
  return (x + kPush) - kPush;
}

float sum(const std::array<float, kLanes>& lanes) {
  float total = 0;
  for (const float lane : lanes) total += lane;
  return total;
}

// Computes the error of d and q.
void measure(const float* x, Rounded& block) {
  const float d = f16_to_f32(block.d);
  std::array<float, kLanes> errors{};
  for (size_t i = 0; i < kBlock; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float e = x[i + lane] - d * block.q[i + lane];
      errors[lane] += e * e;
    }
  }
  block.error = sum(errors);
}

// Rounds to multiples of the scale as stored. Returns false if a half cannot hold it.
bool round_to(const float* x, const Format& format, float scale, Rounded& block) {
  block.d = f32_to_f16(scale);
  const float d = f16_to_f32(block.d);
  if (d == 0 || (block.d & 0x7c00u) == 0x7c00u) return false;
  const float inverse = 1.0f / d;
  for (size_t i = 0; i < kBlock; ++i) {
    block.q[i] = std::min(std::max(nearest(x[i] * inverse), format.low), format.high);
  }
  measure(x, block);
  return true;
}

// Rounds like ggml: quotients by the scale before it became a half.
Rounded like_ggml(DType to, const float* x, float scale) {
  Rounded block;
  block.d = f32_to_f16(scale);
  const float inverse = f16_to_f32(block.d) == 0 ? 0.0f : 1.0f / scale;  // otherwise all values are
                                                                         // 0
  for (size_t i = 0; i < kBlock; ++i) {
    const float quotient = x[i] * inverse;
    if (to == DType::kQ8_0) {  // roundf: halves away from zero
      const float whole = static_cast<float>(static_cast<int>(quotient));
      const float rest = quotient - whole;
      block.q[i] = whole + (rest >= 0.5f ? 1.0f : rest <= -0.5f ? -1.0f : 0.0f);
    } else {
      block.q[i] = static_cast<float>(std::min(15, static_cast<int>(quotient + 8.5f)) - 8);
    }
  }
  measure(x, block);
  return block;
}

// Returns the best scale for these q.
float least_squares(const float* x, const Rounded& block) {
  std::array<float, kLanes> xq{}, qq{};
  for (size_t i = 0; i < kBlock; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      xq[lane] += x[i + lane] * block.q[i + lane];
      qq[lane] += block.q[i + lane] * block.q[i + lane];
    }
  }
  const float squares = sum(qq);
  return squares > 0 ? sum(xq) / squares : 0.0f;
}

// Scales to try, as multiples of ggml's. For Q4_0 the value of largest magnitude need not be -8 d:
// it may be clipped, or be 7 d with the scale's sign turned, where -8 is then to spare for others.
constexpr float kTries[] = {1.0f,   0.84f,  0.88f,  0.92f,  0.96f,   1.04f,   1.08f,  1.12f,
                            -0.92f, -0.98f, -1.04f, -1.10f, -1.143f, -1.185f, -1.23f, -1.28f};

Rounded best_of(DType to, const float* x) {
  float largest = 0;  // the value of largest magnitude, with its sign
  for (size_t i = 0; i < kBlock; ++i) {
    if (std::abs(x[i]) > std::abs(largest)) largest = x[i];
  }
  const bool q8 = to == DType::kQ8_0;
  const Format& format = q8 ? kQ8 : kQ4;
  const float scale = q8 ? std::abs(largest) / 127.0f : largest / -8.0f;
  Rounded best = like_ggml(to, x, scale), tried;
  const auto take = [&](float candidate) {
    if (round_to(x, format, candidate, tried) && tried.error < best.error) best = tried;
  };
  for (const float factor : std::span(kTries).first(q8 ? 1 : std::size(kTries))) {
    take(scale * factor);
  }
  for (int i = 0; i < 2; ++i) take(least_squares(x, best));
  return best;
}

}  // namespace

bool quantise_block(DType to, const float* values, std::byte* out) {
  CHECK(is_quantised(to));
  uint32_t largest = 0;
  for (size_t i = 0; i < kBlock; ++i) {
    largest = std::max(largest, std::bit_cast<uint32_t>(values[i]) & 0x7fffffffu);
  }
  constexpr float kLargestHalf = 65504;
  const float limit = kLargestHalf * (to == DType::kQ8_0 ? 127.0f : 8.0f);
  if (largest > std::bit_cast<uint32_t>(limit)) return false;
  const Rounded block = best_of(to, values);
  if (to == DType::kQ8_0) {
    BlockQ8 packed;
    packed.d = block.d;
    for (size_t i = 0; i < kBlock; ++i) packed.q[i] = static_cast<int8_t>(block.q[i]);
    std::memcpy(out, &packed, sizeof packed);
  } else {
    BlockQ4 packed;
    packed.d = block.d;
    for (size_t i = 0; i < kBlock / 2; ++i) {
      const int low = static_cast<int>(block.q[i]) + 8;
      const int high = static_cast<int>(block.q[i + kBlock / 2]) + 8;
      packed.q[i] = static_cast<uint8_t>(low | high << 4);
    }
    std::memcpy(out, &packed, sizeof packed);
  }
  return true;
}

OwnedTensor quantised(const TensorView& matrix, DType to, bool transpose, std::string_view name,
                      ThreadPool* pool) {
  CHECK(is_quantised(to) && matrix.dims.size() == 2);
  const auto rows = static_cast<size_t>(matrix.dims[transpose ? 1 : 0]);
  const auto inner = static_cast<size_t>(matrix.dims[transpose ? 0 : 1]);
  const size_t blocks = blocks_of(static_cast<int64_t>(inner)), each = block_bytes(to);
  const size_t element = dtype_size(matrix.dtype);
  OwnedTensor out;
  out.storage.resize(rows * blocks * each);
  out.view = {to, {static_cast<int64_t>(rows), static_cast<int64_t>(inner)}, out.storage};

  // Converts some rows at a time to floats, padded with zeros; reads along the rows of `matrix`.
  constexpr size_t kStrip = 64;
  std::atomic<size_t> bad_row = rows;  // the first
  const auto do_strip = [&](size_t index) {
    const size_t first = index * kStrip, count = std::min(kStrip, rows - first);
    std::vector<float> strip(count * blocks * kBlock), line(count);
    const auto widen = [&](size_t at, size_t n, float* to_floats) {
      const Bytes bytes = matrix.bytes.subspan(at * element, n * element);
      convert({matrix.dtype, {static_cast<int64_t>(n)}, bytes}, DType::kF32,
              std::as_writable_bytes(std::span(to_floats, n)));
    };
    if (transpose) {
      for (size_t k = 0; k < inner; ++k) {
        widen(k * rows + first, count, line.data());
        for (size_t r = 0; r < count; ++r) strip[r * blocks * kBlock + k] = line[r];
      }
    } else {
      for (size_t r = 0; r < count; ++r) {
        widen((first + r) * inner, inner, strip.data() + r * blocks * kBlock);
      }
    }
    for (size_t b = 0; b < count * blocks; ++b) {
      if (quantise_block(to, strip.data() + b * kBlock,
                         out.storage.data() + (first * blocks + b) * each)) {
        continue;
      }
      const size_t row = first + b / blocks;
      for (size_t seen = bad_row; row < seen && !bad_row.compare_exchange_weak(seen, row);) {
      }
      return;
    }
  };
  const size_t strips = (rows + kStrip - 1) / kStrip;
  if (pool != nullptr) {
    pool->run(strips, do_strip);
  } else {
    for (size_t i = 0; i < strips; ++i) do_strip(i);
  }
  if (bad_row < rows) {
    throw Error(ErrorKind::kInput,
                cat("[quantize] ", shown(name), " as ", format_name(to), ": row ", bad_row.load(),
                    " has a value that is not finite or too large"));
  }
  return out;
}

}  // namespace split
