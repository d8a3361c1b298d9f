#include "cloud_server/commands/doctor_command.h"

#include <unistd.h>

#include "base/figures.h"
#include "base/resources/granted.h"
#include "device/device.h"
#include "http/network.h"
#include "http/server/local_guard.h"
#include "program/checklist.h"
#include "run/room.h"
#include "run/self_test.h"
#include "serve/api_keys.h"

namespace split::cloud {
namespace {

class Doctor {
 public:
  Doctor(const DoctorInput& input, const Console& console) : input_(input), list_(console) {}

  int examine() {
    list_.check("devices", {}, [] { return devices(); });
    list_.check("device", {}, [this] { return device(); });
    for (const ModelOptions& model : input_.models) {
      list_.check("model", {}, [&] { return describe(model); });
    }
    list_.check("memory", {}, [this] { return memory(); });
    list_.check("blobs", {}, [this] { return blobs(); });
    list_.check("keys", {}, [this] { return keys(); });
    list_.check("address", {}, [this] { return address(); });
    return list_.finish();
  }

 private:
  static std::string devices() {
    std::string all;
    for (const ListedDevice& one : list_devices()) all += cat(all.empty() ? "" : "; ", one.text);
    return all;
  }

  std::string device() {
    const DeviceOptions wanted{input_.models[0].device, input_.models[0].threads};
    device_ = make_device(wanted);
    self_test(*device_);
    return cat("--device ", wanted.device, " is ", device_->name(),
               "; its kernels agree with the plain CPU's");
  }

  // Opens a model's files as a server does, without reading weights.
  std::string describe(const ModelOptions& options) {
    const Checkpoint checkpoint(options.path);
    const std::unique_ptr<Model> model = model_of(checkpoint, options.context);
    const ModelConfig& config = model->config();
    uint64_t weights = 0;
    for (const std::string& name : checkpoint.names()) weights += checkpoint.at(name).bytes.size();
    weights_ += weights;
    TextRoom room{options.kv_budget, weights, device_ && device_->is_gpu()};
    if (room.budget == 0)
      room.budget = default_kv_budget(*model, options.profile, options.kv, room);
    kv_ += room.budget;
    if (!options.context) fit_context(*model, options.profile, options.kv, room);
    if (device_) {
      expect_room(*device_, options.path.string(), weights,
                  kv_bytes_for(*model, {}, options.profile, 1, options.kv));
    }
    const bool words = checkpoint.files().size() > 1;
    return cat(options.id, " (", options.path.string(), "): ", config.layers, " blocks of ",
               config.channels, ", vocabulary ", config.vocab, ", context ", config.context,
               ", in ", format_name(own_format(checkpoint, *model, model->stages()[1])), ", ",
               human_bytes(weights), words ? "" : "; no tokenizer: it takes token ids only");
  }

  std::string memory() const {
    const uint64_t granted = granted_memory();
    std::string figures = cat(human_bytes(weights_), " of weights and up to ", human_bytes(kv_),
                              " for keys and values, of ", human_bytes(granted));
    if (weights_ + kv_ > granted) {
      throw Error(ErrorKind::kInput, cat("needed: ", figures, "; a smaller --kv-budget helps"));
    }
    return figures;
  }

  std::string blobs() const {
    if (input_.blob_cache.empty()) return "converted weights are kept in memory (--blob-cache DIR)";
    // The nearest existing folder above the one that a server would make.
    std::filesystem::path at = std::filesystem::absolute(input_.blob_cache);
    std::error_code error;
    while (at.has_relative_path() && !std::filesystem::exists(at, error)) at = at.parent_path();
    if (!std::filesystem::is_directory(at, error) || ::access(at.c_str(), W_OK | X_OK) != 0) {
      throw Error(ErrorKind::kIo, cat(at.string(),
                                      ": cannot be written; --blob-cache DIR names "
                                      "another place"));
    }
    const auto space = std::filesystem::space(at, error);
    return cat(input_.blob_cache.string(), ": ", error ? "unknown" : human_bytes(space.available),
               " free");
  }

  std::string keys() const {
    if (input_.api_key_file.empty()) return "none: whoever reaches this server may ask";
    const serve::ApiKeys keys = serve::ApiKeys::read(input_.api_key_file);
    if (keys.empty()) {
      throw Error(ErrorKind::kInput, cat(input_.api_key_file, ": holds no key"));
    }
    return cat(input_.api_key_file, " can be read");
  }

  // Listens there for a moment, with the certificate if there is one.
  std::string address() const {
    const bool tls = !input_.server.tls_cert_file.empty();
    const bool local = http::is_loopback(input_.server.host);
    http::Server server(input_.server);
    const int port = server.bind();
    return cat(http::origin_of(tls, input_.server.host, port), " is free",
               tls ? cat("; the certificate ", input_.server.tls_cert_file, " can be used") : "",
               local ? " (this machine only; --host to change)" : "");
  }

  const DoctorInput& input_;
  Checklist list_;
  uint64_t weights_ = 0, kv_ = 0;
  std::unique_ptr<Device> device_;
};

}  // namespace

int doctor_command(const DoctorInput& input, const Console& console) {
  return Doctor(input, console).examine();
}

}  // namespace split::cloud
