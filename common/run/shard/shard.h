// A Shard runs the stages between two points of a model on one device, and owns the KV pages of its
// layers. Cloud and edge run one class over different stages, and any range inside a shard can be
// run from an injected hidden state. Asks for weights at any time: a device that fails is loaded
// again. Knows no socket and no text.
//
// A shard may begin with its last stages alone and grow downwards while it runs: grow() brings up
// one stage after the other beside the steps and binds each between two of them.
//
// A step runs the stages between two points (step/point.h) that lie in the shard's own range: from
// tokens or a hidden state to any later point. A shard that has the head finds the top itself.
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

// Weight format and activations. kF32 is float arithmetic on the checkpoint's own types with a
// float KV cache; the others have a half KV cache and float sums: kF16 and kBF16 read half weights,
// kQ8_0, kQ4_0 and both int8 profiles take the formats of profile_formats(). On the CPU, products
// round their rows to bf16 by kBF16's BF16 weights and by quantised weights of any profile, but to
// blocks of int8 by kInt8's quantised weights, and by kInt8Decode's for generated rows, which GPUs
// do not know.
enum class Profile : uint8_t { kF32, kF16, kBF16, kQ8_0, kQ4_0, kInt8, kInt8Decode };
std::string_view profile_name(Profile profile);
std::optional<Profile> profile_from_name(std::string_view name);
inline Int8Rows int8_rows(Profile profile) {
  return profile == Profile::kInt8         ? Int8Rows::kAll
         : profile == Profile::kInt8Decode ? Int8Rows::kGenerated
                                           : Int8Rows::kNone;
}
inline bool rounds_to_int8(Profile profile) { return int8_rows(profile) != Int8Rows::kNone; }
StageFormats profile_formats(Profile profile);
// Throws Error(kInput) if the device has no such products.
void expect_profile(const Device& device, Profile profile);

// Weights by their checkpoint names. A Shard first asks for all types and shapes and then for
// bytes, in the order of its stages: the source waits for bytes that are on their way. A growing
// shard asks for each stage's in its turn, beside a thread that may load earlier ones again.
struct WeightSource {
  // A source whose bytes are all there.
  template <typename Get>
  requires std::is_invocable_r_v<TensorView, Get, const std::string&> WeightSource(const Get& get)
      : declared(get), view(get) {}
  WeightSource() = default;

  using Find = std::function<TensorView(const std::string& name)>;
  Find declared;  // type and shape; the bytes may not be there yet
  Find view;      // the bytes must outlive the Shard
  // If set: called when a device has taken what it needs of the view and keeps no pointer for now.
  std::function<void(const TensorView& view)> taken;
  // The stage with the most bytes present goes first, not the first stage: weights in memory lie
  // beside their packed copies, the largest before the others have theirs.
  bool largest_first = false;
};
// The checkpoint's tensor for a weight: its own in blocks, else the one that it is a copy of, if
// any. Throws Error(kNotFound).
TensorView stored_weight(const Checkpoint& checkpoint, const WeightDecl& decl);
// The weights of a checkpoint. Both arguments outlive the source.
WeightSource weights_of(const Checkpoint& checkpoint, const Model& model);

struct ShardOptions {
  // The lowest point that rows can be fed at, and the highest that can be asked for, up to the
  // head, which brings the top along.
  StageRange range;
  // The lowest point that rows can be fed at before grow(): one up to the last block's end, or
  // range.to, for no stage at all. None: all stages are there at once.
  std::optional<Point> floor = {};
  Profile profile = Profile::kF32;
  // Quantised formats: matrices of other types are quantised at load.
  StageFormats formats;
  // The type of keys and values, in place of the profile's: Q8_0, if heads are whole blocks.
  // Shard::options() has the chosen type.
  std::optional<DType> kv;
  bool wide = false;
  // For the whole range: at least one sequence of the whole context. Where blocks keep a state,
  // half of it is for states, but for two sequences' at least.
  uint64_t kv_bytes = 0;
  uint32_t max_rows = 512;
  // Most rows in a step of one prompt alone, if above max_rows and the device takes them.
  uint32_t long_rows = 0;
  unsigned threads = 0;  // for the CPU that replaces a failed device; 0: one for each processor
};

