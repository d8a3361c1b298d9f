// Debian's `promtool check metrics` (package prometheus) over a text of metrics, where it is there.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/file.h"
#include "temporary_folder.h"

namespace split::test {

inline bool have_promtool() {
  return std::system("command -v promtool > /dev/null") == 0;  // NOLINT: no text of others in it
}

inline void expect_promtool_finds_nothing(const std::string& metrics) {
  const TemporaryFolder folder;
  const std::string file = folder.path / "metrics";
  AtomicFile out(file);
  out.append(as_bytes_of(metrics));
  out.commit();
  EXPECT_EQ(std::system(cat("promtool check metrics < '", file, "' 2>&1").c_str()), 0) << metrics;
}

}  // namespace split::test

#define SKIP_WITHOUT_PROMTOOL() \
  if (!split::test::have_promtool()) GTEST_SKIP() << "no promtool (Debian: prometheus)"
