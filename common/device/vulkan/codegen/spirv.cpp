#include "device/vulkan/codegen/spirv.h"

#include <glslang/Public/ResourceLimits.h>
#include <glslang/Public/ShaderLang.h>
#include <glslang/SPIRV/GlslangToSpv.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>

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

// Debian 12's glslang knows matrix units as GL_NV_cooperative_matrix; devices have
// SPV_KHR_cooperative_matrix, which is the same but for numbers, a use for each type, and a layout
// in the place of "column major"; signs of whole numbers are named. The use follows from the names
// of a type's dimensions: LM x LK is A, LK x LN is B, LM x LN the sum.
void use_khr_matrices(std::vector<uint32_t>& words) {
  constexpr uint32_t kName = 5, kExtension = 10, kCapability = 17, kTypeInt = 21, kTrue = 41,
                     kFalse = 42, kConstant = 43;
  constexpr uint32_t kNvCapability = 5357, kNvType = 5358, kNvLoad = 5359, kNvStore = 5360,
                     kNvMulAdd = 5361, kNvLength = 5362;
  constexpr uint32_t kKhrCapability = 6022, kKhrType = 4456, kKhrLoad = 4457, kKhrStore = 4458,
                     kKhrMulAdd = 4459, kKhrLength = 4460;
  constexpr size_t kHeaderWords = 5, kBound = 3;
  std::map<std::string, uint32_t> named;
  std::map<uint32_t, bool> booleans;
  std::set<uint32_t> whole;  // types of whole numbers, and of matrices of them
  uint32_t uint_type = 0;
  const auto text_at = [&](size_t word, size_t end) {
    const auto* bytes = reinterpret_cast<const char*>(words.data() + word);
    return std::string(bytes, ::strnlen(bytes, (end - word) * sizeof(uint32_t)));
  };
  for (size_t at = kHeaderWords; at < words.size(); at += words[at] >> 16) {
    const uint32_t op = words[at] & 0xffff, length = words[at] >> 16;
    CHECK(length > 0 && at + length <= words.size());
    if (op == kName) named[text_at(at + 2, at + length)] = words[at + 1];
    if (op == kTypeInt && words[at + 2] == 32 && words[at + 3] == 0) uint_type = words[at + 1];
    if (op == kTypeInt || (op == kNvType && whole.contains(words[at + 2])))
      whole.insert(words[at + 1]);
    if (op == kTrue || op == kFalse) booleans[words[at + 2]] = op == kTrue;
  }
  const uint32_t zero = words[kBound];  // ids of the constants 0, 1 and 2
  std::vector<uint32_t> out(words.begin(), words.begin() + kHeaderWords);
  out[kBound] += 3;
  const auto emit = [&](uint32_t op, const std::vector<uint32_t>& arguments) {
    out.push_back(static_cast<uint32_t>(arguments.size() + 1) << 16 | op);
    out.insert(out.end(), arguments.begin(), arguments.end());
  };
  const auto layout = [&](uint32_t column_major) {
    return zero + (booleans.at(column_major) ? 1 : 0);
  };
  bool constants = false;
  for (size_t at = kHeaderWords; at < words.size(); at += words[at] >> 16) {
    const uint32_t op = words[at] & 0xffff, length = words[at] >> 16;
    const auto from = words.begin() + static_cast<std::ptrdiff_t>(at);
    const std::vector<uint32_t> a(from + 1, from + length);
    if (op == kCapability && a[0] == kNvCapability) {
      emit(kCapability, {kKhrCapability});
    } else if (op == kExtension && text_at(at + 1, at + length) == "SPV_NV_cooperative_matrix") {
      std::vector<uint32_t> name(a.size());
      std::memcpy(name.data(), "SPV_KHR_cooperative_matrix", sizeof "SPV_KHR_cooperative_matrix");
      emit(kExtension, name);
    } else if (op == kNvType) {
      for (uint32_t i = 0; !constants && i < 3; ++i) emit(kConstant, {uint_type, zero + i, i});
      constants = true;
      const bool is_a = a[3] == named.at("LM") && a[4] == named.at("LK");
      const bool is_b = a[3] == named.at("LK") && a[4] == named.at("LN");
      emit(kKhrType, {a[0], a[1], a[2], a[3], a[4], zero + (is_a ? 0 : is_b ? 1 : 2)});
    } else if (op == kNvLoad || op == kNvStore) {
      // Load: type, result, pointer, stride, column major, memory; store: pointer, object, the
      // rest.
      const size_t stride = op == kNvLoad ? 3 : 2;
      std::vector<uint32_t> b(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(stride));
      b.insert(b.end(), {layout(a[stride + 1]), a[stride]});
      b.insert(b.end(), a.begin() + static_cast<std::ptrdiff_t>(stride) + 2, a.end());
      emit(op == kNvLoad ? kKhrLoad : kKhrStore, b);
    } else if (op == kNvMulAdd && whole.contains(a[0])) {
      constexpr uint32_t kAllSigned = 15;
      emit(kKhrMulAdd, {a[0], a[1], a[2], a[3], a[4], kAllSigned});
    } else {
      emit(op == kNvMulAdd ? kKhrMulAdd : op == kNvLength ? kKhrLength : op, a);
    }
  }
  words = std::move(out);
}

// Takes out what only people read, an eighth of the words: sources, and names but those of the
// constants that a pipeline sets.
void leave_names_out(std::vector<uint32_t>& words) {
  constexpr uint32_t kSource = 3, kName = 5, kLine = 8, kDecorate = 71, kSpecId = 1;
  constexpr size_t kHeaderWords = 5;
  const std::vector<uint32_t> all = std::exchange(words, {});
  std::set<uint32_t> set;
  for (const bool learns : {true, false}) {
    if (!learns) words.assign(all.begin(), all.begin() + kHeaderWords);
    for (size_t at = kHeaderWords; at < all.size(); at += all[at] >> 16) {
      const uint32_t op = all[at] & 0xffff, length = all[at] >> 16;
      CHECK(length > 0 && at + length <= all.size());
      const bool named = op >= kSource && op <= kLine;
      if (learns && op == kDecorate && all[at + 2] == kSpecId) set.insert(all[at + 1]);
      if (learns || (named && !(op == kName && set.count(all[at + 1]) != 0))) continue;
      const auto from = all.begin() + static_cast<std::ptrdiff_t>(at);
      words.insert(words.end(), from, from + length);
    }
  }
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
  if (glsl.find("GL_NV_cooperative_matrix") != std::string::npos) use_khr_matrices(words);
  leave_names_out(words);
  return words;
}

}  // namespace split::vulkan
