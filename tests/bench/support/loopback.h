// A cloud of one random model, served in this process on a real loopback port.
#pragma once

#include <thread>

#include "bench/support/bench.h"
#include "bench/support/random_model.h"
#include "cloud_server/routes/routes.h"
#include "edge_client/cloud/remote.h"

namespace split::bench {

class Loopback {
 public:
  // f16 weights and profile, on the CPU; weights to download also in `formats`. The model's files
  // lie in a directory of their own while this lives.
  Loopback(const RandomModel& model, const Options& options, std::vector<DType> formats = {})
      : server_(server_options()) {
    model.write(scratch_.path());
    cloud::ModelOptions served;
    served.id = options.size;
    served.path = scratch_.path();
    served.device = "cpu";
    served.threads = options.threads;
    served.profile = Profile::kF16;
    served.kv_budget = kv_bytes_for(model.model(), {}, Profile::kF16, 4);
    served.formats = std::move(formats);
    served.weights_patience = std::chrono::hours(1);
    cloud_.models.push_back(std::make_unique<cloud::ServedModel>(served));
    cloud_.version = "bench";
    cloud::add_routes(server_, cloud_);
    this->model().warm_up();
    // Nothing is hashed while others measure.
    this->model().weights().stages({});
    cloud_.ready = true;
    url_ = cat("http://127.0.0.1:", server_.bind());
    thread_ = std::thread([this] { server_.run(); });
  }
  ~Loopback() {
    server_.stop();
    thread_.join();
  }
  Loopback(const Loopback&) = delete;
  Loopback& operator=(const Loopback&) = delete;

  const std::string& url() const { return url_; }
  cloud::ServedModel& model() { return *cloud_.models[0]; }

 private:
  static http::Server::Options server_options() {
    http::Server::Options options;
    options.worker_stack_bytes = 1 << 20;  // as cloud_server's main()
    return options;
  }

  ScratchDir scratch_;
  cloud::Cloud cloud_;
  http::Server server_;
  std::string url_;
  std::thread thread_;
};

}  // namespace split::bench
