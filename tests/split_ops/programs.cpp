#include "tests/split_ops/programs.h"

#include <cmath>

#include "autograd/grad.h"
#include "autograd/indexing.h"
#include "autograd/layers.h"
#include "autograd/pointwise.h"
#include "autograd/reductions.h"

namespace split::ops {
namespace {

// The sum of squares of d(sum f) / dx.
Tensor second(const std::function<Tensor(const Tensor&)>& f, const Tensor& x) {
  const std::vector<Tensor> outputs{sum(f(x))}, inputs{x};
  return sum(square(autograd::grad(outputs, inputs)[0]));
}

Tensor gpt2_block(const Call& c) {
  const Tensor& x = c["x"];
  const auto norm = [&](const Tensor& of, const char* by, const char* plus) {
    return normalise(of, {-1}, 1e-5f) * c[by] + c[plus];
  };
  const Tensor qkv = matmul(norm(x, "g1", "c1"), c["wa"]) + c["ba"];
  const auto heads = [&](int64_t part) {
    return transpose(reshape(slice(qkv, 2, 8 * part, 8 * part + 8), {2, 5, 2, 4}), 1, 2);
  };
  const Tensor seen = lower_triangle(5, 5, 0);
  const Tensor y = attend(heads(0), heads(1), heads(2), 0.5f, &seen);
  const Tensor h = x + matmul(reshape(transpose(y, 1, 2), {2, 5, 8}), c["wp"]) + c["bp"];
  return h + matmul(gelu_new(matmul(norm(h, "g2", "c2"), c["wf"]) + c["bf"]), c["wo"]) + c["bo"];
}

#define OP(...) [](const Call& c) -> Results { return {__VA_ARGS__}; }

}  // namespace

std::map<std::string, Function> programs() {
  return {
      {"program:readme", OP(c["x"] + c["z"])},
      {"program:used_twice",
       [](const Call& c) -> Results {
         const Tensor y = tanh(c["x"]);
         return {y * y + y};
       }},
      {"program:diamond",
       [](const Call& c) -> Results {
         const Tensor y = exp(c["x"]);
         return {sum((y * 2.0f) * (y + c["z"]), {0})};
       }},
      {"program:same_input_twice", OP(matmul(c["x"], transpose(c["x"], 0, 1)) + sum(c["x"]))},
      {"program:broadcast_sum", OP(mean((c["x"] + c["z"]) * c["z"]))},
      {"program:detach", OP(sigmoid(c["x"]) * detach(sigmoid(c["x"])))},
      {"program:no_grad", OP(c["x"] * 2.0f * detach(c["x"] * 3.0f))},
      {"program:stop_in_the_middle", OP(matmul(detach(relu(matmul(c["x"], c["w"]))), c["v"]))},
      {"program:where_nan_trap",
       [](const Call& c) -> Results {
         const Tensor& x = c["x"];
         const Tensor safe = select(x > 0.0f, x, 1.0f);
         return {select(x > 0.0f, log(safe), 0.0f)};
       }},
      {"program:where_is_not_a_guard", OP(select(c["x"] > 0.0f, sqrt(c["x"]), 0.0f))},
      {"program:max_over_views", OP(sum(maximum(slice(c["x"], 1, 0, 2), slice(c["x"], 1, 1, 3))))},
      {"program:cat_of_views",
       OP(concatenate(std::vector{slice(c["x"], 1, 0, 1 << 20, 2), flip(c["x"], {1})}, 1) *
          c["z"])},
      {"program:gather_twice", OP(sum(take(c["w"], c["i"]) * take(c["w"], c["j"]), {1}))},
      {"program:mlp",
       [](const Call& c) -> Results {
         const Tensor h = gelu(linear(c["x"], c["w1"]) + c["b1"]);
         return {mean(cross_entropy(linear(h, c["w2"]) + c["b2"], c["t"]))};
       }},
      {"program:gpt2_block", OP(gpt2_block(c))},
      {"program:gradient_of_vector", OP(c["x"] * c["x"])},
      {"program:second_tanh", OP(second([](const Tensor& t) { return tanh(t); }, c["x"]))},
      {"program:second_softmax",
       OP(second([](const Tensor& t) { return softmax(t, 1) * iota(4); }, c["x"]))},
      {"program:second_gelu", OP(second([](const Tensor& t) { return gelu(t); }, c["x"]))},
      {"program:second_layer_norm", OP(second(
                                        [](const Tensor& t) {
                                          const Tensor y = normalise(t, {-1}, 1e-5f);
                                          return y * y * y;
                                        },
                                        c["x"]))},
      {"program:second_matmul",
       OP(second([](const Tensor& t) { return square(matmul(t, transpose(t, 0, 1))); }, c["x"]))},
      {"program:inplace_pointwise", OP(exp((c["x"] * 2.0f + c["z"]) * c["x"]))},
      {"program:inplace_view",
       [](const Call& c) -> Results {
         Tensor y = set(c["x"] * 2.0f, {kAll, 1}, c["z"]);
         y = set(y, {0}, get(y, {0}) * 3.0f);
         return {sum(y * y)};
       }},
      {"program:inplace_slice_add",
       [](const Call& c) -> Results {
         const Slice rows{1, 3};
         return {sin(set(c["x"], {rows}, get(c["x"], {rows}) + c["z"]))};
       }},
      {"program:inplace_masked", OP(masked_fill(c["x"] * 1.0f, c["x"] > 0.0f, 0.5f) * c["x"])},
      {"program:inplace_transpose", OP(cumsum(set(c["x"] * 1.0f, {kAll, 0}, c["z"]), 1))},
      {"program:convnet",
       [](const Call& c) -> Results {
         const Convolution padded{.padding = {1}};
         const Pooling halves{.kernel = {2}};
         Tensor h =
             max_pool(relu(convolve(c["x"], c["w1"], c.find("b1"), padded)), 2, halves).values;
         h = relu(convolve(h, c["w2"], c.find("b2")));
         return {cross_entropy_loss(linear(flatten(h, 1), c["w3"], c.find("b3")), c["t"])};
       }},
      {"program:second_conv2d",
       OP(second(
           [&](const Tensor& t) { return square(convolve(t, c["w"], nullptr, {.padding = {1}})); },
           c["x"]))},
      {"program:second_div",
       OP(second([](const Tensor& t) { return 1.0f / (2.0f + t * t); }, c["x"]))},
  };
}

}  // namespace split::ops
