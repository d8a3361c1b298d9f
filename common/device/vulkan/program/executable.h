// A Program as commands that are ready to be recorded: variants for 1, 2, 4 and 8 rows, of one row
// another for many keys, and one for any number of rows, whose group counts are read from a buffer.
// Where a profile of halves meets matrix units there are cooperative-matrix variants too: prompt
// rows always run by them, and so do the generated rows of a wide shard. Padding rows of the narrow
// variants store nothing. A Program over both rows and output rows has no narrow variants.
#pragma once

#include "device/vulkan/codegen/numbers.h"
#include "device/vulkan/program/commands.h"
#include "device/vulkan/runtime/buffers.h"
#include "device/vulkan/tuning/layouts.h"

namespace split::vulkan {

inline constexpr std::array<uint32_t, 5> kNarrowRows = {1, 1, 2, 4, shader::NARROW_ROWS};
inline constexpr size_t kWide = kNarrowRows.size();  // the variant for any number of rows, and
// those that use matrix units: for a prompt and for generated rows, and with the same sums for
// short prompts and steps of so many rows.
inline constexpr size_t kPromptCoopMatrix = kWide + 1;
inline constexpr size_t kShortCoopMatrix = kWide + 2;
inline constexpr std::array<uint32_t, 4> kShortPrompts = {32, 64, 128, 256};
inline constexpr size_t kDecodeCoopMatrix = kShortCoopMatrix + kShortPrompts.size();
inline constexpr size_t kFewCoopMatrix = kDecodeCoopMatrix + 1;
inline constexpr uint32_t kFewRows = 16;
inline constexpr size_t kVariants = kFewCoopMatrix + 1;

class VulkanExecutable final : public Executable {
 public:
  // Throws Error(kDevice) for a program that this device cannot run.
  VulkanExecutable(CorePtr core, const Program& program, VulkanWorkspace& workspace,
                   std::span<const Binding> bindings);

  static bool has_kernel(Op op) { return kAdd[op] != nullptr; }
  // The memory that loading the program will take, computed without its bindings.
  struct Needs {
    struct Room {
      size_t slot = 0;            // a weight or a cache
      std::vector<size_t> parts;  // bytes
    };
    std::vector<Room> memory;
    std::array<std::vector<PipelineKey>, kVariants> pipelines;
  };
  static Needs needs(const CorePtr& core, const Program& program, VulkanWorkspace& workspace);

  struct Command : BoundKernel {
    size_t row_axis = 0;  // index into groups for the rows
    uint32_t rows_per_group = 1;
    bool out_rows = false;
    bool runs = false;       // groups[row_axis] is for runs of rows, not for rows
    bool scratch = false;    // uses the workspace's shared memory
    uint32_t part_keys = 0;  // groups[1] is for an attention's parts, of so many keys; 0: it is not
    bool waits = true;       // waits for the commands before it
    uint64_t weights = 0;    // elements of its matrix
    bool units = false;      // its products are by matrix units
    std::string what;        // for messages
    // A product whose layout has yet to be tuned, and its present layout.
    std::optional<std::pair<MatmulQuestion, MatmulShape>> question;
  };

  uint64_t id() const { return id_; }                // unique on this device, for good
  uint64_t last_fill() const { return last_fill_; }  // Memory's last fill that it reads from
  uint32_t most_rows(size_t variant) const;          // most rows of a variant
  // A batch's rows for this program.
  uint64_t rows(const RowBatch& batch) const {
    return uses_out_rows_ && !uses_rows_ ? batch.out_rows.size() : batch.rows;
  }
  // The variant for a batch, with a wide one's group counts written. Throws Error(kDevice) when a
  // bound buffer has too few rows, or for a token past its table.
  // `program`: its place among those of the batch's step.
  size_t prepare(const RowBatch& batch, size_t program);
  const std::vector<Command>& commands(size_t variant) const { return commands_[variant]; }
  // Records command i of a variant; `waits` for the commands before it.
  void record(VkCommandBuffer commands, size_t variant, size_t i, bool waits) const;

  // The device's time of each command of the last prepare(), in a line; at SPLIT_DEBUG=2, if the
  // device has a clock. Call after they ran.
  std::string times() const;

