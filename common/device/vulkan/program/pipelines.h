// Compute pipelines by (text, specialisation constants), shared by every Executable of a device,
// made in the background while weights go up, and kept across processes in the driver's pipeline
// cache under $XDG_CACHE_HOME/splitcompute (a bad or foreign entry is a miss).
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <filesystem>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>

#include "device/vulkan/runtime/context.h"

namespace split::vulkan {

struct PipelineKey {
  const std::string* text = nullptr;  // GLSL, of Pipelines::kept()
  uint32_t bindings = 0;
  std::vector<std::pair<uint32_t, uint32_t>> constants;  // id (constants.h), value
  auto operator<=>(const PipelineKey&) const = default;
};

struct PushConstants {
  uint32_t row_base = 0, row_piece = 0, column_base = 0, column_piece = 0;
};

class Pipelines {
 public:
  explicit Pipelines(Context& context);
  ~Pipelines();
  Pipelines(const Pipelines&) = delete;
  Pipelines& operator=(const Pipelines&) = delete;

  // One copy of each text: a model has a thousand keys of a few texts of 10 KB.
  const std::string* kept(std::string text);
  struct Made;
  // Begins to make a pipeline, on all processors, unless it is there or begun.
  const Made* begin(const PipelineKey& key);
  size_t begun() const { return pipelines_.size(); }  // in total
  // Waits for a pipeline. Throws Error(kDevice).
  VkPipeline get(const Made& made);
  bool settled();  // whether all that was begun is finished
  // Waits for all that was begun, and saves the driver's cache. Throws Error(kDevice).
  void settle();
  // Whether a kernel of so many buffers gets addresses behind its push constants, in place of a set
  // and its layout.
  bool by_address(uint32_t bindings) const;
  VkDescriptorSetLayout set_layout(uint32_t bindings);
  VkPipelineLayout layout(uint32_t bindings);

 private:
  struct Layout {
    Handle<VkDescriptorSetLayout> set;
    Handle<VkPipelineLayout> pipeline;
  };
  const Layout& layouts(uint32_t bindings);
  VkShaderModule module(const PipelineKey& key);
  Handle<VkPipeline> make(const PipelineKey& key, const Made& made) const;
  void work();
  void load_cache();
  void save_cache();

  Context& context_;
  std::filesystem::path path_;  // empty when there is no cache directory
  Handle<VkPipelineCache> cache_;
  size_t saved_ = 0;       // pipelines when the cache was last looked at
  size_t kept_bytes_ = 0;  // bytes of the driver's cache in the file
  std::map<uint32_t, Layout> layouts_;
  std::unordered_map<std::string, Handle<VkShaderModule>> modules_;  // by text, null until needed
  std::map<PipelineKey, Made> pipelines_;

  std::mutex mutex_;  // guards all below, and each Made when it is done
  std::condition_variable done_;
  std::deque<std::pair<const PipelineKey, Made>*> queue_;
  size_t unfinished_ = 0;  // queued or in work
  size_t working_ = 0;     // threads
  std::vector<std::thread> workers_;
};

struct Pipelines::Made {
  VkShaderModule module = VK_NULL_HANDLE;
  VkPipelineLayout layout = VK_NULL_HANDLE;
  Handle<VkPipeline> pipeline;
  std::exception_ptr error;
  bool done = false;
};

}  // namespace split::vulkan
