// Layers and losses by PyTorch's names, all of them compositions: a window is a view, so that
// pooling is a view and a reduction, convolution a view and a product. Tensors are [N, C, axes...];
// without N where they have one axis less.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "autograd/functions.h"

namespace split {

// Numbers of each axis in space; one is for all of them.
struct Convolution {
  Dims stride{1}, padding{0}, dilation{1};
  int64_t groups = 1;
  Dims output_padding{0};  // transposed: more at the end
  bool same = false;       // as much padding as keeps the size, more of it behind
};
// x [N, C, ...], weight [outputs, C / groups, ...]; transposed: weight [C, outputs / groups, ...].
Tensor convolve(const Tensor& x, const Tensor& weight, const Tensor* bias,
                const Convolution& by = {});
Tensor convolve_transposed(const Tensor& x, const Tensor& weight, const Tensor* bias,
                           const Convolution& by = {});
// [N, C, H, W] as columns [N, C kh kw, windows], and back, where they are added up.
Tensor unfold(const Tensor& x, const Dims& kernel, const Convolution& by = {});
Tensor fold(const Tensor& x, const Dims& output, const Dims& kernel, const Convolution& by = {});

struct Pooling {
  Dims kernel, stride{};  // no stride is the kernel
  Dims padding{0}, dilation{1};
  bool ceil = false;          // windows may reach over the end
  bool count_padding = true;  // as elements of a mean
  std::optional<float> divisor{};
};
// The last `axes` axes are pooled. Indices are places in them, laid flat.
struct Pooled {
  Tensor values, indices;
};
Pooled max_pool(const Tensor& x, size_t axes, const Pooling& by);
Tensor avg_pool(const Tensor& x, size_t axes, const Pooling& by);
Tensor lp_pool(const Tensor& x, size_t axes, double p, const Pooling& by);
// To sizes; -1 keeps one.
Tensor adaptive_avg_pool(const Tensor& x, const Dims& sizes);
Tensor adaptive_max_pool(const Tensor& x, const Dims& sizes);

// --- Norms

Tensor layer_norm(const Tensor& x, size_t axes, const Tensor* weight, const Tensor* bias,
                  float eps = 1e-5f);
Tensor rms_norm(const Tensor& x, size_t axes, const Tensor* weight, float eps);
Tensor group_norm(const Tensor& x, int64_t groups, const Tensor* weight, const Tensor* bias,
                  float eps = 1e-5f);
struct BatchNormed {
  Tensor y, mean, variance;  // what the running ones become
};
// Running mean and variance may be missing in training.
BatchNormed batch_norm(const Tensor& x, const Tensor* mean, const Tensor* variance,
                       const Tensor* weight, const Tensor* bias, bool training,
                       float momentum = 0.1f, float eps = 1e-5f);
Tensor local_response_norm(const Tensor& x, int64_t size, float alpha, float beta, float k);
Tensor normalize(const Tensor& x, double p, int64_t axis, float eps = 1e-12f);
Tensor cosine_similarity(const Tensor& x, const Tensor& z, int64_t axis, float eps = 1e-8f);
Tensor pairwise_distance(const Tensor& x, const Tensor& z, double p = 2, float eps = 1e-6f);
// Distances of rows: x [..., R, K], z [..., C, K] -> [..., R, C].
Tensor cdist(const Tensor& x, const Tensor& z, double p = 2);

// --- Losses: of each element, to be reduced

enum class Reduction : uint8_t { kNone, kMean, kSum, kBatchMean };
Tensor reduced(const Tensor& each, Reduction how);
Tensor mse_loss(const Tensor& x, const Tensor& t);
Tensor l1_loss(const Tensor& x, const Tensor& t);
Tensor smooth_l1_loss(const Tensor& x, const Tensor& t, float beta = 1);
Tensor huber_loss(const Tensor& x, const Tensor& t, float delta = 1);
Tensor soft_margin_loss(const Tensor& x, const Tensor& t);
Tensor binary_cross_entropy(const Tensor& x, const Tensor& t);
Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& t,
                                        const Tensor* weight = nullptr,
                                        const Tensor* positive_weight = nullptr);
Tensor kl_div(const Tensor& x, const Tensor& t, bool log_target = false);
Tensor cosine_embedding_loss(const Tensor& x, const Tensor& z, const Tensor& t, float margin = 0);
Tensor margin_ranking_loss(const Tensor& x, const Tensor& z, const Tensor& t, float margin = 0);
Tensor triplet_margin_loss(const Tensor& x, const Tensor& positive, const Tensor& negative,
                           float margin = 1);
Tensor hinge_embedding_loss(const Tensor& x, const Tensor& t, float margin = 1);
Tensor gaussian_nll_loss(const Tensor& x, const Tensor& t, const Tensor& variance,
                         float eps = 1e-6f);
Tensor poisson_nll_loss(const Tensor& x, const Tensor& t);
Tensor multi_margin_loss(const Tensor& x, const Tensor& t, float margin = 1);
struct Targets {
  const Tensor* weight = nullptr;  // a number a class
  int64_t ignored = -100;
  float smoothing = 0;
  Reduction reduction = Reduction::kMean;
};
// Logs of probabilities [N, V, ...] or [V], targets [N, ...] or []; a mean is by the weights.
Tensor nll_loss(const Tensor& logs, const Tensor& targets, const Targets& how = {});
// Takes logits, and targets or, in the logits' shape, probabilities.
Tensor cross_entropy_loss(const Tensor& logits, const Tensor& targets, const Targets& how = {});

// --- Products

// beta b + alpha x z.
Tensor addmm(const Tensor& b, const Tensor& x, const Tensor& z, float beta = 1, float alpha = 1);
Tensor bilinear(const Tensor& x, const Tensor& z, const Tensor& weight, const Tensor* bias);
// One operand or two, by labels: "bhqd,bhkd->bhqk".
Tensor einsum(std::string_view equation, const Tensor& x, const Tensor* z = nullptr);
Tensor tensordot(const Tensor& x, const Tensor& z, int64_t axes);
Tensor kron(const Tensor& x, const Tensor& z);

}  // namespace split
