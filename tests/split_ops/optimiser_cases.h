// The goldens' optimisers: a trajectory of two parameters under given gradients.
#pragma once

#include "array/plan.h"
#include "optim/optim.h"
#include "tests/split_ops/goldens.h"
#include "tests/split_ops/report.h"

namespace split::ops {

// An optimiser by PyTorch's names, or nothing where an option of it is not there yet. Options of
// `more` replace those of `options`.
std::optional<optim::Options> optimiser_options(const std::string& optimiser, const Json& options,
                                                const Json* more = nullptr);

bool is_optimiser_case(const Json& entry);
bool knows_optimiser_case(const Json& entry);
// False where it is not there yet.
bool run_optimiser_case(Goldens& goldens, array::Runtime& runtime, const Json& entry,
                        Report& report);

}  // namespace split::ops
