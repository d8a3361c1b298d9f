// The flags of cloud_server, and the options of its parts derived from them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cloud_server/state/served_model.h"
#include "http/server/server.h"
#include "program/flags.h"

namespace split::cloud {

struct Options {
  std::vector<std::string> models;
  std::string host = "127.0.0.1";
  uint64_t port = 8080;
  std::string device = "auto";
  std::string profile = "f32", kv = "auto", formats = "f32,f16,q8_0,q4_0";
  unsigned threads = 0;
  std::optional<int> context;
  std::string chat_template;
  bool special_in_content = false;
  uint64_t kv_budget = 0, memory_budget = 0;
  std::string prompt_cache;                                               // "on" or "off"
  uint64_t max_inflight = 256, shutdown_timeout = 10, drain_timeout = 0;  // seconds
  uint64_t max_connections = 8192, max_per_address = 1024;
  std::vector<std::string> trusted_proxies, allowed_hosts;
  std::string blob_cache, blob_url;
  std::string app = "on";
  float price_hour = -1, price_egress = -1;  // below 0: not reported
  float slo_ms = 50;
  bool wide = false;
  bool insecure = false;
  bool legacy_routes = false;
  std::vector<std::string> cors_origins;
  std::string api_key_file, tls_cert, tls_key;
  std::string log_format = "text", metrics = "keys";
  std::string completion;
  bool manual = false, healthcheck = false, list_devices = false;
};

// Returns the table that reads the flags into `options`, which must outlive it.
Flags make_flags(Options& options);

// Throws Error(kInput) for contradictory flags; fills in defaults.
void complete_options(Options& options);

// Returns the options of one --model [ID=]PATH. Throws Error(kInput).
ModelOptions model_options(const Options& options, const std::string& argument);

http::Server::Options server_options(const Options& options);

}  // namespace split::cloud
