#include "tests/split_ops/gpt.h"

#include <cmath>

#include "autograd/functions.h"

namespace split::ops {

Tensor gpt_loss(const GptShape& shape, const Tensor& tokens,
                const std::function<Tensor(const std::string&)>& leaf, const Linear& linear) {
  const int64_t batch = tokens.dims()[0], length = tokens.dims()[1] - 1;
  const int64_t channels = shape.channels, size = channels / shape.heads;
  const auto norm = [&](const Tensor& x, const std::string& name) {
    return normalise(x, {-1}, 1e-5f) * leaf(name + ".weight") + leaf(name + ".bias");
  };
  const Tensor inputs = slice(tokens, 1, 0, length), targets = slice(tokens, 1, 1, length + 1);
  Tensor x = take(leaf("wte.weight"), inputs) + slice(leaf("wpe.weight"), 0, 0, length);
  const Tensor seen = lower_triangle(length, length, 0);
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const std::string h = cat("h.", layer, ".");
    const Tensor qkv = linear(h + "attn.c_attn", norm(x, h + "ln_1"));
    const auto heads = [&](int64_t part) {
      const Tensor mine = slice(qkv, 2, part * channels, (part + 1) * channels);
      return transpose(reshape(mine, {batch, length, shape.heads, size}), 1, 2);
    };
    const Tensor attended =
        attend(heads(0), heads(1), heads(2), 1 / std::sqrt(static_cast<float>(size)), &seen);
    x = x +
        linear(h + "attn.c_proj", reshape(transpose(attended, 1, 2), {batch, length, channels}));
    x = x + linear(h + "mlp.c_proj", gelu_new(linear(h + "mlp.c_fc", norm(x, h + "ln_2"))));
  }
  const Tensor normed = reshape(norm(x, "ln_f"), {batch * length, channels});
  const Tensor logits = matmul(normed, transpose(leaf("wte.weight"), 0, 1));
  return mean(cross_entropy(logits, reshape(targets, {batch * length})));
}

}  // namespace split::ops
