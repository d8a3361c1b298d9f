// Tells which pages of mapped files are memory of this process.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"

namespace split::test {

// Whether the page at this address is.
inline bool is_resident(const std::byte* address) {
  const Fd map(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  uint64_t entry = 0;
  const auto at = static_cast<off_t>(reinterpret_cast<uintptr_t>(address) / page * sizeof entry);
  EXPECT_EQ(::pread(map.get(), &entry, sizeof entry, at), ssize_t{sizeof entry});
  return (entry >> 63) != 0;
}

}  // namespace split::test