// Most texts in a step of an encoder: bounds the pages, since rows are many with a long context.
inline constexpr uint32_t kMostTexts = 512;

// Rows of a prompt that a large GPU runs faster together than in parts (tests/bench/README.md).
inline constexpr uint32_t kLongRows = 2048;

// Logits that the last point has: the largest, or all of a smaller vocabulary.
inline constexpr int kTopLogits = 64;

// A sequence's part of a step: rows appended at its present length, rows.past; or earlier rows,
// computed again in place.
struct ShardRows {
  SequenceId sequence = 0;
  SequenceRows rows;
};

// One thread at a time, and one beside it that calls grow().
class Shard {
 public:
  // The source stays usable as long as the Shard lives. A device that fails is replaced as by
  // recover(). Throws Error(kInput) for a budget that holds no sequence, a profile or a type of
  // keys and values that the device or the model does not take, a quantised weight with a scale or
  // a decay with a value that is not finite, Error(kShape) for a weight of another shape or type.
  Shard(Device& device, const Model& model, const WeightSource& weights,
        const ShardOptions& options);
  ~Shard();
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  const Model& model() const { return model_; }
  const ShardOptions& options() const { return options_; }
  // The given device, or the CPU in its place.
  Device& device() const { return *device_; }
  KvPages& pages() { return pages_; }
  const KvPages& pages() const { return pages_; }
  uint64_t page_bytes() const { return page_bytes_; }    // a page over all layers, K and V
  uint64_t state_bytes() const { return state_bytes_; }  // a state over all layers
  // Bytes of pages and states: those that sequences hold, and all.
  uint64_t kept_bytes() const {
    return page_bytes_ * pages_.in_use() + state_bytes_ * pages_.states_in_use();
  }
  uint64_t room_bytes() const {
    return page_bytes_ * pages_.total() + state_bytes_ * pages_.states();
  }

  // Floats of one result row at a point: V for the head, two for each of its top k, C for the norm,
  // else C and the row's parts.
  size_t width(Point point) const;
  // Whether rows cross a bus to the host, so that all logits cost more than finding the top k.
  bool host_copy_is_slow() const { return device_.load()->host_copy_is_slow(); }
  // Whether rows have the same bits in both phases. Any thread.
  bool same_bits_in_both_phases() const { return same_bits_in_both_phases_; }
  // In the profile int8: the step that is not as its specification has it, null if all are. Any
  // thread.
  const char* differs_from_exact() const { return differs_from_exact_; }
  // The cost of a step's rows: one for each block that a row runs through, and the blocks that the
  // head's parameters equal for each wanted row that goes to the head.
  uint64_t layer_rows(const StageRange& range, uint64_t rows, uint64_t wanted) const;
  // The cost of a step's rows in rows of the whole model.
  double whole_rows(const SequenceRows& rows) const;
  // Most rows in a step of one prompt alone. Any thread.
  uint32_t long_rows() const { return long_rows_; }
  // Most wanted rows in a step to `point`.
  uint32_t max_wanted(Point point) const;

  // The lowest point that rows can be fed at now. Any thread.
  Point floor() const { return floor_; }
  // Brings up the stages between this point and the floor, the last of them first, but norm and
  // head together; each lowers the floor. Room for keys and values, and on a GPU its commands, are
  // made between two steps, so that the next one waits; all else, asking for the weights too, runs
  // beside the steps. Throws the constructor's errors, and Error(kDevice) if a device has no room:
  // the floor then stays as low as it came.
  void grow(Point down_to);

  // Runs one step: all parts from one point, the farthest end point first, and in one phase unless
  // these are alike. Each block runs the rows of the parts that go beyond it: out has the wanted
  // rows of one part after the other, [width(its range.to)] each. Every part has pages for its rows
  // (pages().reserve), its blocks the rows before these, and at most max_rows rows come together,
  // or long_rows() of one prompt. Throws Error(kNotFound) below the floor and Error(kDevice), after
  // which the sequences are as before.
  void forward(std::span<const ShardRows> parts, float* out);

