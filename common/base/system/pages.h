// Memory straight from the system.
#pragma once

#include <cstddef>

namespace split {

// Whether pages take no memory until they are touched. A tab's do at once.
#ifdef SPLIT_FIBRES
inline constexpr bool kLazyPages = false;
#else
inline constexpr bool kLazyPages = true;
#endif

// Zeroed, at a page's beginning; null where there is no room.
std::byte* take_pages(size_t bytes);
void give_pages(std::byte* pages, size_t bytes);

}  // namespace split
