// Layers as compositions of ops: fusion makes them single kernels.
#pragma once

#include "tensor/tensor.h"

namespace split {

// (x - mean) / sqrt(variance + eps) * weight, and with a bias + bias, over the last axis.
//   x [R, C], weight [C], bias [C] -> [R, C]. Source: torch.nn.LayerNorm (biased variance).
inline Tensor layer_norm(const Tensor& x, const Tensor& weight, float eps) {
  const float per_channel = 1.0f / static_cast<float>(x.dims()[1]);
  const Tensor centred = x - reduce_sum(x) * per_channel;
  const Tensor variance = reduce_sum(square(centred)) * per_channel;
  return centred * rsqrt(variance + eps) * weight;
}
inline Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, float eps) {
  return layer_norm(x, weight, eps) + bias;
}

// x / sqrt(mean x^2 + eps) * weight, over the last axis; `plus_one`: by weight + 1, in Gemma.
//   x [R, C], weight [C] -> [R, C]. Source: "Root Mean Square Layer Normalization" (2019).
inline Tensor rms_norm(const Tensor& x, const Tensor& weight, float eps, bool plus_one = false) {
  const float per_channel = 1.0f / static_cast<float>(x.dims()[1]);
  const Tensor normed = x * rsqrt(reduce_sum(square(x)) * per_channel + eps);
  return plus_one ? normed * weight + normed : normed * weight;
}

// x [R, K], weight [K, M] (transformers' Conv1D orientation), bias [M] -> [R, M].
inline Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return matmul(x, weight) + bias;
}

// Attention whose q, k and v are columns of one product, side by side:
//   qkv [R, (heads + 2 kv_heads) * head_dim], caches for attention() -> [R, heads * head_dim].
inline Tensor attention(const Tensor& qkv, const Tensor& k_cache, const Tensor& v_cache,
                        const AttentionHeads& heads) {
  const int64_t width = int64_t{heads.heads} * heads.head_dim;
  const int64_t kv_width = int64_t{heads.kv_heads} * heads.head_dim;
  return attention(columns(qkv, 0, width), columns(qkv, width, kv_width),
                   columns(qkv, width + kv_width, kv_width), k_cache, v_cache, heads);
}

}  // namespace split
