#include "device/webgpu/gpu.h"

#include "base/error.h"
#include "base/web/fibres.h"

namespace split::webgpu::gpu {
namespace {

extern "C" {
#define GPU(name) __attribute__((import_module("gpu"), import_name(name)))
// Those with a key begin, and wake it at their end.
GPU("present") int gpu_present();
GPU("open") void gpu_open(const void* key);
GPU("generation") int gpu_generation();
GPU("software") int gpu_software();
GPU("name") size_t gpu_name(char* out, size_t room);
GPU("failure") size_t gpu_failure(char* out, size_t room);
GPU("make_buffer") int gpu_make_buffer(size_t bytes);
GPU("drop_buffer") void gpu_drop_buffer(int buffer);
GPU("write") void gpu_write(int buffer, size_t offset, const void* from, size_t size);
GPU("read") void gpu_read(const void* key, int buffer, size_t offset, size_t size);
GPU("take") void gpu_take(const void* key, void* out, size_t size);
GPU("make_program") int gpu_make_program(const char* json, size_t size);
GPU("drop_program") void gpu_drop_program(int program);
GPU("settled") int gpu_settled();
GPU("settle") void gpu_settle(const void* key);
GPU("run")
void gpu_run(const void* key, const int* programs, size_t count, uint32_t rows, uint32_t out_rows,
             int result, size_t offset, size_t size);
#undef GPU
}

std::string text_of(size_t (*get)(char* out, size_t room)) {
  std::string text(get(nullptr, 0), '\0');
  get(text.data(), text.size());
  return text;
}

// Begins `work`, which wakes the key, waits for that, and takes its result, if it has one.
template <typename Work>
void wait(const Work& work, std::span<std::byte> out = {}) {
  const char key = 0;
  work(&key);
  fibres::block(&key);
  check();
  if (!out.empty()) gpu_take(&key, out.data(), out.size());
}

}  // namespace

bool present() { return gpu_present() != 0; }
void open() { wait(gpu_open); }
int generation() { return gpu_generation(); }
bool software() { return gpu_software() != 0; }
std::string name() { return text_of(gpu_name); }
void check() {
  const std::string failure = text_of(gpu_failure);
  if (!failure.empty()) throw Error(ErrorKind::kDevice, cat("[webgpu] ", failure));
}

Buffer::Buffer(size_t bytes) : size_((bytes + 3) / 4 * 4), id_(gpu_make_buffer(size_)) {}
Buffer::~Buffer() { gpu_drop_buffer(id_); }
void Buffer::write(size_t offset, Bytes bytes) {
  CHECK(offset <= size_ && bytes.size() <= size_ - offset);
  gpu_write(id_, offset, bytes.data(), bytes.size());
}
void Buffer::read(size_t offset, std::span<std::byte> out) const {
  CHECK(offset <= size_ && out.size() <= size_ - offset);
  if (out.empty()) return;
  wait([&](const void* key) { gpu_read(key, id_, offset, out.size()); }, out);
}

Id make_program(std::string_view json) { return gpu_make_program(json.data(), json.size()); }
void drop_program(Id program) { gpu_drop_program(program); }
bool settled() { return gpu_settled() != 0; }
void settle() { wait(gpu_settle); }
void run(std::span<const Id> programs, uint32_t rows, uint32_t out_rows, Id result, size_t offset,
         std::span<std::byte> out) {
  wait(
      [&](const void* key) {
        gpu_run(key, programs.data(), programs.size(), rows, out_rows, result, offset, out.size());
      },
      out);
}

}  // namespace split::webgpu::gpu
