// The state of a Shard on its device.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/resources/thread_pool.h"
#include "run/shard/shard.h"

namespace split {

// The rows of a step, one sequence after the other.
struct GatheredRows {
  void clear(size_t sequences, const Limits& limits);
  // Adds rows of the step's sequence of this number. In an encoder each row sees all of them, else
  // the rows before it.
  void add(uint32_t sequence, const SequenceRows& rows, const ModelConfig& config);
  // The first `rows` rows, with the page tables of the first `count` sequences, and with the wanted
  // rows [first, end).
  RowBatch batch(Phase phase, size_t rows, size_t count, size_t first, size_t end) const;

  size_t table_pages = 0;  // pages in each sequence's table
  std::vector<int32_t> tokens, positions, marks;
  std::vector<uint32_t> sequences, tables, out_rows;
  std::vector<std::vector<uint32_t>> states;  // by block of the model and sequence
  std::vector<KeyRange> seen;
  std::vector<float> hidden;
};

// The weights of a Shard: one buffer each, for all its readers.
class ShardWeights {
 public:
  ShardWeights(Device& device, const Model& model, const WeightSource& source)
      : device_(device), model_(model), source_(source) {}

  // Takes a weight from the source, which waits for its bytes, and converts it for the device.
  // Throws the errors of Shard's constructor.
  void fetch(const Slot& slot);
  // The whole weight as the source has it, for who reads rows of it.
  TensorView table(const std::string& name) const { return checked(name); }
  // Returns the buffer; fetches and uploads at the first call.
  Buffer* get(const Slot& slot);
  // Tells the source which weights the device keeps no pointer to any more.
  void tell_taken();
  // Lets go of copies that the device does not read, once all weights are there.
  void settle();
  // Forgets weights as if they had never been asked for.
  void forget(std::span<const std::string> names);
  bool has(const std::string& name) const { return buffers_.contains(name); }

 private:
  TensorView checked(const std::string& name) const;
  TensorView spread(const Slot& slot, const TensorView& view);
  TensorView converted_to(DType dtype, const TensorView& view, const WeightDecl& decl);

  Device& device_;
  const Model& model_;
  const WeightSource& source_;
  std::map<std::string, TensorView> fetched_;
  std::map<std::string, std::vector<std::byte>> spread_;  // as converted_: the buffers go first
  std::map<std::string, OwnedTensor> converted_;  // the buffers, which may read them, go first
  std::map<std::string, std::unique_ptr<Buffer>> buffers_;
  std::vector<std::pair<const Buffer*, TensorView>> borrowed_;
  bool told_ = false;                  // logged that blocks became halves
  std::optional<ThreadPool> threads_;  // once there is something to quantise
};

struct Shard::Loaded {
  Loaded(Device& device, const Model& model, const WeightSource& source)
      : weights(device, model, source) {}

  // A stage on the device.
  struct Part {
    std::string_view name;
    // Null without keys; blocks of one source share a pair, and those of an encoder, which keep
    // nothing.
    std::shared_ptr<Buffer> k_cache, v_cache;
    std::unique_ptr<Buffer> states;  // null without any
    std::unique_ptr<Buffer> rows;    // its result, if it takes wanted rows
    std::unique_ptr<Executable> executable;
  };

  ShardWeights weights;
  std::unique_ptr<Buffer> hidden[2];  // the hidden state of point p is in hidden[p % 2]
  std::map<std::string, std::unique_ptr<Buffer>> beside;  // rows of the parts, by their names
  struct Table {
    TensorView view;
    std::unique_ptr<Buffer> rows;  // rows of a step's tokens
  };
  std::map<std::string, Table> tables;
  Limits limits;
  std::unique_ptr<Workspace> workspace;
  std::vector<Part> parts;  // stages_, then the top k if there are logits; below the floor with a
                            // name alone

  // Scratch of a step, sized once.
  std::vector<Executable*> programs;
  std::vector<std::string_view> names;            // names of the programs
  std::vector<std::span<const uint32_t>> states;  // numbers by program
  GatheredRows rows;
  std::vector<float> out;
};

}  // namespace split
