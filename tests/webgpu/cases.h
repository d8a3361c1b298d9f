// Kernels for texts.test.mjs, written to a folder: a list in JSON, and files of 4-byte numbers.
#pragma once

#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace split::test {

using Json = nlohmann::json;

// The kernels of the page's that stand one behind the other, as gpu.js assembles them.
inline Json behind(const std::vector<std::string>& bases) { return {{"bases", bases}}; }

class Cases {
 public:
  Cases(std::string folder, std::string name)
      : folder_(std::move(folder)), name_(std::move(name)) {}

  // A buffer that the kernel reads.
  template <typename Number>
  Json file(const std::vector<Number>& numbers) {
    return {{"file", written(std::as_bytes(std::span(numbers)))}};
  }
  // One that it writes, and what it is to write; with "begins", a file's name, what is there
  // before; with "halves", pairs of halves, the last bit of which may differ.
  template <typename Number>
  Json result(const std::vector<Number>& numbers) {
    return {{"result", written(std::as_bytes(std::span(numbers)))}};
  }
  // Members: {name, kernel, overrides, buffers by binding, groups}; `whole` where results are I32,
  // `size` where what is summed has these magnitudes.
  void add(Json kernel) { all_.push_back(std::move(kernel)); }
  size_t count() const { return all_.size(); }
  void end() {
    const std::string text = all_.dump();
    write_file(cat(folder_, "/", name_, ".json"), std::as_bytes(std::span(text)));
  }

  // Numbers in [-2, 2].
  std::vector<float> numbers(size_t n) {
    std::vector<float> made;
    for (size_t i = 0; i < n; ++i) {
      made.push_back(static_cast<float>(static_cast<int>(random_() % 4001) - 2000) / 1000.0f);
    }
    return made;
  }
  uint32_t random() { return static_cast<uint32_t>(random_()); }

 private:
  std::string written(Bytes bytes) {
    const std::string file = cat(name_, ".", files_++);
    write_file(cat(folder_, "/", file), bytes);
    return file;
  }

  const std::string folder_, name_;
  Json all_ = Json::array();
  std::mt19937 random_{1};
  size_t files_ = 0;
};

// Runs a program whose argument is the folder.
inline int print_cases(int argc, char** argv, const char* name, void (*print)(Cases&)) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: print_%s FOLDER\n", name);
    return 2;
  }
  Cases cases(argv[1], name);
  print(cases);
  cases.end();
  return 0;
}

}  // namespace split::test
