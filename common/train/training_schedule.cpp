#include "train/training_schedule.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace split::train {
namespace {

// SplitMix64 (Steele, Lea, Flood 2014): equal numbers on every machine.
class Random {
 public:
  Random(uint64_t seed, uint64_t stream) : state_(seed * 0x9e3779b97f4a7c15u + stream) { next(); }
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }  // [0, 1)

 private:
  uint64_t state_;
};
constexpr uint64_t kLoraStream = uint64_t{1} << 32;  // behind the passes' streams

}  // namespace

WindowSet windows_of(std::span<const int32_t> ids, std::span<const int32_t> before,
                     int64_t length) {
  WindowSet set;
  set.length = length;
  const auto whole = static_cast<size_t>(length) + 1;
  CHECK(before.size() + 1 < whole);
  const size_t own = whole - before.size();
  for (size_t first = 0; first + own <= ids.size(); first += own - 1) {
    set.ids.insert(set.ids.end(), before.begin(), before.end());
    const auto part = ids.subspan(first, own);
    set.ids.insert(set.ids.end(), part.begin(), part.end());
  }
  return set;
}

TextWindows text_windows(std::span<const int32_t> ids, std::span<const int32_t> before,
                         int64_t length) {
  const size_t trained = ids.size() / 5 * 4 + ids.size() % 5 * 4 / 5;
  return {windows_of(ids.first(trained), before, length),
          windows_of(ids.subspan(trained), before, length)};
}

int64_t TrainingSchedule::default_steps(size_t windows) {
  const auto passes = (kPasses * static_cast<int64_t>(windows) + static_cast<int64_t>(kBatch) - 1) /
                      static_cast<int64_t>(kBatch);
  return std::clamp(passes, kLeast, kMost);
}

std::vector<size_t> TrainingSchedule::order(uint64_t pass) const {
  std::vector<size_t> all(windows);
  std::iota(all.begin(), all.end(), size_t{0});
  Random random(seed, pass);
  for (size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[random.next() % i]);
  return all;
}

std::vector<size_t> TrainingSchedule::windows_of_step(int64_t step) const {
  CHECK(windows > 0);
  std::vector<size_t> which;
  uint64_t pass = UINT64_MAX;
  std::vector<size_t> now;
  for (size_t i = 0; i < kBatch; ++i) {
    const uint64_t at = static_cast<uint64_t>(step) * kBatch + i;
    if (at / windows != pass) {
      pass = at / windows;
      now = order(pass);
    }
    which.push_back(now[at % windows]);
  }
  return which;
}

double TrainingSchedule::factor(int64_t step) const {
  return optim::WarmupCosine{std::min(kWarmup, steps), steps, kFloor}.at(step);
}

bool TrainingSchedule::ends_pass(int64_t step) const {
  const auto passes = [&](int64_t done) { return static_cast<uint64_t>(done) * kBatch / windows; };
  return step + 1 == steps || passes(step + 1) > passes(step);
}

optim::Options default_options(bool lora) {
  optim::Options options;
  options.lr = lora ? 4e-3 : 5e-4;
  options.weight_decay = lora ? 0 : 0.01;
  return options;
}

void begin_lora(array::Store& store, const Tail& tail, uint64_t seed) {
  uint64_t stream = kLoraStream;
  for (const optim::State& one : tail.trained()) {
    if (!one.name.ends_with(".lora_A")) continue;
    Random random(seed, stream++);
    const double bound = 1 / std::sqrt(static_cast<double>(one.dims[1]));
    for (float& a : store.at(one.name).floats) {
      a = static_cast<float>((2 * random.unit() - 1) * bound);
    }
  }
}

}  // namespace split::train
