// The message of a wrong shape: where, what would do, and what there is. For functions.h's sources.
#pragma once

#include <initializer_list>
#include <string>

#include "base/error.h"
#include "tensor/shape.h"

namespace split {

[[noreturn]] inline void refuse(std::string_view where, std::string_view expected,
                                std::initializer_list<const Dims*> got) {
  std::string shapes;
  for (const Dims* dims : got) shapes += (shapes.empty() ? "" : " and ") + to_string(*dims);
  throw Error(ErrorKind::kShape, cat("[", where, "] expected ", expected, ", got ", shapes));
}

}  // namespace split
