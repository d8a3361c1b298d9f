// Writes GGUF files of version 3, with tensors in floats or in blocks (tensor/blocks.h).
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "io/gguf.h"
#include "io/quantize.h"

namespace split::test {

// A key or tensor that is added again takes the place of the earlier one.
class GgufFile {
 public:
  template <typename Number>
  void number(const std::string& key, uint32_t type, Number value) {
    put(begin(key, type), value);
  }
  void integer(const std::string& key, uint64_t value) {
    number(key, 4, static_cast<uint32_t>(value));
  }
  void real(const std::string& key, double value) { number(key, 6, static_cast<float>(value)); }
  void flag(const std::string& key, bool value) { number(key, 7, static_cast<uint8_t>(value)); }
  void text(const std::string& key, std::string_view value) { put_text(begin(key, 8), value); }
  void texts(const std::string& key, const std::vector<std::string>& values) {
    std::string& to = begin_list(key, 8, values.size());
    for (const std::string& value : values) put_text(to, value);
  }
  template <typename Number>
  void numbers(const std::string& key, uint32_t type, const std::vector<Number>& values) {
    std::string& to = begin_list(key, type, values.size());
    for (const Number value : values) put(to, value);
  }
  void flags(const std::string& key, const std::vector<bool>& values) {
    numbers(key, 7, std::vector<uint8_t>(values.begin(), values.end()));
  }
  void tensor(const std::string& name, Dims dims, const std::vector<float>& values,
              GgmlType type = GgmlType::kF32) {
    tensors_[name] = {std::move(dims), type, encoded(values, type)};
  }
  void forget(const std::string& name) { keys_.erase(name), tensors_.erase(name); }

  void write(const std::filesystem::path& path) const {
    std::string head = "GGUF";
    put(head, uint32_t{3});
    put(head, uint64_t{tensors_.size()});
    put(head, uint64_t{keys_.size()});
    for (const auto& [key, value] : keys_) put_text(head, key), head += value;
    std::string data;
    for (const auto& [name, tensor] : tensors_) {
      put_text(head, name);
      put(head, static_cast<uint32_t>(tensor.dims.size()));
      for (auto size = tensor.dims.rbegin(); size != tensor.dims.rend(); ++size) put(head, *size);
      put(head, static_cast<uint32_t>(tensor.type));
      put(head, uint64_t{data.size()});
      data += tensor.bytes;
      data.resize((data.size() + 31) / 32 * 32);
    }
    head.resize((head.size() + 31) / 32 * 32);
    std::ofstream(path, std::ios::binary) << head << data;
  }

 private:
  struct Tensor {
    Dims dims;
    GgmlType type = GgmlType::kF32;
    std::string bytes;
  };

