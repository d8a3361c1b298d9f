// How a Shard grows beside its steps: one stage at a time, in short turns between two of them.
#include <algorithm>
#include <chrono>
#include <thread>

#include "run/shard/shard_loaded.h"

namespace split {

// Growth by one stage, or all stages behind the blocks, of the loaded state. The destructor removes
// an unfinished one.
class Shard::Growth {
 public:
  explicit Growth(Shard& shard);
  Growth(const Growth&) = delete;
  Growth& operator=(const Growth&) = delete;
  ~Growth();

  // Throws the errors of grow().
  void run();
  // Whether the device failed and all was loaded again meanwhile, which ends run() early.
  bool is_stale() const;

 private:
  // Calls `work` between two steps; false, without a call, if this is stale.
  template <typename Work>
  bool between_steps(const Work& work);
  template <typename Work>
  bool for_each_part(const Work& work);
  void fetch();
  bool settle();
  void take_place();

  Shard& shard_;
  Point floor_;
  size_t begin_ = 0, end_ = 0;  // its parts
  std::shared_ptr<Loaded> loaded_;
  std::vector<Program> programs_;  // one for each part, as in the next two
  std::vector<std::vector<Binding>> bindings_;
  std::vector<std::unique_ptr<Executable>> executables_;
  std::vector<std::string> own_;  // weights that no other stage has
  bool done_ = false;
};

Shard::Growth::Growth(Shard& shard) : shard_(shard), end_(shard.first_part()) {
  const int layers = shard.model_.config().layers;
  const Point now = shard.floor();
  floor_ = now > Point(layers) ? Point(layers)
           : now == Point(0)   ? Point::tokens()
                               : now.block() - 1;
  begin_ = StageRange{floor_, floor_}.begin(layers) - shard.options_.range.begin(layers);
  programs_.resize(end_ - begin_);
  bindings_.resize(programs_.size());
  executables_.resize(programs_.size());
  const std::lock_guard turn(shard.turns_);
  loaded_ = shard.loaded_;
  if (loaded_ == nullptr) throw Error(ErrorKind::kDevice, "[shard] its device failed");
}

Shard::Growth::~Growth() {
  if (done_) return;
  const std::lock_guard turn(shard_.turns_);
  executables_.clear();
  for (size_t i = begin_; i < end_; ++i) {
    Loaded::Part& part = loaded_->parts[i];
    part = {part.name, nullptr, nullptr, nullptr, nullptr, nullptr};
  }
  loaded_->weights.forget(own_);
}

bool Shard::Growth::is_stale() const {
  const std::lock_guard turn(shard_.turns_);
  return shard_.loaded_ != loaded_;
}

template <typename Work>
bool Shard::Growth::between_steps(const Work& work) {
  const std::lock_guard turn(shard_.turns_);
  if (shard_.loaded_ != loaded_) return false;
  work();
  return true;
}

template <typename Work>
bool Shard::Growth::for_each_part(const Work& work) {
  for (size_t i = 0; i < programs_.size(); ++i) {
    if (!between_steps([&] { work(i); })) return false;
  }
  return true;
}

void Shard::Growth::run() {
  fetch();
  Device& device = shard_.device();
  const bool bound = between_steps([&] { device.prepare(programs_, *loaded_->workspace); }) &&
                     for_each_part([&](size_t i) { shard_.allocate_part(*loaded_, begin_ + i); }) &&
                     for_each_part([&](size_t i) {
                       bindings_[i] = shard_.bindings_of(*loaded_, begin_ + i, programs_[i]);
                     });
  if (!bound) return;
  for (size_t i = 0; i < programs_.size(); ++i) {
    device.make_ready(programs_[i], loaded_->limits, bindings_[i]);
  }
  const bool begun = for_each_part([&](size_t i) {
    executables_[i] = device.load(programs_[i], *loaded_->workspace, bindings_[i]);
  });
  if (begun && settle()) between_steps([&] { take_place(); });
  if (done_) loaded_->weights.settle();
}

// Does the long work that needs no device.
void Shard::Growth::fetch() {
  for (size_t i = 0; i < programs_.size(); ++i) {
    programs_[i] = shard_.trace(begin_ + i, true);
    if (programs_[i].arena_row_bytes > loaded_->limits.arena_row_bytes) {
      throw Error(
          ErrorKind::kShape,
          cat("[shard] ", programs_[i].name, ": expected at most ", loaded_->limits.arena_row_bytes,
              " bytes between its steps for a row, got ", programs_[i].arena_row_bytes));
    }
    const size_t part = begin_ + i;
    if (part < shard_.stages_.size()) {
      for (const std::string& name : shard_.stages_[part].tables) loaded_->weights.table(name);
    }
    for (const Slot& slot : programs_[i].slots) {
      if (slot.kind != SlotKind::kWeight) continue;
      if (!loaded_->weights.has(slot.name)) own_.push_back(slot.name);
      loaded_->weights.fetch(slot);
    }
  }
}

// Waits, for a moment at a time between steps, until the uploads of load() have ended.
bool Shard::Growth::settle() {
  constexpr std::chrono::milliseconds kMoment{1};
  for (bool settled = false;;) {
    if (!between_steps([&] { settled = shard_.device().settled(); })) return false;
    if (settled) return true;
    std::this_thread::sleep_for(kMoment);
  }
}

void Shard::Growth::take_place() {
  shard_.device().settle();
  for (size_t i = 0; i < programs_.size(); ++i) {
    loaded_->parts[begin_ + i].executable = std::move(executables_[i]);
    if (!shard_.has_same_bits_in_both_phases(programs_[i], loaded_->limits)) {
      shard_.same_bits_in_both_phases_ = false;
    }
  }
  shard_.floor_ = floor_;
  done_ = true;
}

void Shard::grow(Point down_to) {
  CHECK(down_to >= options_.range.from);
  while (floor() > down_to) {
    Growth growth(*this);
    try {
      growth.run();
    } catch (const Error&) {
      if (!growth.is_stale()) throw;
    }
  }
}

}  // namespace split
