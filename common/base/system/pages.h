// Memory straight from the system.
#pragma once

#include <cstddef>

namespace split {

// Whether untouched pages take no memory; a tab's take it at once.
#ifdef SPLIT_FIBRES
inline constexpr bool kLazyPages = false;
#else
inline constexpr bool kLazyPages = true;
#endif

// Returns zeroed, page-aligned memory; null if there is no room.
std::byte* take_pages(size_t bytes);
void give_pages(std::byte* pages, size_t bytes);

}  // namespace split
