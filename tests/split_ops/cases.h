// Runs the cases of a set of goldens: each in five layouts, with its gradients.
#pragma once

#include <functional>
#include <string>

#include "array/plan.h"
#include "tests/split_ops/goldens.h"
#include "tests/split_ops/report.h"

namespace split::ops {

// `wanted`: whether a case of that name is run; others count as neither.
Report run_cases(Goldens& goldens, array::Runtime& runtime,
                 const std::function<bool(const std::string&)>& wanted = {});
// Names of the cases whose operation and types are there.
std::vector<std::string> known_cases(Goldens& goldens);

}  // namespace split::ops
