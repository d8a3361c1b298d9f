// The page's GPU (page/gpu.js) as functions. What fails in one that throws nothing, check() and the
// next one that waits throw.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace split::webgpu::gpu {

// The page's number of a thing that it made; 0: none.
using Id = int;

// Whether the browser has WebGPU.
bool present();
// Takes an adapter and a device, and waits for them. What was made of an earlier device is gone.
// Throws Error(kDevice).
void open();
int generation();  // number of the present device; 0: there is none, or it failed
std::string name();
bool software();  // whether it computes on the processor
// Throws Error(kDevice) if something failed since open(), or the device was lost.
void check();

class Buffer {
 public:
  // Zeroed.
  explicit Buffer(size_t bytes);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  Id id() const { return id_; }
  size_t size() const { return size_; }
  // A multiple of 4 bytes, at one.
  void write(size_t offset, Bytes bytes);
  // Waits. Throws Error(kDevice).
  void read(size_t offset, std::span<std::byte> out) const;

 private:
  size_t size_;
  Id id_;
};

// Makes a program of a list of dispatches in JSON. The members of each:
//   kernel    {text, bases}: its text, and names of kernels that stand behind that
//   numbers   its overrides by name; those that its text lacks are left out
//   buffers   [{id, size, written}] by binding
//   by, per   "rows" or "out": which rows of a step; a workgroup takes `per` of them
//   x, y      workgroups beside: y along the second axis, or if x is not 0, x along the first
//   from, to  steps of so many rows run it
Id make_program(std::string_view json);
void drop_program(Id program);
// Whether all pipelines are made; settle() waits for that, and throws Error(kDevice).
bool settled();
void settle();
// Runs programs over so many rows, and reads `out` from a buffer, if it has bytes. Throws
// Error(kDevice).
void run(std::span<const Id> programs, uint32_t rows, uint32_t out_rows, Id result, size_t offset,
         std::span<std::byte> out);

}  // namespace split::webgpu::gpu
