// A Shard runs the stages between two points of a model on one device, and owns the KV pages of its
// layers. Cloud and edge run the same class over different stages, and any range inside a shard can
// be run from an injected hidden state. Keeps asking for weights: a device that fails is loaded
// again. Knows no socket and no text.
//
// A shard may begin with its last stages alone and grow downwards while it runs: grow() brings one
// stage after the other up beside the steps and binds each between two of them.
//
// A step runs the stages between two points (step/point.h) that lie in the shard's own range: from
// tokens or a hidden state to any later point. The top is the shard's own, found where it has the
// head.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/resources/turns.h"
#include "device/device.h"
#include "io/checkpoint.h"
#include "models/formats.h"
#include "models/model.h"
#include "run/kv_pages.h"
#include "step/rows.h"

namespace split {

// Weight format and activations: kF32 is float arithmetic on the checkpoint's own types with a
// float KV cache; the others have a half KV cache and float sums: kF16 and kBF16 read half weights,
// kQ8_0, kQ4_0 and those of int8 are for weights in the formats of profile_formats(). On the CPU
// the rows of a product by BF16 weights of kBF16, and by quantised weights of any profile, are
// rounded to bf16; those by quantised weights of kInt8, and of kInt8Decode the generated ones among
// them, to blocks of int8: both are the CPU's alone.
enum class Profile : uint8_t { kF32, kF16, kBF16, kQ8_0, kQ4_0, kInt8, kInt8Decode };
std::string_view profile_name(Profile profile);
std::optional<Profile> profile_from_name(std::string_view name);
inline bool rounds_to_int8(Profile profile) {
  return profile == Profile::kInt8 || profile == Profile::kInt8Decode;
}
StageFormats profile_formats(Profile profile);
// Throws Error(kInput) where the device has no such products.
void expect_profile(const Device& device, Profile profile);

// Weights by their checkpoint names. A Shard first asks what all of them are and then for their
// bytes, in the order of its stages: what is on its way is waited for when its turn comes. One that
// grows asks for those of each stage when it is that one's turn, beside a thread that may load
// again those that are there.
struct WeightSource {
  // All there at once.
  template <typename Get>
  requires std::is_invocable_r_v<TensorView, Get, const std::string&> WeightSource(const Get& get)
      : declared(get), view(get) {}
  WeightSource() = default;

  using Find = std::function<TensorView(const std::string& name)>;
  Find declared;  // type and shape; the bytes may not be there yet
  Find view;      // the bytes must outlive the Shard
  // If set: told that a device has taken what it needs of the view for now and keeps no pointer.
  std::function<void(const TensorView& view)> taken;
  // The stage with the most bytes that are there goes first, not the first one: where these are in
  // memory, they lie beside their packed copies before those of the others do.
  bool largest_first = false;
};
// The tensor that the checkpoint has for a weight: its own in blocks, else the one that it is a
// copy of, if any. Throws Error(kNotFound).
TensorView stored_weight(const Checkpoint& checkpoint, const WeightDecl& decl);
// Those of a checkpoint. Both outlive it.
WeightSource weights_of(const Checkpoint& checkpoint, const Model& model);

struct ShardOptions {
  // The lowest point that rows can be fed at, and the highest that can be asked for, up to the
  // head, which brings the top along.
  StageRange range;
  // The lowest point that rows can be fed at until grow() brings what is before it: one up to the
  // last block's end, or range.to, where nothing is there yet. None: all is there at once.
  std::optional<Point> floor = {};
  Profile profile = Profile::kF32;
  // Where these are quantised, matrices that do not come so are quantised at load.
  StageFormats formats;
  // The type of keys and values, in place of the profile's: Q8_0, where heads are whole blocks. A
  // shard's own options() have what it keeps.
  std::optional<DType> kv;
  bool wide = false;
  uint64_t kv_bytes = 0;  // of all the range: at least one sequence of the whole context
  uint32_t max_rows = 512;
  // A step of one prompt alone may have so many, where these are more and the device takes them.
  uint32_t long_rows = 0;
  unsigned threads = 0;  // of the CPU that takes a failed device's place; 0: one for each processor
};

// Texts in a step of an encoder: rows are many with a long context, pages for each are not.
inline constexpr uint32_t kMostTexts = 512;

// Rows of a prompt that a large GPU runs faster together than in parts (tests/bench/README.md).
inline constexpr uint32_t kLongRows = 2048;

// Logits that the last point has: the largest, or all of a smaller vocabulary.
inline constexpr int kTopLogits = 64;

// A sequence's part of a step: rows appended at its present length, rows.past; or rows that it has
// already, computed again in place.
struct ShardRows {
  SequenceId sequence = 0;
  SequenceRows rows;
};

// One thread at a time, and one beside it that makes it grow.
class Shard {
 public:
  // The source stays usable as long as the Shard lives. A device that fails is replaced as by
  // recover(). Throws Error(kInput) for a budget that holds no sequence, a profile or a type of
  // keys and values that the device or the model does not take and a quantised weight with a scale
  // that is not finite, Error(kShape) for a weight of another shape or type.
  Shard(Device& device, const Model& model, const WeightSource& weights,
        const ShardOptions& options);
  ~Shard();
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  const Model& model() const { return model_; }
  const ShardOptions& options() const { return options_; }
  // The one it was given, or the CPU in its place.
  Device& device() const { return *device_; }
  KvPages& pages() { return pages_; }
  const KvPages& pages() const { return pages_; }
  uint64_t page_bytes() const { return page_bytes_; }  // of one page, over all layers, K and V

