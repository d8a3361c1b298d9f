// The kernels that are built in, as SPIR-V: what a pipeline sets is what their text names.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>
#include <string>

#include "base/error.h"
#include "device/vulkan/codegen/constants.h"
#include "device/vulkan/codegen/spirv.h"

namespace split::vulkan {
namespace {

// Names of ids, and ids' SpecId decorations, of a module.
struct Constants {
  explicit Constants(std::span<const uint32_t> words) {
    constexpr uint32_t kOpName = 5, kOpDecorate = 71, kSpecId = 1;  // of SPIR-V 1.5
    constexpr size_t kHeaderWords = 5;
    for (size_t at = kHeaderWords; at < words.size(); at += words[at] >> 16) {
      const uint32_t op = words[at] & 0xffff, length = words[at] >> 16;
      CHECK(length > 0 && length <= words.size() - at);
      if (op == kOpName) {
        const auto* const text = reinterpret_cast<const char*>(words.data() + at + 2);
        names[words[at + 1]] = std::string(text, ::strnlen(text, (length - 2) * 4));
      }
      if (op == kOpDecorate && words[at + 2] == kSpecId) ids[words[at + 1]] = words[at + 3];
    }
  }
  std::map<uint32_t, std::string> names;
  std::map<uint32_t, uint32_t> ids;
};

TEST(VulkanConstants, AreThoseOfTheTable) {
  ASSERT_FALSE(embedded_kernels().empty());
  std::set<uint32_t> used;
  for (const EmbeddedKernel& kernel : embedded_kernels()) {
    const Constants constants(kernel.words);
    std::set<uint32_t> named;  // in this module
    for (const auto& [constant, id] : constants.ids) {
      const auto name = constants.names.find(constant);
      if (name == constants.names.end()) {  // the workgroup's size itself
        EXPECT_EQ(id, id_of(Constant::WORKGROUP));
        continue;
      }
      EXPECT_TRUE(named.insert(id).second) << name->second << " has the id of another: " << id;
      if (id >= kTapeConstants) continue;
      EXPECT_EQ(name->second, kConstantRows[id].name) << id;
      used.insert(id);
    }
  }
  for (uint32_t id = 0; id < kTapeConstants; ++id) {
    EXPECT_TRUE(used.count(id) != 0) << kConstantRows[id].name << " is in no kernel";
  }
}

}  // namespace
}  // namespace split::vulkan
