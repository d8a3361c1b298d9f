#include "device/device.h"

#include "base/log.h"

namespace split {
namespace {

constexpr DeviceKind kKinds[] = {
    {"cpu", false,
     [](const DeviceOptions& options, const std::string& which) {
       return which.empty() ? nullptr : make_cpu_device(options.threads);
     },
     [] {
       return std::vector<ListedDevice>{{"cpu", make_cpu_device(0)->name()}};
     }},
#ifdef SPLIT_WITH_VULKAN
    {"vulkan", true,
     [](const DeviceOptions&, const std::string& which) { return make_vulkan_device(which); },
     list_vulkan_devices},
#endif
#ifdef SPLIT_WITH_WEBGPU
    {"webgpu", true,
     [](const DeviceOptions&, const std::string& which) { return make_webgpu_device(which); },
     [] {
       return has_webgpu() ? std::vector<ListedDevice>{{"webgpu", "webgpu", true}}
                           : std::vector<ListedDevice>();
     }},
#endif
};

// A GPU, or null.
std::unique_ptr<Device> find_gpu(const DeviceOptions& options) {
  for (const DeviceKind& kind : kKinds) {
    try {
      if (std::unique_ptr<Device> device = kind.make(options, "")) return device;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kDevice) throw;
      log_warning(cat(error.what(), "; the CPU takes its place"));
    }
  }
  return nullptr;
}

// The kind that a name other than "auto" begins with, and the index behind it, if there is one.
std::pair<const DeviceKind&, std::string> named(const std::string& name) {
  const size_t colon = name.find(':');
  const std::string index = colon == name.npos ? "" : name.substr(colon + 1);
  for (const DeviceKind& kind : kKinds) {
    if (kind.name != name.substr(0, colon)) continue;
    if (colon == name.npos || (kind.gpus && parse_u64(index, 0, 255))) return {kind, index};
  }
  throw Error(ErrorKind::kInput, cat("[device] expected ", device_names(), ", got '", name, "'"));
}

}  // namespace

std::span<const DeviceKind> device_kinds() { return kKinds; }

std::string device_names() {
  std::vector<std::string> names{"auto"};
  for (const DeviceKind& kind : kKinds) {
    names.emplace_back(kind.name);
    if (kind.gpus) names.push_back(cat(kind.name, ":N"));
  }
  std::string text = names[0];
  for (size_t i = 1; i < names.size(); ++i) {
    text += cat(i + 1 < names.size() ? ", " : " or ", names[i]);
  }
  return text;
}

std::string device_words() {
  std::string words = "auto";
  for (const DeviceKind& kind : kKinds) words += cat("|", kind.name);
  return words;
}

void check_device_name(const std::string& name) {
  if (name != "auto") (void)named(name);
}

std::unique_ptr<Device> make_device(const DeviceOptions& options) {
  const std::string& name = options.device;
  if (name == "auto") {
    std::unique_ptr<Device> gpu = find_gpu(options);
    return gpu ? std::move(gpu) : make_cpu_device(options.threads);
  }
  const auto [kind, index] = named(name);
  if (!index.empty()) return kind.make(options, index);
  std::unique_ptr<Device> device = kind.make(options, "any");
  if (kind.gpus && !device->is_gpu()) {
    log_warning(
        cat("no GPU: ", device->name(), " computes on the processor, slower than --device cpu"));
  }
  return device;
}

std::vector<ListedDevice> list_devices() {
  std::vector<ListedDevice> all;
  for (const DeviceKind& kind : kKinds) {
    for (ListedDevice& device : kind.list()) all.push_back(std::move(device));
  }
  return all;
}

}  // namespace split
