#include "device/vulkan/spirv.h"

#include <glslang/Public/ResourceLimits.h>
#include <glslang/Public/ShaderLang.h>
#include <glslang/SPIRV/GlslangToSpv.h>

#include <algorithm>
#include <set>

#include "base/bytes.h"

namespace split::vulkan {
namespace {

// glslang's process-wide tables, about 170 ms to build, made when a kernel is first compiled.
struct Glslang {
  Glslang() { glslang::InitializeProcess(); }
  ~Glslang() { glslang::FinalizeProcess(); }
};

// Marks every float operation NoContraction, so that each is rounded as written and two kernels
// that compute one thing get the same bits. GLSL's `precise` does this for some of them only: it
// misses what passes through `?:`.
void forbid_contraction(std::vector<uint32_t>& words) {
  constexpr uint32_t kDecorate = 71, kNoContraction = 42, kTypeVoid = 19;
  constexpr uint32_t kFloatOps[] = {127, 129, 131, 133, 136, 140, 141, 142, 148};
  constexpr size_t kHeaderWords = 5;
  std::set<uint32_t> marked;
  std::vector<uint32_t> found;
  size_t types = 0;  // where the annotations end
  for (size_t at = kHeaderWords; at < words.size();) {
    const uint32_t op = words[at] & 0xffff, length = words[at] >> 16;
    CHECK(length > 0 && at + length <= words.size());
    if (op == kDecorate && words[at + 2] == kNoContraction) marked.insert(words[at + 1]);
    if (op == kTypeVoid) types = at;
    if (std::find(std::begin(kFloatOps), std::end(kFloatOps), op) != std::end(kFloatOps)) {
      found.push_back(words[at + 2]);
    }
    at += length;
  }
  CHECK(types != 0);
  std::vector<uint32_t> decorations;
  for (const uint32_t id : found) {
    if (marked.count(id) != 0) continue;
    decorations.insert(decorations.end(), {3u << 16 | kDecorate, id, kNoContraction});
  }
  words.insert(words.begin() + static_cast<std::ptrdiff_t>(types), decorations.begin(),
               decorations.end());
}

}  // namespace

std::string kernel_key(const std::string& glsl) { return Sha256::hex_of(as_bytes_of(glsl)); }

std::vector<uint32_t> compile_glsl(const std::string& glsl) {
  static const Glslang once;
  glslang::TShader shader(EShLangCompute);
  const char* text = glsl.c_str();
  shader.setStrings(&text, 1);
  shader.setEnvInput(glslang::EShSourceGlsl, EShLangCompute, glslang::EShClientVulkan, 460);
  shader.setEnvClient(glslang::EShClientVulkan, glslang::EShTargetVulkan_1_2);
  shader.setEnvTarget(glslang::EShTargetSpv, glslang::EShTargetSpv_1_5);
  const auto rules = static_cast<EShMessages>(EShMsgSpvRules | EShMsgVulkanRules);
  if (!shader.parse(GetDefaultResources(), 460, false, rules)) {
    throw Error(ErrorKind::kDevice, cat("[glslang] ", shader.getInfoLog(), "\n", glsl));
  }
  glslang::TProgram program;
  program.addShader(&shader);
  if (!program.link(rules)) {
    throw Error(ErrorKind::kDevice, cat("[glslang] ", program.getInfoLog(), "\n", glsl));
  }
  glslang::SpvOptions options;
  options.disableOptimizer = true;
  std::vector<uint32_t> words;
  glslang::GlslangToSpv(*program.getIntermediate(EShLangCompute), words, &options);
  forbid_contraction(words);
  return words;
}

}  // namespace split::vulkan
