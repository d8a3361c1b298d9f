// Memory straight from the system.
#pragma once

#include <cstddef>

namespace split {

// Zeroed, at a page's beginning, and in no memory until it is touched; null where there is no room.
std::byte* take_pages(size_t bytes);
void give_pages(std::byte* pages, size_t bytes);

}  // namespace split
