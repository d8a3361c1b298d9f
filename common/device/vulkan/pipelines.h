// Compute pipelines by (text, specialisation constants), shared by every Executable of a device and
// kept across processes in the driver's pipeline cache under $XDG_CACHE_HOME/splitcompute (a bad or
// foreign entry is a miss).
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <unordered_map>

#include "device/vulkan/context.h"

namespace split::vulkan {

struct PipelineKey {
  const std::string* text = nullptr;  // GLSL, of Pipelines::kept()
  uint32_t bindings = 0;
  std::vector<std::pair<uint32_t, uint32_t>> constants;  // id, value; id 0 is the workgroup's size
  auto operator<=>(const PipelineKey&) const = default;
};

struct PushConstants {
  uint32_t row_base = 0, row_piece = 0, column_base = 0, column_piece = 0;
  bool operator==(const PushConstants&) const = default;
};

class Pipelines {
 public:
  explicit Pipelines(Context& context);
  ~Pipelines();
  Pipelines(const Pipelines&) = delete;
  Pipelines& operator=(const Pipelines&) = delete;

  // One copy of each text: a model has a thousand keys of a few texts of 10 KB.
  const std::string* kept(std::string text);
  // Makes those that are missing, on all processors. Throws Error(kDevice).
  void prepare(const std::vector<PipelineKey>& keys);
  VkPipeline get(const PipelineKey& key) const;  // after prepare()
  VkDescriptorSetLayout set_layout(uint32_t bindings);
  VkPipelineLayout layout(uint32_t bindings);

 private:
  struct Layout {
    Handle<VkDescriptorSetLayout> set;
    Handle<VkPipelineLayout> pipeline;
  };
  const Layout& layouts(uint32_t bindings);
  VkShaderModule module(const std::string* text);
  Handle<VkPipeline> make(const PipelineKey& key, VkShaderModule module,
                          VkPipelineLayout layout) const;
  void load_cache();
  void save_cache();

  Context& context_;
  std::filesystem::path path_;  // empty when there is no cache directory
  Handle<VkPipelineCache> cache_;
  size_t saved_ = 0;  // pipelines when the cache was last written
  std::map<uint32_t, Layout> layouts_;
  std::unordered_map<std::string, Handle<VkShaderModule>> modules_;  // by text, null until needed
  std::map<PipelineKey, Handle<VkPipeline>> pipelines_;
};

}  // namespace split::vulkan
