// Images and other tensors [N, C, axes...] read at other places: an axis is gathered by an index
// and weighted. By PyTorch's names.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "autograd/functions.h"

namespace split {

// Elements of an axis by an index [size, taps], I32: the axis gets `size`, taps are the last axis.
Tensor resample(const Tensor& x, int64_t axis, const Tensor& index);

// "nearest", "nearest-exact", "linear" (of one axis or several), "bicubic" or "area", to sizes of
// the axes behind [N, C]; scales, where given, are what sizes were made by.
struct Interpolation {
  std::string_view mode = "nearest";
  bool align_corners = false, antialias = false;
  std::vector<double> scales = {};
};
Tensor interpolate(const Tensor& x, const Dims& sizes, const Interpolation& how = {});
// Around the last axes, with "reflect", "replicate" or "circular" ones: before and behind, of the
// last axis first, as torch.nn.functional.pad has it.
Tensor pad_with(const Tensor& x, const Dims& around, std::string_view mode);

Tensor pixel_shuffle(const Tensor& x, int64_t by);
Tensor pixel_unshuffle(const Tensor& x, int64_t by);
Tensor channel_shuffle(const Tensor& x, int64_t groups);
// x [N, C, H, W] at grid [N, h, w, 2] of places (x, y) from -1 to 1.
struct GridSampling {
  std::string_view mode = "bilinear", padding = "zeros";
  bool align_corners = false;
};
Tensor grid_sample(const Tensor& x, const Tensor& grid, const GridSampling& how = {});
// theta [N, 2, 3] -> [N, h, w, 2].
Tensor affine_grid(const Tensor& theta, int64_t h, int64_t w, bool align_corners = false);
Tensor rgb_to_grayscale(const Tensor& x);
Tensor gaussian_blur(const Tensor& x, int64_t kernel, float sigma);

// --- Shapes

Tensor diagonal(const Tensor& x, int64_t offset = 0, int64_t axis = 0, int64_t other = 1);
Tensor diag_embed(const Tensor& x, int64_t offset = 0);
Tensor repeat_interleave(const Tensor& x, int64_t times, int64_t axis);
Tensor linspace(double start, double end, int64_t steps);

}  // namespace split
