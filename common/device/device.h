// A Device runs Programs. It holds buffers, loads a Program once (pipelines, recordings, packed
// weights) and replays it for every step with no allocation. It knows rows, pages and phases; it
// knows no model, file or socket.
//
// Rows. A step has R rows, each a token or a hidden vector at a position of a sequence. A row's
// bits depend on the device, the profile and the phase alone, not on its neighbours, the row count
// or the thread count. Pages. K and V of a layer live in pages of kPageTokens positions; the step
// names the pages of each sequence. One thread at a time, but for make_ready(); different devices
// are independent.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "compile/compile.h"
#include "step/phase.h"
#include "tensor/shape.h"
#include "tensor/state_shape.h"

namespace split {

// Attention is summed over splits at absolute multiples of this, in order.
inline constexpr uint32_t kSplitKeys = 128;

class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual size_t size() const = 0;  // bytes
  // Whether an uploaded weight, once the programs that use it are loaded, still reads the
  // view's bytes. Where that only goes on beside the caller, no longer after settle().
  virtual bool borrows() const { return true; }
};

// The rows that products by quantised weights round to int8; the others are rounded to bf16.
enum class Int8Rows : uint8_t { kNone, kGenerated, kAll };

// The largest step of a workspace.
struct Limits {
  uint32_t rows = 0;
  uint32_t long_rows = 0;  // most rows of one prompt alone, if above the others
  uint32_t sequences = 0;  // different ones in one step
  uint32_t pages_per_sequence = 0;
  uint32_t pages = 0;          // pages in each cache; page `pages` is spare, for padding rows only
  uint32_t states = 0;         // sequences' states in the buffer of a block that keeps them
  size_t arena_row_bytes = 0;  // the largest of the programs that run in it
  bool matrix = false;         // a profile of halves or blocks: prompt rows may use matrix units,
                               // always, and products by BF16 weights round their rows to bf16
  bool wide = false;           // generated rows too
  Int8Rows int8 = Int8Rows::kNone;
  uint32_t most_rows() const { return std::max(rows, long_rows); }
};

// A part of a buffer that is copied to another part of it.
struct BufferCopy {
  Buffer* buffer = nullptr;
  size_t from = 0, to = 0, bytes = 0;
};

// Bytes of the states of one block.
inline size_t states_bytes(const Limits& limits, const StateShape& shape) {
  return limits.states * shape.floats() * sizeof(float);
}

// The memory that the programs of one shard share: the arena for temporaries and the symbols of the
// current step.
class Workspace {
 public:
  virtual ~Workspace() = default;
};

// A Program bound to buffers.
class Executable {
 public:
  virtual ~Executable() = default;
};

struct Binding {
  std::string name;  // the slot's name
  Buffer* buffer = nullptr;
};

// Keys of a row's sequence, by the positions of that sequence: [first, end).
struct KeyRange {
  uint32_t first = 0, end = 0;
};

// One step: a view of rows of sequences (step/rows.h) that lie one after the other. Spans are read
// before run() returns.
struct RowBatch {
  Phase phase = Phase::kPrompt;
  uint32_t rows = 0;
  std::span<const int32_t> tokens;      // [rows], or empty when no program gathers by token
  std::span<const int32_t> positions;   // [rows], of a row's key in its sequence, too
  std::span<const int32_t> marks;       // [rows], or empty when no program gathers by it
  std::span<const uint32_t> sequences;  // [rows]: which page table
  // [rows]: the keys that the attention of a row sees, one at least, all stored by this step or an
  // earlier one. Causal: first = 0, end = position + 1.
  std::span<const KeyRange> seen;
  std::span<const uint32_t> page_tables;  // [sequences][limits.pages_per_sequence]
  // [programs][sequences]: the state that a program's rows of a sequence read and write; an empty
  // one for a program that keeps none.
  std::span<const std::span<const uint32_t>> states;
  // The rows whose result is wanted, ascending; kOutRows of the programs.
  std::span<const uint32_t> out_rows;
  // Copied into `in` before the first program, when given, and out of `out` after the last.
  Buffer* in = nullptr;
  Bytes in_bytes;
  Buffer* out = nullptr;
  size_t out_offset = 0;
  std::span<std::byte> out_bytes;
};

