#include "tensor/home.h"

#include <cstring>
#include <unordered_set>

#include "base/error.h"

namespace split {

Tensor input_at(std::shared_ptr<Home> home, std::string name, DType dtype, Dims dims) {
  auto node = std::make_shared<Node>();
  node->op = Op::k_input;
  node->dtype = dtype;
  node->dims = std::move(dims);
  node->name = std::move(name);
  node->home = std::move(home);
  return Tensor(std::move(node));
}

std::shared_ptr<Home> home_of(const Tensor& x, std::string_view where) {
  std::vector<const Node*> left{x.node().get()};
  std::unordered_set<const Node*> seen;
  while (!left.empty()) {
    const Node* const node = left.back();
    left.pop_back();
    if (node->home != nullptr) return node->home;
    for (const auto& in : node->inputs) {
      if (seen.insert(in.get()).second) left.push_back(in.get());
    }
  }
  throw Error(ErrorKind::kShape,
              cat("[", where,
                  "] expected tensors with values, as the result's shape is one; got leaves "
                  "of a step"));
}

std::vector<int64_t> evaluated(const Tensor& x, std::string_view where) {
  CHECK(x.dtype() == DType::kI64);
  const OwnedTensor values = home_of(x, where)->values(x);
  std::vector<int64_t> numbers(values.view.bytes.size() / sizeof(int64_t));
  if (!numbers.empty())
    std::memcpy(numbers.data(), values.view.bytes.data(), values.view.bytes.size());
  return numbers;
}

}  // namespace split
