// compile_shaders OUT.cpp: a build tool. Traces the known models in the Vulkan device's way and
// writes the SPIR-V of every kernel that they need.
#include <fstream>
#include <iostream>
#include <map>
#include <set>

#include "base/error.h"
#include "compile/compile.h"
#include "device/vulkan/codegen/glsl.h"
#include "device/vulkan/codegen/rules.h"
#include "device/vulkan/codegen/spirv.h"
#include "models/model.h"

namespace split::vulkan {
namespace {

using Modules = std::map<std::string, std::vector<uint32_t>>;

void add(Modules& modules, const std::string& text) {
  const std::string key = kernel_key(text);
  if (modules.count(key) == 0) modules[key] = compile_glsl(text);
}

void add(Modules& modules, const NamedOutput& output) {
  const Program program = compile("known", {output}, kFuseRules);
  constexpr size_t kAnyRange = size_t{1} << 27;  // no text depends on it
  const Halves halves = half_slots(program, [](const Step& s) { return s.op == Op::k_matmul; });
  std::set<size_t> taken;
  for (const Step& step : program.steps) taken.insert(step.siblings.begin(), step.siblings.end());
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const Step& step = program.steps[i];
    if (taken.contains(i)) continue;
    for (const bool shuffle : {false, true}) {
      if (step.op == Op::k_topk) {
        add(modules, block_max_text());
        add(modules, topk_text());
      } else if (step.op == Op::k_rotate || step.op == Op::k_norm_rotate) {
        const bool normed = step.op == Op::k_norm_rotate;
        for (const bool puts : {false, true}) add(modules, rotate_text(normed, puts));
      } else if (step.op == Op::k_conv_rows) {
        add(modules, conv_rows_text());
      } else if (step.op == Op::k_delta) {
        add(modules, delta_text());
      } else if (step.op == Op::k_head_part) {
        add(modules, head_part_text());
      } else if (step.op == Op::k_group) {
        add(modules, group_kernel(program, step, shuffle, kAnyRange).text);
        if (shuffle) add(modules, group_kernel(program, step, shuffle, kAnyRange, halves).text);
      } else if (step.op == Op::k_attention) {
        const bool biased = Heads(step).biased;
        for (const uint32_t pieces : {1u, kCachePieces}) {
          add(modules, kv_store_text(pieces, shuffle));
          // Caches in pieces with groups of keys, or without shuffles, are compiled when needed.
          for (const AttentionOf of : {AttentionOf::kSplit, AttentionOf::kGroup}) {
            if (pieces > 1 && (of == AttentionOf::kGroup || !shuffle)) break;
            add(modules, attention_text(pieces, shuffle, of, std::nullopt, biased));
            add(modules, attention_text(pieces, shuffle, of, false, biased));
            // A wide shard's few rows.
            if (shuffle && pieces == 1)
              add(modules, attention_text(pieces, shuffle, of, true, biased));
          }
          if (shuffle) add(modules, bf16_attention_text(pieces, shuffle, false, biased));
          for (const bool half : {false, true}) {
            if (shuffle)
              add(modules, attention_text(pieces, shuffle, AttentionOf::kRow, half, biased));
          }
        }
        if (shuffle) add(modules, tiled_attention_text(biased));
      } else {
        // With what makes its input and stores its result, and without; its twin, its siblings and
        // its rotation are other steps only in pieces, and siblings' results are stored by another
        // one only where caches are in pieces or in blocks: those kernels are compiled when they
        // are wanted.
        const bool siblings = !step.siblings.empty();
        for (const bool few : {false, true}) {
          for (const bool turns : {false, true}) {
            for (const bool stores : {false, true}) {
              // A rotation apart, which many rows have, stores what it makes itself, but not
              // values.
              const bool apart = step.rotation && !siblings;
              if (!shuffle || (!turns && (few || (stores && apart)))) break;
              if (siblings && !stores) continue;
              const Takes takes{
                  .twin = true, .siblings = true, .rotation = turns, .attention = stores};
              const FusedNeighbours joined = joined_to(program, i, takes);
              add(modules, matrix_kernel(program, step, joined, few, kAnyRange, halves).text);
            }
          }
        }
        for (const bool input : {false, true}) {
          for (const bool stores : {false, true}) {
            if (siblings && !stores) continue;
            const Takes takes{.input = input,
                              .twin = true,
                              .siblings = true,
                              .rotation = true,
                              .attention = stores};
            const FusedNeighbours joined = joined_to(program, i, takes);
            const auto add_by = [&](BlockProduct by) {
              const bool dots = by == BlockProduct::kInt8 || by == BlockProduct::kInt8Rows;
              add(modules,
                  matmul_kernel(program, step, joined, shuffle, by, kAnyRange, {}, dots).text);
            };
            add_by(shuffle ? BlockProduct::kHalves : BlockProduct::kFloats);
            // In int8 where there are shuffles and products of bytes.
            const Slot& w = program.slots[static_cast<size_t>(step.in(inputs::matmul::w))];
            if (!shuffle || !is_quantised(w.dtype)) continue;
            add_by(BlockProduct::kInt8);
            if (input) continue;
            add_by(BlockProduct::kInt8Rows);
            add_by(BlockProduct::kInt8Units);
          }
        }
      }
    }
  }
}

int run(const char* path) {
  Modules modules;
  for (const std::string& config : example_configs()) {
    const auto model = make_model(config);
    const auto floats = [](const std::string&) { return DType::kF32; };
    const auto blocks = [&](const std::string& name) {
      return model->weight(name).product == Product::kNone ? DType::kF32 : DType::kQ8_0;
    };
    for (const Stage& stage : model->stages()) {
      add(modules, stage.trace({floats}));
      if (stage.quantised.empty()) continue;
      NamedOutput made = stage.trace({blocks});
      add(modules, made);
      made.tensor = clean(made.tensor);  // as rows in int8 leave a stage
      add(modules, made);
    }
  }
  add(modules, int8_round_text());
  add(modules, {"best", topk(input("logits", DType::kF32, {kOutRows, 8}), 8)});
  // The words lie in a file beside the source, which the assembler includes.
  const std::string words_path = cat(path, ".words");
  std::ofstream all(words_path, std::ios::binary);
  std::ofstream out(path);
  out << "// Written by compile_shaders.\n#include \"device/vulkan/codegen/spirv.h\"\n"
         "asm(\".pushsection .rodata\\n.balign 4\\n.globl split_spirv\\n.hidden split_spirv\\n\"\n"
         "    \"split_spirv: .incbin \\\""
      << words_path
      << "\\\"\\n.popsection\");\n"
         "extern \"C\" __attribute__((visibility(\"hidden\"))) const uint32_t split_spirv[];\n"
         "namespace split::vulkan {\nnamespace {\nconst EmbeddedKernel kAll[] = {\n";
  size_t at = 0;
  for (const auto& [key, words] : modules) {
    all.write(reinterpret_cast<const char*>(words.data()),
              static_cast<std::streamsize>(words.size() * sizeof(uint32_t)));
    out << "{\"" << key << "\", {split_spirv + " << at << ", " << words.size() << "}},\n";
    at += words.size();
  }
  out << "};\n}\nstd::span<const EmbeddedKernel> embedded_kernels() { return kAll; }\n}\n";
  all.close();
  out.close();
  return all && out ? 0 : 1;
}

}  // namespace
}  // namespace split::vulkan

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: compile_shaders OUT.cpp\n";
    return 2;
  }
  try {
    return split::vulkan::run(argv[1]);
  } catch (const std::exception& error) {
    std::cerr << "compile_shaders: " << error.what() << "\n";
    return 1;
  }
}
