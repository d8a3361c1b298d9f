// Helpers that the tests of io/ share.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tensor/shape.h"

namespace split {

inline const std::filesystem::path kTests = std::filesystem::path(SPLIT_SOURCE_DIR) / "tests";

struct TemporaryFolder {
  std::filesystem::path path;
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "split-io-XXXXXX").string();
    CHECK(::mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path); }
  void write(const std::string& name, std::string_view text) const {
    std::ofstream(path / name, std::ios::binary) << text;
  }
};

// Returns the message that the call throws, or "" when it throws nothing.
inline std::string error_of(ErrorKind kind, const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  return "";
}

template <typename T>
TensorView view_of(DType dtype, Dims dims, const std::vector<T>& values) {
  return {dtype, std::move(dims), std::as_bytes(std::span(values))};
}

}  // namespace split