  // Floats of one result row at a point: V for the head, two for each of its top k, else C.
  size_t width(Point point) const;
  // Whether rows cross a bus to the host, so that all logits cost more than finding the top k.
  bool host_copy_is_slow() const { return device_.load()->host_copy_is_slow(); }
  // Whether rows have the same bits in both phases. Any thread.
  bool same_bits_in_both_phases() const { return same_bits_in_both_phases_; }
  // The cost of a step's rows: each in blocks that it runs through, and each wanted one that
  // goes to the head as many more as that has a block's parameters.
  uint64_t layer_rows(const StageRange& range, uint64_t rows, uint64_t wanted) const;
  // The cost of a step's rows in rows of the whole model.
  double whole_rows(const SequenceRows& rows) const;
  // How many rows a step of one prompt alone may have. Any thread.
  uint32_t long_rows() const { return long_rows_; }
  // How many wanted rows a step to `point` may have.
  uint32_t max_wanted(Point point) const;

  // The lowest point that rows can be fed at now. Any thread.
  Point floor() const { return floor_; }
  // Brings up the stages between this point and the floor, the last of them first, but norm and
  // head together; each makes the floor lower. Between two steps, so that the next one waits for
  // that: room for its keys and values, and on a GPU its commands. Everything else goes on beside
  // the steps, and the weights are asked for there. Throws what the constructor throws,
  // Error(kDevice) too where a device has no room: the floor is then as low as it came.
  void grow(Point down_to);

  // Runs one step: all parts from one point, those that go farthest first, and in one phase unless
  // these are alike. Each block runs the rows of the parts that go beyond it: out has the wanted
  // rows of one part after the other, [width(its range.to)] each. Every part has pages for its rows
  // (pages().reserve), its blocks the rows before these, and at most max_rows rows come together,
  // or long_rows() of one prompt.
  // Throws Error(kNotFound) below the floor and Error(kDevice), after which the sequences are as
  // before.
  void forward(std::span<const ShardRows> parts, float* out);

  // ms of each stage in a step of few rows, as far as there were any: about those of the last that
  // ran stage by stage, which one in 32 does where that costs nothing, on a CPU. Any thread.
  std::map<std::string, double> stage_times() const;

  // After forward() threw `error`: if that was a device's failure, loads all again, on the device
  // or, when that fails too or just failed, on the CPU, and says so in a line: the stages from the
  // floor on. Every sequence is empty then. False for anything else. Throws what loading throws.
  bool recover(const Error& error);

 private:
  struct Loaded;  // programs, buffers and the step's scratch
  class Growth;   // a stage on its way there
  // Place of the stage that leads to a point in the model, and among those of this shard; behind
  // the head's comes the top k.
  size_t stage_index(Point point) const;
  size_t index_to(Point point) const;
  const Stage& stage_to(Point point) const { return model_.stages()[stage_index(point)]; }
  uint32_t max_wanted_of(bool logits) const;
  void load();
  // Parts of this shard: its stages, and the top k where it has logits; the first that is there.
  size_t parts() const;
  size_t first_part() const;
  std::vector<Program> trace() const;
  Program trace(size_t part, bool there) const;
  bool has_same_bits_in_both_phases(const Program& program, const Limits& limits) const;
  Limits limits_of(std::span<const Program> programs) const;
  void allocate(Loaded& loaded) const;
  void allocate_part(Loaded& loaded, size_t part) const;
  void bind(Loaded& loaded, std::span<const Program> programs) const;
  std::vector<Binding> bindings_of(Loaded& loaded, size_t part, const Program& program) const;
  void add_programs(const StageRange& range, bool any_wanted);
  void gather(std::span<const ShardRows> parts);
  void run_range(const StageRange& range, RowBatch batch, bool timed, float* out);
  void run_stage_by_stage(const RowBatch& batch);
  std::atomic<Device*> device_;
  std::unique_ptr<Device> cpu_;  // once it took the place
  const Model& model_;
  const WeightSource weights_;
  ShardOptions options_;
  std::span<const Stage> stages_;  // of the model, those that run here
  const uint64_t head_blocks_;
  uint64_t page_bytes_ = 0;
  KvPages pages_;  // after page_bytes_
  Turns turns_;    // of the steps, and of what grows, at the device and at:
  std::shared_ptr<Loaded> loaded_;
  std::atomic<Point> floor_;
  std::atomic<bool> same_bits_in_both_phases_ = true;
  std::atomic<uint32_t> long_rows_ = 0;
  uint64_t steps_ = 0;  // since the device was started
  uint64_t small_steps_ = 0;
  mutable std::mutex times_mutex_;  // of:
  std::map<std::string, double> times_;
};

// Bytes of KV cache that `sequences` whole contexts take in a shard of these stages.
uint64_t kv_bytes_for(const Model& model, const StageRange& range, Profile profile,
                      uint64_t sequences, std::optional<DType> kv = {});

}  // namespace split
