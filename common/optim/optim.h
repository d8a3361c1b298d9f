// Optimisers as graphs from gradients to new parameters and state. The rate is an argument (an
// input of one number a group); all else that changes is state. Formulas and names of state are
// PyTorch's. Knows no device.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace split::optim {

enum class Method : uint8_t { kSgd, kAdam, kAdamW, kRmsprop, kAdagrad };

struct Options {
  Method method = Method::kAdamW;
  double lr = 1e-3;
  double weight_decay = 0;
  double momentum = 0, dampening = 0;  // SGD; the first RMSprop too
  bool nesterov = false;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;  // Adam, AdamW
  bool amsgrad = false;
  bool cycled = false;  // Adam, AdamW: beta1 is an argument too (beta_name)
  double alpha = 0.99;  // RMSprop
  bool centered = false;
  double lr_decay = 0;  // Adagrad
  bool maximize = false;
};

struct Parameter {
  std::string name;  // its leaf's name
  Tensor leaf;
};
struct Group {
  std::vector<Parameter> parameters;
  Options options;
};

// A tensor that is zeros before the first step.
struct State {
  std::string name;
  Dims dims;
};

class Optimiser {
 public:
  explicit Optimiser(std::vector<Group> groups) : groups_(std::move(groups)) {}

  const std::vector<Group>& groups() const { return groups_; }
  std::vector<Tensor> leaves() const;  // all parameters in order
  // The input that has group i's rate, F32 [].
  static std::string rate_name(size_t group);
  static std::string beta_name(size_t group);  // state of a group whose beta1 is cycled
  // Returns the new parameters and state for the gradients of leaves(), by name.
  std::vector<NamedOutput> updates(std::span<const Tensor> gradients) const;
  std::vector<State> states() const;

 private:
  std::vector<Group> groups_;
};

// The square root of the sum of all squares; gradients scaled so that it is `most` at most; and
// gradients with each number bounded by `most`.
Tensor global_norm(std::span<const Tensor> gradients);
std::vector<Tensor> clip_by_norm(std::span<const Tensor> gradients, const Tensor& norm,
                                 double most);
std::vector<Tensor> clip_by_value(std::span<const Tensor> gradients, double most);

// A factor of the rate in step `step`: up over the warm-up, then a cosine to `floor`.
struct WarmupCosine {
  int64_t warmup = 0, total = 1;
  double floor = 0;
  double at(int64_t step) const;
};

}  // namespace split::optim
