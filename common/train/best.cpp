#include "train/best.h"

#include <algorithm>

namespace split::train {
namespace {

constexpr const char* kNumbers = "best.figures";
std::string kept(const optim::State& one) { return "best." + one.name; }

}  // namespace

Best::Best(array::Store& store, const Tail& tail) : store_(store), tail_(tail) {
  for (const optim::State& one : tail.trained()) store.add(kept(one), one.dims, true);
  store.add(kNumbers, {kFigures}, true);
}

const std::vector<float>& Best::figures() const { return store_.read(kNumbers).floats; }

void Best::begin(double unseen, double known) {
  const auto first = static_cast<float>(unseen);
  store_.at(kNumbers).floats = {first, static_cast<float>(known), first, 0};
}

void Best::look(double unseen, int64_t steps) {
  auto& figures = store_.at(kNumbers).floats;
  if (!(static_cast<float>(unseen) < figures[kLeast])) return;
  figures[kLeast] = static_cast<float>(unseen);
  figures[kSteps] = static_cast<float>(steps);  // below 2^24
  for (const optim::State& one : tail_.trained()) {
    std::ranges::copy(store_.read(one.name).floats, store_.at(kept(one)).floats.begin());
  }
}

void Best::restore() {
  for (const optim::State& one : tail_.trained()) {
    std::ranges::copy(store_.read(kept(one)).floats, store_.at(one.name).floats.begin());
  }
}

bool Best::plausible(int64_t steps) const {
  constexpr float kNone = 0.999f;  // a perplexity is 1 or more, but for rounding
  const float known = known_before(), at = figures()[kSteps];
  return (known == 0 || known > kNone) && least() > kNone && least() <= before() && at >= 0 &&
         at <= static_cast<float>(steps) && (at > 0) == (least() < before());
}

}  // namespace split::train
