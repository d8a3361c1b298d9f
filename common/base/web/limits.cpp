// The limits of a tab: one processor, and the memory that the browser gives.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/resources/fibres.h"
#include "base/resources/granted.h"
#include "base/system/pages.h"
#include "base/system/process.h"

extern "C" {
// Pages of memory that this browser allows.
__attribute__((import_module("page"), import_name("room"))) uint32_t page_room();
}

namespace split {
namespace {
constexpr uint64_t kPage = 64 << 10;
}

unsigned granted_processors(const SystemFiles&) { return 1; }
// Memory of this browser, measured once: before the first weight.
uint64_t granted_memory(const SystemFiles&) {
  static const uint64_t kGranted = page_room() * kPage;
  return kGranted;
}
uint64_t resident_memory(const SystemFiles&) { return __builtin_wasm_memory_size(0) * kPage; }
void keep_little_free_memory() {}
void return_free_memory() {}

std::byte* take_pages(size_t bytes) {
  constexpr size_t kLine = 64;
  void* const pages = std::aligned_alloc(kLine, (bytes + kLine - 1) / kLine * kLine);
  if (pages == nullptr) return nullptr;
  constexpr size_t kPiece = 1 << 20;  // takes a millisecond if untouched before
  auto* const first = static_cast<std::byte*>(pages);
  for (size_t at = 0; at < bytes; at += kPiece) {
    std::memset(first + at, 0, std::min(kPiece, bytes - at));
    fibres::yield();
  }
  return first;
}
void give_pages(std::byte* pages, size_t) { std::free(pages); }

double process_cpu_seconds() { return 0; }
double process_resident_bytes() { return static_cast<double>(resident_memory()); }
double process_virtual_bytes() { return process_resident_bytes(); }
double process_threads() { return 1; }
double process_open_files() { return 0; }
double process_most_files() { return 0; }
double process_start() { return 0; }

}  // namespace split