class Device {
 public:
  virtual ~Device() = default;

  // "cpu (2 threads, avx512)" or "vulkan:0 (NVIDIA H200, driver 580.159.04)".
  virtual std::string name() const = 0;
  // Identifies what its results depend on: the hardware, its driver, the kernels; nothing when
  // there is nothing to doubt.
  virtual std::optional<std::string> fingerprint() const { return std::nullopt; }
  // Names what its results' bits depend on, beside the formats: devices of one name give the same.
  // `in_bf16`: where products or attention round to bf16.
  virtual std::string arithmetic(bool /*in_bf16*/) const { return fingerprint().value_or(name()); }
  virtual FuseRules fuse_rules() const = 0;
  // Whether it has a kernel for a step of the program, in its sizes. load() refuses a program with
  // another.
  virtual bool supports(const Program& /*program*/, const Step& /*step*/) const { return true; }

  // Zeroed. Throws Error(kDevice) when there is no room.
  virtual std::unique_ptr<Buffer> alloc(size_t bytes) = 0;
  // Whether alloc_pages() takes the type: F32, F16, Q8_0, which stores each row in blocks, or BF16,
  // with which attention rounds its queries and weights to bf16 too; of these two, heads of whole
  // kBlock channels.
  virtual bool supports_kv(DType kv) const { return kv == DType::kF32 || kv == DType::kF16; }
  // Whether keys and values are in BF16 where a profile of halves or blocks names no type.
  virtual bool keeps_bf16(Int8Rows /*rows*/) const { return supports_kv(DType::kBF16); }
  // Whether a row has the same bits in both phases, by matrices of this type.
  virtual bool same_bits_in_both_phases(const Limits& limits, DType /*matrix*/) const {
    return !limits.matrix;
  }
  // Whether there are products by matrices of this type, else they become halves.
  virtual bool multiplies(DType matrix) const { return !is_k_quant(matrix); }
  // Whether steps may have limits.long_rows: where they are the faster ones, and there is memory.
  virtual bool takes_long_rows(const Limits& /*limits*/) const { return true; }
  // Whether limits.int8 may be this.
  virtual bool multiplies_int8(Int8Rows rows) const { return rows == Int8Rows::kNone; }
  // K or V of one layer: limits.pages + 1 pages of [kPageTokens, kv_width], which is all heads of
  // keys by their channels. Not touched until used.
  virtual std::unique_ptr<Buffer> alloc_pages(const Limits& limits, int64_t kv_width,
                                              DType dtype) = 0;
  // The states that a block keeps of limits.states sequences (tensor/state_shape.h). Not touched
  // until used: row 0 of a sequence begins with what is there, whatever it is.
  virtual std::unique_ptr<Buffer> alloc_states(const Limits& limits, const StateShape& shape) {
    return alloc(states_bytes(limits, shape));
  }
  // A weight for the slot that will name it (its dims and `transposed` say how it is read). A
  // device may keep pointing into the view's bytes, which must outlive the buffer while it
  // borrows() them, or reorder a copy; it never enlarges it.
  virtual std::unique_ptr<Buffer> upload(const Slot& slot, const TensorView& view) = 0;
  virtual void write(Buffer& buffer, size_t offset, Bytes bytes) = 0;
  virtual void read(const Buffer& buffer, size_t offset, std::span<std::byte> out) = 0;

  // No part of these is the target of another one.
  virtual void copy(std::span<const BufferCopy> copies) {
    std::vector<std::byte> bytes;
    for (const BufferCopy& copy : copies) {
      bytes.resize(copy.bytes);
      read(*copy.buffer, copy.from, bytes);
      write(*copy.buffer, copy.to, bytes);
    }
  }

