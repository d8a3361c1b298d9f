#include "base/revision.h"

namespace split {

std::string_view source_revision() {
  return
#include "revision.inc"
      ;
}

}  // namespace split
