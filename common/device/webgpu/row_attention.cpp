#include "device/webgpu/row_attention.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "device/webgpu/tape_wgsl.h"
#include "tensor/tensor.h"

namespace split::webgpu {
namespace {

constexpr uint32_t kFirstRead = 4;  // binding
constexpr size_t kMostRead = 4;

// The rotation that makes an input of attention, which alone reads it; or null.
const Step* rotation_of(const Program& program, const Operand& input) {
  if (input.access.first != 0 || readers(program, input.slot).size() != 1) return nullptr;
  const auto found = std::ranges::find_if(program.steps, [&](const Step& step) {
    const bool turns = step.op == Op::k_rotate || step.op == Op::k_norm_rotate;
    return turns && step.out() == input.slot && turns_whole_heads(program, step);
  });
  return found == program.steps.end() ? nullptr : &*found;
}

bool turn_alike(const Program& program, const Turn& q, const Turn& k) {
  const auto type = [&](int slot) { return program.slots[static_cast<size_t>(slot)].dtype; };
  return q.cos == k.cos && q.sin == k.sin && q.head_dim == k.head_dim && q.normed == k.normed &&
         q.eps == k.eps && q.plus == k.plus &&
         (!q.normed || (q.weight >= 0 && k.weight >= 0 && type(q.weight) == type(k.weight)));
}

}  // namespace

std::vector<RowAttention> row_attentions(MergedProgram& merged) {
  const Program& program = merged.program;
  std::vector<RowAttention> found;
  for (const Step& step : program.steps) {
    if (step.op != Op::k_attention || step.rows != kRows) continue;
    const Heads heads(step);
    if (heads.biased || heads.dim % 4 != 0) continue;
    const Operand &q = step.inputs[inputs::attention::q], &k = step.inputs[inputs::attention::k];
    RowAttention one{&step, rotation_of(program, q),           rotation_of(program, k), &q,
                     &k,    &step.inputs[inputs::attention::v]};
    if ((one.q_rotation == nullptr) != (one.k_rotation == nullptr)) continue;
    std::set<int> read;
    bool normed = false;
    if (one.q_rotation != nullptr) {
      const Turn q_turn(*one.q_rotation), k_turn(*one.k_rotation);
      if (!turn_alike(program, q_turn, k_turn)) continue;
      normed = q_turn.normed;
      one.q = &q_turn.x;
      one.k = &k_turn.x;
      read = {q_turn.cos, q_turn.sin};
    }
    read.insert({one.q->slot, one.k->slot, one.v->slot});
    if (read.size() + (normed ? 1 : 0) > kMostRead) continue;
    if (normed) {
      one.norm = merged.lay_together({Turn(*one.q_rotation).weight, Turn(*one.k_rotation).weight});
    }
    found.push_back(one);
  }
  return found;
}

RowKernel row_attention_kernel(const Program& program, const RowAttention& of) {
  RowKernel kernel;
  const auto bind = [&](int slot, std::string_view name, std::string_view type) {
    const auto binding = kFirstRead + static_cast<uint32_t>(kernel.read.size());
    kernel.text += buffer_text(binding, "read", name, type);
    kernel.read.push_back(slot);
  };
  const auto reader = [&](std::string_view function, int slot) {
    const auto at = std::ranges::find(kernel.read, slot) - kernel.read.begin();
    if (static_cast<size_t>(at) == kernel.read.size()) bind(slot, cat("read", at), "f32");
    kernel.text += cat("fn ", function, "(at: u32) -> f32 { return read", at, "[at]; }\n");
  };
  reader("q_of", of.q->slot);
  reader("k_of", of.k->slot);
  reader("v_of", of.v->slot);
  const bool turned = of.q_rotation != nullptr, normed = of.norm >= 0;
  const auto none = [&](std::string_view function) {
    kernel.text += cat("fn ", function, "(at: u32) -> f32 { return 0.0f; }\n");
  };
  kernel.overrides = {{"Q_FIRST", of.q->access.first},
                      {"K_FIRST", of.k->access.first},
                      {"V_FIRST", of.v->access.first},
                      {"TURNED", turned ? 1 : 0},
                      {"NORMED", normed ? 1 : 0}};
  if (turned) {
    const Turn turn(*of.q_rotation);
    reader("cosine_of", turn.cos);
    reader("sine_of", turn.sin);
    kernel.overrides.insert(kernel.overrides.end(), {{"EPS", turn.eps}, {"PLUS", turn.plus}});
  } else {
    none("cosine_of");
    none("sine_of");
  }
  if (normed) {
    bind(of.norm, "weights", "u32");
    const Slot& slot = program.slots[static_cast<size_t>(of.norm)];
    kernel.overrides.emplace_back("W_TYPE", type_code(program, slot, false));
  } else {
    none("weight_at");
  }
  return kernel;
}

}  // namespace split::webgpu
