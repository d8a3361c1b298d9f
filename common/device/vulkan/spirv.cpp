#include "device/vulkan/spirv.h"

#include <glslang/Public/ResourceLimits.h>
#include <glslang/Public/ShaderLang.h>
#include <glslang/SPIRV/GlslangToSpv.h>

#include "base/bytes.h"

namespace split::vulkan {
namespace {

// glslang's process-wide tables, about 170 ms to build, made when a kernel is first compiled.
struct Glslang {
  Glslang() { glslang::InitializeProcess(); }
  ~Glslang() { glslang::FinalizeProcess(); }
};

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
  return words;
}

}  // namespace split::vulkan
