#include "device/device.h"

#include "base/log.h"

namespace split {

std::unique_ptr<Device> make_device(const DeviceOptions& options) {
  const std::string& name = options.device;
  if (name == "cpu") return make_cpu_device(options.threads);
  const bool indexed = name.starts_with("vulkan:") && parse_u64(name.substr(7), 0, 255).has_value();
  if (name != "auto" && name != "vulkan" && !indexed) {
    throw Error(ErrorKind::kInput,
                cat("[device] expected auto, cpu, vulkan or vulkan:N, got '", name, "'"));
  }
#ifdef SPLIT_WITH_VULKAN
  if (indexed) return make_vulkan_device(name.substr(7));
  if (name == "vulkan") {
    std::unique_ptr<Device> device = make_vulkan_device("any");
    if (device->name().find("software") != std::string::npos) {
      log_warning(
          cat("no GPU: ", device->name(), " computes on the processor, slower than --device cpu"));
    }
    return device;
  }
  try {
    if (std::unique_ptr<Device> device = make_vulkan_device("")) return device;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kDevice) throw;
    log_warning(cat(error.what(), "; the CPU takes its place"));
  }
#else
  if (name != "auto") throw Error(ErrorKind::kDevice, "[device] this build has no Vulkan device");
#endif
  return make_cpu_device(options.threads);
}

std::vector<std::string> list_devices() {
  std::vector<std::string> lines{make_cpu_device(0)->name()};
#ifdef SPLIT_WITH_VULKAN
  for (std::string& line : list_vulkan_devices()) lines.push_back(std::move(line));
#endif
  return lines;
}

}  // namespace split
