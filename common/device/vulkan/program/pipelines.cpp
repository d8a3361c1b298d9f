#include "device/vulkan/program/pipelines.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/cache_dir.h"
#include "base/file.h"
#include "base/log.h"
#include "base/resources/granted.h"
#include "base/resources/threads.h"
#include "device/vulkan/codegen/addresses.h"
#include "device/vulkan/codegen/spirv.h"

namespace split::vulkan {
namespace {

constexpr uint64_t kMaxCacheBytes = uint64_t{64} << 20;
constexpr size_t kDigestBytes = 32;

}  // namespace

Pipelines::Pipelines(Context& context) : context_(context) {
  const auto& properties = context.capabilities().properties;
  if (const auto cache = cache_dir([](const char* name) { return std::getenv(name); })) {
    const auto directory = *cache / "pipelines";
    const auto uuid =
        std::as_bytes(std::span<const uint8_t>(properties.pipelineCacheUUID, VK_UUID_SIZE));
    path_ = directory / cat(to_hex(uuid), "-", properties.vendorID, "-", properties.deviceID, "-",
                            properties.driverVersion);
  }
  load_cache();
}

Pipelines::~Pipelines() {
  {
    const std::lock_guard lock(mutex_);
    queue_.clear();
  }
  for (std::thread& worker : workers_) worker.join();
}

void Pipelines::load_cache() {
  std::string file;
  if (!path_.empty()) {
    try {
      file = read_file(path_, kMaxCacheBytes);
    } catch (const Error&) {
      file.clear();  // missing or unreadable: a miss
    }
  }
  std::string_view blob;
  if (file.size() > kDigestBytes) {
    Sha256 sum;
    sum.update(as_bytes_of(std::string_view(file).substr(kDigestBytes)));
    if (std::memcmp(sum.finish().data(), file.data(), kDigestBytes) == 0) {
      blob = std::string_view(file).substr(kDigestBytes);
    }
  }
  VkPipelineCacheCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO;
  info.initialDataSize = blob.size();
  info.pInitialData = blob.data();
  VkPipelineCache cache = VK_NULL_HANDLE;
  VkResult result = vkCreatePipelineCache(context_.device(), &info, nullptr, &cache);
  if (result < 0 && !blob.empty()) {
    info.initialDataSize = 0;
    result = vkCreatePipelineCache(context_.device(), &info, nullptr, &cache);
  }
  check(result, "vkCreatePipelineCache");
  kept_bytes_ = info.initialDataSize;
  cache_ = {context_.device(), cache, vkDestroyPipelineCache};
}

void Pipelines::save_cache() {
  if (path_.empty() || saved_ == pipelines_.size()) return;
  saved_ = pipelines_.size();
  size_t size = 0;
  check(vkGetPipelineCacheData(context_.device(), cache_.get(), &size, nullptr),
        "vkGetPipelineCacheData");
  if (size == kept_bytes_) return;  // nothing was added
  std::vector<std::byte> bytes(size);
  check(vkGetPipelineCacheData(context_.device(), cache_.get(), &size, bytes.data()),
        "vkGetPipelineCacheData");
  bytes.resize(size);
  if (size <= 64 || size > kMaxCacheBytes) return;  // a header alone: the driver keeps nothing
  try {
    std::filesystem::create_directories(path_.parent_path());
    Sha256 sum;
    sum.update(bytes);
    const auto digest = sum.finish();
    AtomicFile file(path_);
    file.append(digest);
    file.append(bytes);
    file.commit();
    kept_bytes_ = size;
  } catch (const Error& error) {
    log_warning(cat("[vulkan] the pipeline cache is not kept: ", error.what()));
  } catch (const std::filesystem::filesystem_error& error) {
    log_warning(cat("[vulkan] the pipeline cache is not kept: ", error.what()));
  }
}

bool Pipelines::by_address(uint32_t bindings) const {
  const Capabilities& device = context_.capabilities();
  return device.addresses && sizeof(PushConstants) + bindings * sizeof(VkDeviceAddress) <=
                                 device.properties.limits.maxPushConstantsSize;
}

const Pipelines::Layout& Pipelines::layouts(uint32_t bindings) {
  const auto at = layouts_.find(bindings);
  if (at != layouts_.end()) return at->second;
  const bool addresses = by_address(bindings);
  std::vector<VkDescriptorSetLayoutBinding> all(addresses ? 0 : bindings);
  for (uint32_t i = 0; i < all.size(); ++i) {
    all[i] = {i, VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1, VK_SHADER_STAGE_COMPUTE_BIT, nullptr};
  }
  VkDescriptorSetLayoutCreateInfo set_info{};
  set_info.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO;
  set_info.bindingCount = static_cast<uint32_t>(all.size());
  set_info.pBindings = all.data();
  VkDescriptorSetLayout set = VK_NULL_HANDLE;
  check(vkCreateDescriptorSetLayout(context_.device(), &set_info, nullptr, &set),
        "vkCreateDescriptorSetLayout");
  Layout layout;
  layout.set = {context_.device(), set, vkDestroyDescriptorSetLayout};
  const size_t behind = addresses ? bindings * sizeof(VkDeviceAddress) : 0;
  const VkPushConstantRange push{VK_SHADER_STAGE_COMPUTE_BIT, 0,
                                 static_cast<uint32_t>(sizeof(PushConstants) + behind)};
  VkPipelineLayoutCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO;
  info.setLayoutCount = 1;
  info.pSetLayouts = &set;
  info.pushConstantRangeCount = 1;
  info.pPushConstantRanges = &push;
  VkPipelineLayout pipeline = VK_NULL_HANDLE;
  check(vkCreatePipelineLayout(context_.device(), &info, nullptr, &pipeline),
        "vkCreatePipelineLayout");
  layout.pipeline = {context_.device(), pipeline, vkDestroyPipelineLayout};
  return layouts_.emplace(bindings, std::move(layout)).first->second;
}

VkDescriptorSetLayout Pipelines::set_layout(uint32_t bindings) {
  return layouts(bindings).set.get();
}
VkPipelineLayout Pipelines::layout(uint32_t bindings) { return layouts(bindings).pipeline.get(); }

const std::string* Pipelines::kept(std::string text) {
  return &modules_.try_emplace(std::move(text)).first->first;
}

VkShaderModule Pipelines::module(const PipelineKey& asked) {
  Handle<VkShaderModule>& made = modules_.at(*asked.text);
  if (made.get() != VK_NULL_HANDLE) return made.get();
  if (debug_level() >= 4) log_info(*asked.text);
  const std::string key = kernel_key(*asked.text);
  const auto all = embedded_kernels();
  const auto known = std::lower_bound(
      all.begin(), all.end(), key,
      [](const EmbeddedKernel& kernel, const std::string& k) { return kernel.key < k; });
  std::vector<uint32_t> compiled;
  std::span<const uint32_t> words;
  if (known != all.end() && known->key == key) {
    words = known->words;
  } else {
    words = compiled = compile_glsl(*asked.text);
  }
  if (by_address(asked.bindings)) words = compiled = with_addresses(words);
  VkShaderModuleCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO;
  info.codeSize = words.size_bytes();
  info.pCode = words.data();
  VkShaderModule module = VK_NULL_HANDLE;
  check(vkCreateShaderModule(context_.device(), &info, nullptr, &module), "vkCreateShaderModule");
  made = {context_.device(), module, vkDestroyShaderModule};
  return module;
}

Handle<VkPipeline> Pipelines::make(const PipelineKey& key, const Made& made) const {
  std::vector<VkSpecializationMapEntry> entries;
  std::vector<uint32_t> values;
  for (const auto& [id, value] : key.constants) {
    entries.push_back({id, static_cast<uint32_t>(values.size() * 4), 4});
    values.push_back(value);
  }
  const VkSpecializationInfo special{static_cast<uint32_t>(entries.size()), entries.data(),
                                     values.size() * 4, values.data()};
  VkPipelineShaderStageRequiredSubgroupSizeCreateInfo subgroup{};
  subgroup.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO;
  subgroup.requiredSubgroupSize = context_.capabilities().subgroup;
  VkComputePipelineCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO;
  info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
  info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
  info.stage.module = made.module;
  info.stage.pName = "main";
  info.stage.pSpecializationInfo = &special;
  if (context_.capabilities().subgroup > 1) {
    info.stage.pNext = &subgroup;
    info.stage.flags = VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT;
  }
  info.layout = made.layout;
  VkPipeline pipeline = VK_NULL_HANDLE;
  check(vkCreateComputePipelines(context_.device(), cache_.get(), 1, &info, nullptr, &pipeline),
        "vkCreateComputePipelines");
  return {context_.device(), pipeline, vkDestroyPipeline};
}

const Pipelines::Made* Pipelines::begin(const PipelineKey& key) {
  if (const auto known = pipelines_.find(key); known != pipelines_.end()) return &known->second;
  Made made;
  made.module = module(key);
  made.layout = layout(key.bindings);
  const auto at = pipelines_.emplace(key, std::move(made)).first;
  std::unique_lock lock(mutex_);
  queue_.push_back(&*at);
  ++unfinished_;
  if (working_ < granted_processors()) {
    ++working_;
    std::thread worker;
    if (try_start(worker, [this] { work(); })) {
      workers_.push_back(std::move(worker));
    } else if (working_ > 1) {
      --working_;
    } else {  // nobody else does it
      lock.unlock();
      work();
    }
  }
  return &at->second;
}

void Pipelines::work() {
  std::unique_lock lock(mutex_);
  while (!queue_.empty()) {
    auto& [key, made] = *queue_.front();
    queue_.pop_front();
    lock.unlock();
    Handle<VkPipeline> pipeline;
    std::exception_ptr error;
    try {
      pipeline = make(key, made);
    } catch (const Error&) {
      error = std::current_exception();
    }
    lock.lock();
    made.pipeline = std::move(pipeline);
    made.error = error;
    made.done = true;
    --unfinished_;
    done_.notify_all();
  }
  --working_;
}

VkPipeline Pipelines::get(const Made& made) {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return made.done; });
  if (made.error) std::rethrow_exception(made.error);
  return made.pipeline.get();
}

bool Pipelines::settled() {
  const std::lock_guard lock(mutex_);
  return unfinished_ == 0;
}

void Pipelines::settle() {
  {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return unfinished_ == 0; });
  }
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
  for (const auto& [key, made] : pipelines_) {
    if (made.error) std::rethrow_exception(made.error);
  }
  save_cache();
}

}  // namespace split::vulkan
