// print_tapes FOLDER: writes the tapes of all known models' stages as kernels in WGSL, inputs, and
// what the CPU makes of them.
#include <set>

#include "compile/compile.h"
#include "device/webgpu/merge_products.h"
#include "device/webgpu/tape_wgsl.h"
#include "models/model.h"
#include "support/run_program.h"
#include "webgpu/cases.h"

namespace split::test {
namespace {

constexpr uint32_t kStepRows = 5;
constexpr int64_t kTableRows = 50;

// The names of the inputs that stand for a kernel's result and its twin's.
constexpr const char* kProducts[] = {"product", "twin"};

// A step's tape as a program of its own: what it reads are inputs, a kernel's result too.
Program program_of(const Program& from, const Step& step) {
  Program program;
  program.name = from.name;
  program.slots = from.slots;
  Step group;
  group.rows = step.rows;
  group.columns = step.columns;
  group.tape = step.tape;
  std::set<int> used;
  const auto named = [&](int slot, SlotKind kind) {
    Slot& its = program.slots[static_cast<size_t>(slot)];
    if (its.kind != SlotKind::kWeight) its.kind = kind;
    its.name = its.dtype == DType::kI32 ? its.name : cat("slot ", slot);
    its.transposed = false;
    used.insert(slot);
  };
  for (auto& value : group.tape.values) {
    if (!value.loads()) continue;
    if (value.load.access.kind == Access::kResult) {
      const int slot = static_cast<int>(program.slots.size());
      program.slots.push_back({SlotKind::kInput,
                               kProducts[value.load.access.first],
                               DType::kF32,
                               {step.rows, step.columns}});
      value.load = {slot, {.kind = Access::kRowwise}};
      used.insert(slot);
      continue;
    }
    if (value.load.slot >= 0) named(value.load.slot, SlotKind::kInput);
    if (value.load.access.kind == Access::kGather) {
      named(value.load.access.index, SlotKind::kInput);
      Slot& table = program.slots[static_cast<size_t>(value.load.slot)];
      if (table.dims[0] >= 0) table.dims[0] = kTableRows;
    }
  }
  for (const TapeOutput& output : group.tape.outputs) named(output.slot, SlotKind::kOutput);
  // The others are nobody's: nothing is bound to a temporary.
  for (size_t i = 0; i < program.slots.size(); ++i) {
    if (!used.contains(static_cast<int>(i))) program.slots[i].kind = SlotKind::kTemp;
  }
  program.steps = {std::move(group)};
  return program;
}

class Printer {
 public:
  explicit Printer(Cases& cases) : cases_(cases) {}

  void add(const std::string& name, const NamedOutput& graph) {
    const Program program =
        webgpu::merge_products(compile("known", {graph}, webgpu::kFuseRules)).program;
    for (const Step& step : program.steps) {
      if (!step.tape.empty()) add(name, program, step);
    }
  }

 private:
  void add(const std::string& name, const Program& from, const Step& step) {
    const bool group = step.op == Op::k_group;
    const webgpu::TapeKernel kernel =
        group ? webgpu::group_kernel(from, step) : webgpu::epilogue(from, step.tape, 3);
    std::string text = kernel.text;
    if (!group) {
      text +=
          cat("@group(0) @binding(1) var<storage, read> product: array<f32>;\n"
              "@group(0) @binding(2) var<storage, read> twin: array<f32>;\n"
              "@compute @workgroup_size(64)\n"
              "fn main(@builtin(global_invocation_id) at: vec3<u32>) {\n"
              "  let i = at.y * COLUMNS + at.x;\n"
              "  if (at.x < COLUMNS) { finish(at.y, at.x, product[i], twin[i]); }\n}\n");
    }
    // A text once for each way its numbers are stored.
    std::string types;
    for (const auto& [override, value] : kernel.overrides) {
      if (override.starts_with("TYPE")) types += cat(override, "=", value, " ");
    }
    if (!seen_.insert(text + types).second) return;
    print(cat(cases_.count(), " ", name, " ", op_info(step.op).name), program_of(from, step),
          kernel, text, group);
  }

  void print(const std::string& name, const Program& program, const webgpu::TapeKernel& kernel,
             const std::string& text, bool group) {
    const Step& step = program.steps[0];
    StepValues values;
    values.rows = kStepRows;
    values.tokens = {3, 49, 0, 7, 12};
    values.positions = {4, 5, 6, 7, 8};
    values.marks = {0, 1, 1, 0, 1};
    values.out_rows = {0, 1, 2, 3, 4};
    for (const Slot& slot : program.slots) {
      if (slot.kind == SlotKind::kTemp || slot.kind == SlotKind::kOutput ||
          slot.dtype == DType::kI32) {
        continue;
      }
      int64_t n = 1;
      for (const int64_t dim : slot.dims) n *= dim < 0 ? int64_t{kStepRows} : dim;
      values.values[slot.name] = cases_.numbers(static_cast<size_t>(n));
    }
    const Values made = run_program(*cpu_, program, values);
    Json buffers = Json::array();
    buffers.push_back(cases_.file(symbols(values)));
    for (const char* const name : kProducts) {
      const bool read = program.find(name) >= 0;
      if (!group) buffers.push_back(cases_.file(values.values.at(read ? name : kProducts[0])));
    }
    for (const webgpu::TapeKernel::Bind& bind : kernel.binds) {
      const Slot& slot = program.slots[static_cast<size_t>(bind.slot)];
      if (bind.written) {
        buffers.push_back(cases_.result(made.at(slot.name)));
        continue;
      }
      const std::vector<float>& numbers = values.values.at(slot.name);
      std::vector<std::byte> stored((numbers.size() * dtype_size(slot.dtype) + 3) / 4 * 4);
      convert(
          {DType::kF32, {static_cast<int64_t>(numbers.size())}, std::as_bytes(std::span(numbers))},
          slot.dtype, std::span(stored).first(numbers.size() * dtype_size(slot.dtype)));
      buffers.push_back(cases_.file(stored));
    }
    Json overrides = {{"COLUMNS", step.columns}, {"CAPACITY", kStepRows}};
    for (const auto& [override, value] : kernel.overrides) overrides[override] = value;
    cases_.add(
        {{"name", name},
         {"kernel", {{"text", text}}},
         {"overrides", overrides},
         {"buffers", buffers},
         {"groups", group ? Json{kStepRows, 1} : Json{(step.columns + 63) / 64, kStepRows}}});
  }

  static std::vector<int32_t> symbols(const StepValues& values) {
    std::vector<int32_t> words = {kStepRows, kStepRows};
    for (const auto* numbers : {&values.tokens, &values.positions, &values.marks}) {
      words.insert(words.end(), numbers->begin(), numbers->end());
    }
    words.insert(words.end(), values.out_rows.begin(), values.out_rows.end());
    return words;
  }

  Cases& cases_;
  const std::unique_ptr<Device> cpu_ = make_cpu_device(1);
  std::set<std::string> seen_;
};

void print(Cases& cases) {
  Printer printer(cases);
  for (const std::string& config : example_configs()) {
    const auto model = make_model(config);
    for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (const Stage& stage : model->stages()) {
        printer.add(stage.name, stage.trace({[&](const std::string&) { return type; }}));
      }
    }
  }
}

}  // namespace
}  // namespace split::test

int main(int argc, char** argv) {
  return split::test::print_cases(argc, argv, "tapes", split::test::print);
}
