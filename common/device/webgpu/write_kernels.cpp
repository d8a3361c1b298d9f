// write_kernels FILE: writes kernels.js, which the page loads beside gpu.js.
#include <cstdio>

#include "base/file.h"
#include "device/webgpu/kernels_wgsl.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: write_kernels FILE\n");
    return 2;
  }
  const std::string text = split::webgpu::kernels_js();
  split::write_file(argv[1], std::as_bytes(std::span(text)));
  return 0;
}
