// Describes the tensor library's operations, for a page of them.
#pragma once

#include <map>
#include <set>
#include <string>

#include "array/plan.h"
#include "tests/split_ops/goldens.h"

namespace split::ops {

// An operation as an index of goldens has it.
struct About {
  size_t cases = 0, gradients = 0;
  std::set<std::string> types;
  std::string expression;  // PyTorch's, of its first case
  size_t place = 0;        // among operations, by their first cases
};
std::map<std::string, About> operations_of(const Json& index);

// Its row of the table with the row's gradient; or its lines in the list of operations
// (operations.def), or PyTorch's expression, and no gradient.
struct Code {
  std::string forward, gradient;
};
Code code_of(const std::string& operation, const About& about, const std::string& list);

// Forward and gradient from -4 to 4 as paths of SVG in a box of kPlotWidth by kPlotHeight; empty
// where a case is of no function of one number.
struct Plot {
  std::string forward, gradient;
};
inline constexpr int kPlotWidth = 240, kPlotHeight = 120;
Plot plot_of(const Json& entry, array::Runtime& runtime);

// One HTML file of all that.
std::string reference_page(Goldens& goldens, const std::string& list);

}  // namespace split::ops
