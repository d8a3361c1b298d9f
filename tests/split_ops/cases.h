// Runs the cases of a set of goldens: each in five layouts, with its gradients.
#pragma once

#include <functional>
#include <string>

#include "array/plan.h"
#include "tests/split_ops/goldens.h"
#include "tests/split_ops/report.h"

namespace split::ops {

enum class Layouts : uint8_t { kAll, kDense };
// Runs one case of an index and adds what it found. Throws BrokenGoldens.
void run_case(Goldens& goldens, array::Runtime& runtime, const Json& entry, Layouts layouts,
              Report& report);
// `wanted`: whether a case of that name is run; others count as neither.
Report run_cases(Goldens& goldens, array::Runtime& runtime,
                 const std::function<bool(const std::string&)>& wanted = {});
// Names what differs, by more than one unit in the last place, in a half type from results in
// F32 on the same inputs, widened, when they are rounded: of all pointwise cases, reductions,
// products, convolutions and norms.
std::vector<std::string> halves_that_differ(Goldens& goldens, array::Runtime& runtime, DType half,
                                            size_t* cases);

}  // namespace split::ops