  template <typename Number>
  static void put(std::string& to, Number value) {
    to.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  static void put_text(std::string& to, std::string_view text) {
    put(to, uint64_t{text.size()});
    to += text;
  }
  std::string& begin(const std::string& key, uint32_t type) {
    std::string& value = keys_[key];
    value.clear();
    put(value, type);
    return value;
  }
  std::string& begin_list(const std::string& key, uint32_t type, size_t count) {
    std::string& value = begin(key, 9);
    put(value, type);
    put(value, uint64_t{count});
    return value;
  }

  // The six bits of scales and minima of Q4_K and Q5_K.
  static void put_scales(std::string& to, const uint8_t* scales, const uint8_t* minima) {
    for (size_t i = 0; i < 4; ++i) put(to, uint8_t(scales[i] | scales[i + 4] >> 4 << 6));
    for (size_t i = 0; i < 4; ++i) put(to, uint8_t(minima[i] | minima[i + 4] >> 4 << 6));
    for (size_t i = 4; i < 8; ++i) put(to, uint8_t((scales[i] & 15) | (minima[i] & 15) << 4));
  }
  // Groups from their least to their largest value: simpler than ggml's choice, with its layout.
  static void put_k_block(std::string& to, const float* x, int bits) {
    const auto most = static_cast<float>((1 << bits) - 1);
    float steps[8], lows[8], step = 0, low = 0;
    for (size_t i = 0; i < 8; ++i) {
      const auto [least, largest] = std::minmax_element(x + 32 * i, x + 32 * i + 32);
      lows[i] = std::max(-*least, 0.0f), steps[i] = (*largest + lows[i]) / most;
      step = std::max(step, steps[i]), low = std::max(low, lows[i]);
    }
    const uint16_t d = f32_to_f16(step / 63), dmin = f32_to_f16(low / 63);
    const float by = f16_to_f32(d), least = f16_to_f32(dmin);
    uint8_t scales[8], minima[8], q[256];
    const auto six = [](float x, float d) {
      return static_cast<uint8_t>(d == 0 ? 0 : std::clamp(std::round(x / d), 0.0f, 63.0f));
    };
    for (size_t i = 0; i < 256; ++i) {
      const size_t group = i / 32;
      scales[group] = six(steps[group], by), minima[group] = six(lows[group], least);
      const float each = by * scales[group], value = x[i] + least * minima[group];
      q[i] = static_cast<uint8_t>(each == 0 ? 0 : std::clamp(std::round(value / each), 0.0f, most));
    }
    put(to, d), put(to, dmin);
    put_scales(to, scales, minima);
    for (size_t l = 0; bits == 5 && l < 32; ++l) {
      unsigned fifth = 0;
      for (size_t i = 0; i < 8; ++i) fifth |= unsigned{q[32 * i + l]} >> 4 << i;
      put(to, static_cast<uint8_t>(fifth));
    }
    for (size_t i = 0; i < 8; i += 2) {
      for (size_t l = 0; l < 32; ++l) {
        put(to, uint8_t((q[32 * i + l] & 15) | (q[32 * i + 32 + l] & 15) << 4));
      }
    }
  }
  static void put_q6_block(std::string& to, const float* x) {
    float step = 0;
    for (size_t i = 0; i < 256; ++i) step = std::max(step, std::abs(x[i]) / 31);
    const uint16_t d = f32_to_f16(step / 127);
    uint8_t low[128] = {}, high[64] = {};
    int8_t scales[16];
    for (size_t group = 0; group < 16; ++group) {
      float most = 0;
      for (size_t l = 0; l < 16; ++l) most = std::max(most, std::abs(x[16 * group + l]));
      const float by = f16_to_f32(d);
      scales[group] =
          static_cast<int8_t>(by == 0 ? 0 : std::min(127.0f, std::round(most / 31 / by)));
      for (size_t l = 0; l < 16; ++l) {
        const size_t i = 16 * group + l, part = i / 128, quarter = i / 32 % 4, at = i % 32;
        const float each = by * scales[group];
        const auto q = static_cast<uint8_t>(
            32 + (each == 0 ? 0 : std::clamp(std::round(x[i] / each), -32.0f, 31.0f)));
        low[64 * part + 32 * (quarter % 2) + at] |= uint8_t((q & 15) << (4 * (quarter / 2)));
        high[32 * part + at] |= uint8_t(q >> 4 << (2 * quarter));
      }
    }
    put(to, std::to_array(low)), put(to, std::to_array(high)), put(to, std::to_array(scales));
    put(to, d);
  }

  static std::string encoded(const std::vector<float>& values, GgmlType type) {
    std::string bytes;
    const GgmlBlock block = ggml_block(type);
    CHECK(values.size() % block.elements == 0);
    for (size_t i = 0; i < values.size(); i += block.elements) {
      const float* const x = &values[i];
      switch (type) {
        case GgmlType::kF32:
          put(bytes, *x);
          break;
        case GgmlType::kF16:
          put(bytes, f32_to_f16(*x));
          break;
        case GgmlType::kBF16:
          put(bytes, f32_to_bf16(*x));
          break;
        case GgmlType::kQ8_0: {
          BlockQ8 made;
          CHECK(quantise_block(DType::kQ8_0, x, reinterpret_cast<std::byte*>(&made)));
          put(bytes, made);
          break;
        }
        case GgmlType::kQ4_K:
        case GgmlType::kQ5_K:
          put_k_block(bytes, x, type == GgmlType::kQ4_K ? 4 : 5);
          break;
        case GgmlType::kQ6_K:
          put_q6_block(bytes, x);
          break;
        default:
          for (size_t j = 0; j < block.bytes; ++j) put(bytes, uint8_t{0});  // zeros
      }
    }
    return bytes;
  }

  std::map<std::string, std::string> keys_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace split::test
