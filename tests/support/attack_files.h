// The hostile files of one kind: every one is refused with its own message, and the table knows
// all.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <set>
#include <span>
#include <string>

#include "base/file.h"

namespace split::test {

struct Attack {
  const char* file;     // without its extension; tests/attacks/make.py says what is wrong with it
  const char* message;  // how it goes on behind `prefix`
};

inline std::filesystem::path attack_file(const std::string& name) {
  return std::filesystem::path(SPLIT_SOURCE_DIR) / "tests/attacks" / name;
}

// `error_of` gives what reading the bytes throws, or "" when nothing.
inline void expect_refused(const std::string& extension, std::span<const Attack> attacks,
                           const std::string& prefix,
                           const std::function<std::string(const std::string&)>& error_of) {
  std::set<std::string> expected{"good"}, found;
  for (const Attack& attack : attacks) {
    expected.insert(attack.file);
    EXPECT_EQ(error_of(read_file(attack_file(attack.file + extension), 1 << 20)),
              prefix + attack.message)
        << attack.file;
  }
  EXPECT_EQ(error_of(read_file(attack_file("good" + extension), 1 << 20)), "");
  for (const auto& entry : std::filesystem::directory_iterator(attack_file(""))) {
    if (entry.path().extension() == extension) found.insert(entry.path().stem());
  }
  EXPECT_EQ(found, expected);
}

}  // namespace split::test