  // KvPages::leave() and KvPages::join(), with the copies that they ask for, between two steps.
  KvPages::Snapshot leave(SequenceId id, const StageRange& range, uint32_t row);
  bool join(SequenceId id, SequenceId fork, const StageRange& range, uint32_t from);

  // ms of each stage in a step of few rows, as far as known: measured in steps that run stage by
  // stage, one in 32 where that costs nothing, on a CPU. Any thread.
  std::map<std::string, double> stage_times() const;

  // Call after forward() threw `error`: for a device's failure, loads the stages from the floor on
  // again, on the device or, if that fails too or failed lately, on the CPU, logs a line and
  // empties every sequence. Returns false for other errors. Throws what loading throws.
  bool recover(const Error& error);
  bool was_lost() const { return was_lost_; }  // recover() has loaded stages again. Any thread

 private:
  friend class test::LiveStates;
  struct Loaded;  // programs, buffers and the step's scratch
  class Growth;   // a stage that is being brought up
  // Index of the stage that leads to a point, in the model and in this shard; the top k's is behind
  // the head's.
  size_t stage_index(Point point) const;
  size_t index_to(Point point) const;
  const Stage& stage_to(Point point) const { return model_.stages()[stage_index(point)]; }
  uint32_t max_wanted_of(bool logits) const;
  void load();
  // Number of this shard's parts: its stages, and the top k if it has logits; the first one there.
  size_t parts() const;
  size_t first_part() const;
  std::vector<Program> trace() const;
  Program trace(size_t part, bool there) const;
  bool has_same_bits_in_both_phases(const Program& program, const Limits& limits) const;
  Limits limits_of(std::span<const Program> programs) const;
  void allocate(Loaded& loaded) const;
  void allocate_part(Loaded& loaded, size_t part) const;
  // Whether two blocks read and write the same keys and values.
  bool shares_pages(const Stage& a, const Stage& b) const {
    return model_.config().encodes() || (a.kv.source >= 0 && a.kv.source == b.kv.source);
  }
  void bind(Loaded& loaded, std::span<const Program> programs) const;
  std::vector<Binding> bindings_of(Loaded& loaded, size_t part, const Program& program) const;
  void add_programs(const StageRange& range, bool any_wanted);
  void gather(std::span<const ShardRows> parts);
  void look_up();
  void spoil_state(size_t block, uint32_t number);
  void spoil_states(const StageRange& range, std::span<const uint32_t> states);
  void copy_states(const KvPages::Copies& copies);
  bool copied(const KvPages::Copies& copies);
  void run_range(const StageRange& range, RowBatch batch, bool timed, float* out);
  void run_stage_by_stage(const RowBatch& batch);
  void place_parts(Point from);
  void take_parts(Point to, std::span<const uint32_t> wanted, float* out);
  std::atomic<Device*> device_;
  std::unique_ptr<Device> cpu_;  // once it replaced the device
  const Model& model_;
  const WeightSource weights_;
  ShardOptions options_;
  std::span<const Stage> stages_;  // the model's stages that run here
  const uint64_t head_blocks_;
  uint64_t page_bytes_ = 0, state_bytes_ = 0;
  KvPages pages_;  // after these
  Turns turns_;    // steps' and growth's turns at the device and at:
  std::shared_ptr<Loaded> loaded_;
  std::atomic<Point> floor_;
  std::atomic<bool> same_bits_in_both_phases_ = true;
  std::atomic<const char*> differs_from_exact_ = nullptr;
  std::atomic<bool> was_lost_ = false;
  std::atomic<uint32_t> long_rows_ = 0;
  uint64_t steps_ = 0;  // since the device was started
  uint64_t small_steps_ = 0;
  mutable std::mutex times_mutex_;  // guards:
  std::map<std::string, double> times_;
};

// Bytes of the two states that a sequence has while a fill computes rows of it again.
uint64_t state_bytes_for(const Model& model, const StageRange& range);
// Bytes of KV cache that `sequences` whole contexts take in a shard of these stages, with their
// states.
uint64_t kv_bytes_for(const Model& model, const StageRange& range, Profile profile,
                      uint64_t sequences, std::optional<DType> kv = {});

}  // namespace split