  // Number of layouts of the products with open questions; 0 if there are none.
  size_t layouts() const { return layouts_; }
  // Tells the tuner the products' times in the last run.
  void report(Tuner& tuner) const;

 private:
  static Range part(const Allocation& of, size_t offset, size_t bytes) {
    return {of.buffer(), of.offset() + offset, bytes};
  }
  // Binds nothing yet.
  VulkanExecutable(CorePtr core, const Program& program, VulkanWorkspace& workspace);
  void bind(std::span<const Binding> bindings);
  // A command before there are pipelines and sets.
  struct Dispatch : Command {
    PipelineKey key;
    Ranges ranges;
  };
  // The place of a bound slot or a temporary in device memory.
  struct Place {
    const Allocation* allocation = nullptr;
    size_t offset = 0;
    size_t rows = 0;  // rows of a rowwise slot
  };

  // How an attention step's caches and partial results lie.
  struct AttentionPlan {
    uint32_t pieces = 1;        // pieces of each cache
    uint32_t piece_pages = 0;   // pages of a piece
    uint32_t key_lanes = 1;     // lanes that share a key of a split
    uint32_t many_lanes = 1;    // lanes of a split's workgroup, few heads
    uint32_t split_lanes = 1;   // the same for many heads,
    uint32_t row_lanes = 1;     // lanes for all splits of a row
    Ranges caches;              // K's pieces, then V's
    uint32_t rows = 0;          // rows of the step at a time
    bool keeps_splits = false;  // a row's splits fit into shared memory
    uint32_t count_words = 0;   // before the partial results
    Range partial;
  };

  const Slot& slot(int index) const { return program_.slots[static_cast<size_t>(index)]; }
  VulkanBuffer& bound(int index) const;
  VulkanBuffer& bound_weight(int index) const;  // in the slot's sizes
  Place place(int index, WeightLayout layout = WeightLayout::kRows) const;
  Range whole(int index) const;
  Range rowwise(int index, uint32_t row_base, uint32_t row_piece, const Halves& halves) const;
  Range ranges_of(const Bind& bind, uint32_t row_base, uint32_t row_piece,
                  const Halves& halves) const;
  Range symbols() const;
  // Rows of a piece so that no rowwise binding of these slots is too large.
  uint32_t piece_rows(const std::vector<int>& slots, size_t max_rows) const;
  PipelineKey key_of(const KeptKernel& kernel, const Step& step, uint32_t workgroup) const;

  // Slots that a variant keeps as halves, and whether it gives a matmul to matrix units.
  const Halves& halves(size_t variant) const { return variant > kWide ? halves_ : no_halves_; }
  bool units_take(const Step& step) const;
  MatrixShape tile_of(const Step& step, size_t variant) const;
  bool by_units(const Step& step, size_t variant) const {
    return variant > kWide && halves_[static_cast<size_t>(step.in(inputs::matmul::x))];
  }

  // Neighbours' work is done in a matmul's kernel where sizes and the variant allow it.
  bool joins_matmul(size_t i, size_t variant) const;  // step i's result is made by its readers
  bool takes_pairs(const Step& matmul, size_t variant) const;  // by its twin or rotation
  bool takes_siblings(const Step& matmul) const;
  bool in_one_piece(const Step& matmul, int64_t columns) const;
  void lay_weights();  // siblings' one behind the other
  // Whether a product's rows are rounded to int8, and whether attention is that of caches in bf16.
  bool in_int8(const Step& matmul) const;
  bool in_bf16(const Step& attention) const;
  int64_t columns_of_siblings(const Step& matmul) const;  // its own too
  int64_t product_columns(const Step& matmul) const;      // by one kernel
  UnitProduct unit_product(const Step& matmul) const;
  // Whether step i puts its keys or values into their pages, as the attention's others do.
  bool puts(size_t i, size_t variant);
  bool is_taken(size_t i, size_t variant) const;  // by a matmul, as its twin or its rotation

