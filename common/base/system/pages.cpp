#include "base/system/pages.h"

#include <sys/mman.h>

namespace split {

std::byte* take_pages(size_t bytes) {
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  // Fewer TLB misses when much is read; advice alone.
  constexpr size_t kHugePage = size_t{2} << 20;
  if (bytes >= 2 * kHugePage) ::madvise(at, bytes, MADV_HUGEPAGE);
  return static_cast<std::byte*>(at);
}

void give_pages(std::byte* pages, size_t bytes) { ::munmap(pages, bytes); }

}  // namespace split
