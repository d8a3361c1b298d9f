// Times a prompt's matrix products by themselves: those of a model's blocks in bf16 by
// oneDNN, with weights in the order it likes best. A limit to measure against, in benchmarks alone.
#pragma once

#include <memory>
#include <optional>

#include "models/model.h"

namespace split::bench {

class BareProducts {
 public:
  BareProducts(const ModelConfig& config, uint32_t rows, unsigned threads);
  ~BareProducts();

  // Seconds of all blocks' products for `rows` rows at once; nothing where there is no oneDNN or no
  // bf16 in it for this processor.
  std::optional<double> run();

 private:
  struct Products;
  std::unique_ptr<Products> products_;
  int layers_;
};

}  // namespace split::bench