  // The dispatches of step i.
  using Add = void (VulkanExecutable::*)(size_t i, size_t variant, std::vector<Dispatch>& out);
  static const ByOp<Add> kAdd;
  void add_group(size_t i, size_t variant, std::vector<Dispatch>& out);
  void add_matmul(size_t i, size_t variant, std::vector<Dispatch>& out);
  struct MatmulPlan;  // matmul_steps.cpp
  MatmulPlan matmul_kernel_of(size_t i, size_t variant);
  void lay_on_lanes(MatmulPlan& plan);
  void size_matmul(MatmulPlan& plan);
  PipelineKey matmul_key(const MatmulPlan& plan);
  Dispatch matmul_piece(const MatmulPlan& plan, uint32_t base, size_t column);
  Dispatch rounding_piece(const Step& product, size_t variant, uint32_t base, uint32_t piece,
                          const Range& rounded);
  void add_attention(size_t i, size_t variant, std::vector<Dispatch>& out);
  void add_store(size_t i, size_t variant, std::vector<Dispatch>& out);
  void add_row_attention(const Step& step, size_t variant, bool half, std::vector<Dispatch>& out);
  bool add_tiled_attention(const Step& step, size_t variant, std::vector<Dispatch>& out);
  void add_rotate(size_t i, size_t variant, std::vector<Dispatch>& out);
  void add_topk(size_t i, size_t variant, std::vector<Dispatch>& out);
  void add_head_part(size_t i, size_t variant, std::vector<Dispatch>& out);
  void add_conv_rows(size_t i, size_t variant, std::vector<Dispatch>& out);
  void add_delta(size_t i, size_t variant, std::vector<Dispatch>& out);
  Dispatch state_piece(const Step& step, Kernels::What what, uint32_t lanes, uint32_t base,
                       uint32_t rows);
  void write_state_slots(const RowBatch& batch, size_t program);
  const AttentionPlan& attention(const Step& step);
  void plan_lanes(const Step& step, AttentionPlan& plan);
  void plan_caches(const Step& step, AttentionPlan& plan);
  void plan_partial(const Step& step, AttentionPlan& plan);
  static size_t split_stride(const Step& attention);
  const KeptKernel& attention_kernel(Kernels::What what, const Step& step,
                                     std::optional<bool> half = {});
  struct AttentionBindings;  // attention_steps.cpp
  Dispatch attention_piece(const char* what, const KeptKernel& kernel, const Step& step,
                           size_t variant, uint32_t workgroup, uint32_t base, uint32_t rows,
                           const AttentionBindings& bindings);
  // The parts of the longest sequence's keys whose results are merged in the end, and how many
  // splits each is merged of first.
  struct Parts {
    uint32_t count = 1, splits = 1;
  };
  Parts parts(const Step& attention) const;
  // `made`: the slots that a product makes, which alone have keys or values for it, and the columns
  // at which they begin in it.
  using Made = std::vector<std::pair<int, uint32_t>>;
  void add_page_constants(const Step& step, size_t variant, PipelineKey& key,
                          const std::optional<Made>& made = std::nullopt);
  std::vector<Dispatch> dispatches(size_t variant);
  std::vector<std::vector<Dispatch>> dispatches();  // in all its variants
  void make_stamps();
  uint32_t first_stamp(size_t variant) const;
  std::vector<double> command_us() const;  // the last prepare()'s; empty: not stamped

  CorePtr core_;
  const uint64_t id_;
  VulkanWorkspace& workspace_;
  Program program_;
  const Program* const like_;           // from Kernels
  std::vector<VulkanBuffer*> buffers_;  // by slot
  std::vector<std::shared_ptr<Allocation>> scratch_;
  std::map<const Step*, AttentionPlan> attention_;
  Allocation state_slots_;                          // by sequence: its state of the present step
  bool uses_rows_ = false, uses_out_rows_ = false;  // rows that its steps run over
  std::array<int64_t, kStepInputs> limits_{-1, -1, -1, -1};  // rows of the tables that they index
  Sets sets_;
  std::array<std::vector<Command>, kVariants> commands_;
  Handle<VkQueryPool> stamps_;  // per variant, one before its first command and one after each
  size_t last_ = 0;             // variant of the last prepare()
  size_t layouts_ = 0;
  uint64_t last_fill_ = 0;
  Halves halves_;  // when there are variants that use matrix units, else empty
  const Halves no_halves_;
  // A VkDispatchIndirectCommand for each command of kWide and later variants.
  std::array<Allocation, kVariants - kWide> counts_;
};

}  // namespace split::vulkan
