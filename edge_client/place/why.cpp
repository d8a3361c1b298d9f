#include "edge_client/place/why.h"

#include <array>

namespace split::edge {

std::string_view name_of(Why why) {
  constexpr std::array<std::string_view, 7> kNames = {
      "asked", "landed", "fastest", "goal", "only_fit", "asked_by_cloud", "cloud_lost"};
  return kNames.at(static_cast<size_t>(why));
}

}  // namespace split::edge
