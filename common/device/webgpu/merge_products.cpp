#include "device/webgpu/merge_products.h"

#include <algorithm>
#include <set>
#include <span>

#include "tensor/tensor.h"

namespace split::webgpu {
namespace {

using Matmul = inputs::matmul;

class Merger {
 public:
  explicit Merger(const Program& given) { made_.program = given; }

  MergedProgram run() && {
    std::vector<Step>& steps = made_.program.steps;
    for (size_t i = 0; i < steps.size(); ++i) {
      if (steps[i].twin) take_twin(i);
      if (!steps[i].siblings.empty()) take_siblings(i);
    }
    std::vector<Step> left;
    for (size_t i = 0; i < steps.size(); ++i) {
      if (!taken_.contains(i)) left.push_back(std::move(steps[i]));
    }
    steps = std::move(left);
    return std::move(made_);
  }

 private:
  Slot& slot(int index) { return made_.program.slots[static_cast<size_t>(index)]; }

  void take_siblings(size_t first) {
    std::vector<Step>& steps = made_.program.steps;
    std::vector<size_t> all = {first};
    all.insert(all.end(), steps[first].siblings.begin(), steps[first].siblings.end());
    // The slots that these steps have in one place.
    const auto slots = [&](const auto& of) {
      std::vector<int> found;
      for (const size_t i : all) found.push_back(of(steps[i]));
      return found;
    };
    Step& into = steps[first];
    const std::vector<int> outs = slots([](const Step& s) { return s.tape.outputs[0].slot; });
    const int out = static_cast<int>(made_.program.slots.size());
    made_.program.slots.push_back(slot(outs[0]));
    into.inputs[Matmul::w].slot =
        made_.lay_together(slots([](const Step& s) { return s.in(Matmul::w); }));
    for (size_t v = 0; v < into.tape.values.size(); ++v) {
      auto& value = into.tape.values[v];
      if (!value.loads() || value.load.access.kind != Access::kVector) continue;
      value.load.slot =
          made_.lay_together(slots([v](const Step& s) { return s.tape.values[v].load.slot; }));
    }
    into.columns = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      for (Step& step : steps) {
        for (Operand& input : step.inputs) {
          if (input.slot != outs[i]) continue;
          input.slot = out;
          input.access.first += into.columns;
        }
      }
      into.columns += slot(outs[i]).dims[1];
      if (i > 0) taken_.insert(all[i]);
    }
    slot(out).dims[1] = into.columns;
    into.tape.outputs[0].slot = out;
  }

  void take_twin(size_t i) {
    Step& step = made_.program.steps[i];
    const Step& twin = made_.program.steps[*step.twin];
    const int w = step.in(Matmul::w), its = twin.in(Matmul::w);
    for (const int of : {w, its}) {
      if (slot(of).kind != SlotKind::kWeight || !slot(of).transposed) return;
    }
    const int result = twin.tape.outputs[0].slot;
    Tape both = twin.tape;
    for (auto& value : both.values) {
      if (value.load.access.kind == Access::kResult) value.load.access.first = kTwinProduct;
    }
    std::vector<int> place;  // indices of the step's own values behind the twin's
    for (auto value : step.tape.values) {
      if (value.loads() && value.load.slot == result) {
        place.push_back(twin.tape.outputs[0].value);
        continue;
      }
      for (int* const in : {&value.x, &value.z, &value.c}) {
        if (*in >= 0) *in = place[static_cast<size_t>(*in)];
      }
      place.push_back(static_cast<int>(both.values.size()));
      both.values.push_back(value);
    }
    both.outputs = step.tape.outputs;
    for (TapeOutput& output : both.outputs) {
      output.value = place[static_cast<size_t>(output.value)];
    }
    step.tape = std::move(both);
    step.inputs[Matmul::w].slot = made_.lay_together({its, w}, true);
    taken_.insert(*step.twin);
  }

  MergedProgram made_;
  std::set<size_t> taken_;
};

}  // namespace

int MergedProgram::lay_together(const std::vector<int>& slots, bool by_turns) {
  Slot whole = program.slots[static_cast<size_t>(slots[0])];
  for (const int other : std::span(slots).subspan(1)) {
    whole.dims[0] += program.slots[static_cast<size_t>(other)].dims[0];
  }
  const int made = static_cast<int>(program.slots.size());
  program.slots.push_back(std::move(whole));
  weights[made] = {slots, by_turns};
  return made;
}

MergedProgram merge_products(const Program& program) { return Merger(program).run(); }

bool has_twin(const Step& matmul) {
  return std::ranges::any_of(matmul.tape.values, [](const auto& value) {
    return value.load.access.kind == Access::kResult && value.load.access.first == kTwinProduct;
  });
}

}  // namespace split::webgpu