  virtual std::unique_ptr<Workspace> workspace(const Limits& limits) = 0;
  // Called with all programs that will be loaded, before what they are bound to is there: a device
  // may make room for it, and begin what takes long. Throws Error(kDevice) as load() does.
  virtual void prepare(std::span<const Program> /*programs*/, Workspace& /*workspace*/) {}
  // Binds every input, weight and output slot of `program` but the step's symbols, which the
  // workspace holds. Throws Error(kDevice) for a program this device cannot run.
  virtual std::unique_ptr<Executable> load(const Program& program, Workspace& workspace,
                                           std::span<const Binding> bindings) = 0;
  // Makes of the weights among `bindings` what load() would, so that this is short afterwards. For
  // a program that no step runs yet: on one thread beside all the others.
  virtual void make_ready(const Program& /*program*/, const Limits& /*limits*/,
                          std::span<const Binding> /*bindings*/) {}
  // Goes on with what load() began beside its caller, and says whether that is done, without a
  // wait. Throws Error(kDevice) as load() does.
  virtual bool settled() { return true; }
  // Waits for it. Steps of what was loaded before need no such wait.
  virtual void settle() {}
  // Runs the programs in order over the batch. Results do not depend on how work is cut. Throws
  // Error(kDevice).
  virtual void run(Workspace& workspace, std::span<Executable* const> programs,
                   const RowBatch& batch) = 0;

  // Whether it is a GPU: not the processor, nor a driver that computes there.
  virtual bool is_gpu() const { return false; }
  // Bytes of its own memory; 0 where that is the machine's.
  virtual uint64_t own_memory() const { return 0; }

  // Whether a driver or other hardware stands behind it, which may be lost or out of memory: what
  // it held is then gone, and once all that was made of it is destroyed, restart() makes it as new
  // or throws Error(kDevice).
  virtual bool can_be_lost() const { return false; }
  virtual void restart() {}

  // Whether the processor may be the faster one, since each step waits long for its result.
  virtual bool waits_long() const { return false; }

  // Whether a bus lies between its buffers and the host.
  virtual bool host_copy_is_slow() const { return false; }

  // From now on run() also takes the time that the device itself needs, where it can tell.
  virtual void measure(bool /*on*/) {}
  virtual std::optional<double> device_ms() const { return std::nullopt; }  // the last run()'s
};

// Throws Error(kDevice) that names the op of a step which the device does not support.
inline void check_supported(const Device& device, const Program& program) {
  for (const Step& step : program.steps) {
    if (device.supports(program, step)) continue;
    throw Error(ErrorKind::kDevice, cat("[device] ", device.name(), ": program '", program.name,
                                        "': no kernel for ", op_info(step.op).name));
  }
}

struct DeviceOptions {
  std::string device = "auto";  // as device_names() says
  unsigned threads = 0;         // for the CPU device; 0: one per processor
};

struct ListedDevice {
  std::string name;  // name for --device: "cpu", "vulkan:0"
  std::string text;  // its Device::name(), and what it lacks
  bool is_gpu = false;
  bool usable = true;
};

// A kind of devices. Another one is a folder here, a line of the table in device.cpp, and one of
// CMakeLists.txt.
struct DeviceKind {
  std::string_view name;  // name for --device
  bool gpus = false;      // --device auto looks for one here, and "NAME:N" picks one
  // `which`: "" for the first GPU (null where there is none), "any" for a GPU or else another one,
  // or an index. Throws Error(kDevice) when there is no such device.
  std::unique_ptr<Device> (*make)(const DeviceOptions& options, const std::string& which) = nullptr;
  std::vector<ListedDevice> (*list)() = nullptr;
};
std::span<const DeviceKind> device_kinds();
// "auto, cpu, vulkan or vulkan:N"
std::string device_names();
// "auto|cpu|vulkan": those that can be typed as they stand.
std::string device_words();

// Throws Error(kInput) for a name that no device can have.
void check_device_name(const std::string& name);
// Throws Error(kInput) for a name that is none, Error(kDevice) when there is no such device.
std::unique_ptr<Device> make_device(const DeviceOptions& options);
std::vector<ListedDevice> list_devices();

std::unique_ptr<Device> make_cpu_device(unsigned threads);
#ifdef SPLIT_WITH_VULKAN
std::unique_ptr<Device> make_vulkan_device(const std::string& which);
std::vector<ListedDevice> list_vulkan_devices();
#endif
#ifdef SPLIT_WITH_WEBGPU
bool has_webgpu();
std::unique_ptr<Device> make_webgpu_device(const std::string& which);
#endif

}  // namespace split
