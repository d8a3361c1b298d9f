// The goldens' optimisers: a trajectory of two parameters under given gradients.
#pragma once

#include "array/plan.h"
#include "base/json.h"
#include "optim/optim.h"
#include "tests/split_ops/goldens.h"
#include "tests/split_ops/report.h"

namespace split::ops {

// Reads a number that may be absent or null.
inline double number(const Json& in, const char* name, double otherwise) {
  const Json* const value = in.find(name);
  return value == nullptr || value->is_null() ? otherwise : value->get<double>();
}

// An optimiser by PyTorch's names. Options of `more` replace those of `options`. Throws
// Error(kNotFound) for another.
optim::Options optimiser_options(const std::string& optimiser, const Json& options,
                                 const Json* more = nullptr);

bool is_optimiser_case(const Json& entry);
void run_optimiser_case(Goldens& goldens, array::Runtime& runtime, const Json& entry,
                        Report& report);

}  // namespace split::ops
