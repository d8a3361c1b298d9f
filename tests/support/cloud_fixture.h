// A cloud in this process on any free port, somebody to ask it, and what PyTorch says about its
// models.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "cloud_server/routes/routes.h"
#include "golden_values.h"
#include "http/client.h"
#include "http_peer.h"
#include "io/write_safetensors.h"
#include "openapi_testing.h"
#include "support/in_process/in_process.h"

namespace split::cloud {

using Json = nlohmann::json;

using test::model_dir;
using test::relative;
using test::source;

struct Golden : test::GoldenValues {
  explicit Golden(const std::string& name)
      : GoldenValues(name),
        json(Json::parse(read_file(source(name == "demo" ? "tests/golden/demo.json"
                                                         : "tests/golden/" + name + "/golden.json"),
                                   64 << 20))) {}

  Json json;
};

// Somebody with one connection, and perhaps a key. One thread at a time.
class Caller {
 public:
  explicit Caller(const std::string& url, const std::string& key = {}) : client_(url, with(key)) {}

  http::Reply get(const std::string& path, const http::Headers& headers = {}) {
    return client_.request("GET", path, {}, {}, headers);
  }
  http::Reply send(const std::string& method, const std::string& path, std::string body = {},
                   std::string_view type = "application/json", const http::Headers& headers = {}) {
    return client_.request(method, path, std::move(body), type, headers);
  }
  http::Reply post(const std::string& path, const Json& body) {
    return send("POST", path, body.dump());
  }
  http::Reply post_for_tensors(const std::string& path, const Json& body) {
    return send("POST", path, body.dump(), "application/json", {{"Accept", kTensors}});
  }
  http::Reply post_tensors(const std::string& path, std::string body) {
    return send("POST", path, std::move(body), kTensors, {{"Accept", kTensors}});
  }
  static constexpr char kTensors[] = "application/octet-stream";

 private:
  static http::Client::Options with(const std::string& key) {
    http::Client::Options options;
    options.bearer_token = key;
    return options;
  }
  http::Client client_;
};

inline Json json_of(const http::Reply& reply, int status = 200) {
  EXPECT_EQ(reply.status, status) << reply.body.substr(0, 500);
  Json json = Json::parse(reply.body, nullptr, false);
  EXPECT_FALSE(json.is_discarded()) << reply.body.substr(0, 500);
  return json;
}

// The error is one clear line in OpenAI's shape, with this status, code and field; "" for null.
inline void expect_error(const http::Reply& reply, int status, const std::string& code,
                         const std::string& param, const std::string& what = {}) {
  ASSERT_EQ(reply.status, status) << what << ": " << reply.body.substr(0, 500);
  const Json json = Json::parse(reply.body, nullptr, false);
  ASSERT_TRUE(json.is_object() && json.contains("error")) << what << ": " << reply.body;
  const Json& error = json["error"];
  EXPECT_EQ(error.value("code", ""), code) << what << ": " << reply.body;
  EXPECT_EQ(error["param"].is_null() ? "" : error["param"].get<std::string>(), param)
      << what << ": " << reply.body;
  EXPECT_TRUE(error["type"].is_string());
  const std::string message = error["message"];
  EXPECT_FALSE(message.empty());
  EXPECT_EQ(message.find('\n'), std::string::npos);
  EXPECT_LT(message.size(), 300u);
}

// [rows, columns] of floats of an answer's list of lists.
inline std::vector<float> flat(const Json& rows) {
  std::vector<float> out;
  for (const Json& row : rows) {
    for (const Json& value : row) out.push_back(value.get<float>());
  }
  return out;
}

// The one tensor of an answer.
inline std::vector<float> floats_of(const std::string& frame, const std::string& name) {
  const Safetensors file = Safetensors::parse(as_bytes_of(frame), "the answer");
  const auto at = file.tensors().find(name);
  if (at == file.tensors().end()) {
    ADD_FAILURE() << "no tensor " << name;
    return {};
  }
  std::vector<float> out(at->second.bytes.size() / sizeof(float));
  std::memcpy(out.data(), at->second.bytes.data(), at->second.bytes.size());
  return out;
}

class TestCloud {
 public:
  // Lets a test change options before the routes are added.
  using Adjust = std::function<void(Cloud&, http::Server::Options&)>;
  // The models by name, or as [ID=]DIR would give them, in all formats. kv: of each model.
  explicit TestCloud(const std::vector<std::string>& names, uint64_t kv = 64 << 20,
                     const std::filesystem::path& blob_cache = {}, Profile profile = Profile::kF32,
                     const Adjust& adjust = {}, const std::string& device = "cpu") {
    for (const std::string& name : names) {
      ModelOptions options;
      options.id = std::filesystem::path(name).filename().string();
      options.path = name.starts_with('/') ? name : model_dir(name);
      options.device = device;
      options.threads = 1;
      options.kv_budget = kv;
      options.blob_cache = blob_cache;
      options.profile = profile;
      options.formats = parse_formats("f32,f16,q8_0,q4_0");
      options.weights_patience = std::chrono::minutes(5);  // under sanitizers, on busy machines
      cloud.models.push_back(std::make_unique<ServedModel>(options));
    }
    cloud.version = "test";
    http::Server::Options options;
    options.shutdown_timeout = std::chrono::seconds(1);
    options.worker_stack_bytes = 1 << 20;
    options.memory = &cloud.memory;
    if (adjust) adjust(cloud, options);
    running_ = std::make_unique<http::Running>(options, [this](http::Server& server) {
      add_routes(server, cloud);
      server.router().add_observer(
          [&server](const http::Request& request, const http::Answered& answered) {
            expect_listed(server.router().routes(), request, answered);
          });
    });
    caller_ = std::make_unique<Caller>(url());
    here_.emplace(running_->server.router(), &cloud.memory);
  }

  Caller& ask() { return *caller_; }
  http::Server& server() { return running_->server; }

  std::string url() const { return running_->url(); }
  const std::string& here() const { return here_->url(); }  // without a socket (in_process.h)
  int port() const { return running_->port; }
  http::Server::Stats stats() const { return running_->server.stats(); }
  KvPages& pages(size_t model = 0) { return cloud.models[model]->batcher().shard().pages(); }
  const ModelConfig& config(size_t model = 0) const { return cloud.models[model]->config(); }

  Cloud cloud;

 private:
  // /openapi.json says that this may happen.
  static void expect_listed(std::span<const http::Route> routes, const http::Request& request,
                            const http::Answered& answered) {
    if (answered.route.empty() || request.method == "OPTIONS") return;
    EXPECT_TRUE(test::lists(routes, request.method, answered.route, answered.status))
        << request.method << " " << answered.route << " answered " << answered.status;
  }
  std::unique_ptr<http::Running> running_;
  std::unique_ptr<Caller> caller_;
  std::optional<test::InProcess> here_;
};

// A directory that goes away with the test.
struct TemporaryDir {
  TemporaryDir() {
    std::string pattern = testing::TempDir() + "splitXXXXXX";
    CHECK(::mkdtemp(pattern.data()) != nullptr);
    path = pattern;
  }
  ~TemporaryDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  std::filesystem::path path;
};

// A model of one block and one head with zeros for weights: for sizes, not for values.
inline void write_flat_model(const std::filesystem::path& dir, int channels, int vocab,
                             int context) {
  const auto c = static_cast<int64_t>(channels);
  const std::vector<std::pair<std::string, Dims>> shapes = {
      {"wte.weight", {vocab, c}},
      {"wpe.weight", {context, c}},
      {"h.0.ln_1.weight", {c}},
      {"h.0.ln_1.bias", {c}},
      {"h.0.attn.c_attn.weight", {c, 3 * c}},
      {"h.0.attn.c_attn.bias", {3 * c}},
      {"h.0.attn.c_proj.weight", {c, c}},
      {"h.0.attn.c_proj.bias", {c}},
      {"h.0.ln_2.weight", {c}},
      {"h.0.ln_2.bias", {c}},
      {"h.0.mlp.c_fc.weight", {c, 4 * c}},
      {"h.0.mlp.c_fc.bias", {4 * c}},
      {"h.0.mlp.c_proj.weight", {4 * c, c}},
      {"h.0.mlp.c_proj.bias", {c}},
      {"ln_f.weight", {c}},
      {"ln_f.bias", {c}},
  };
  const std::vector<float> zeros(static_cast<size_t>(std::max(vocab, context) * c));
  std::vector<NamedTensor> tensors;
  for (const auto& [name, dims] : shapes) {
    size_t count = 1;
    for (const int64_t d : dims) count *= static_cast<size_t>(d);
    tensors.push_back({name, {DType::kF32, dims, std::as_bytes(std::span(zeros).first(count))}});
  }
  const auto write = [&](const char* name, const std::string& text) {
    AtomicFile file(dir / name);
    file.append(as_bytes_of(text));
    file.commit();
  };
  write("model.safetensors", write_safetensors(tensors));
  write("config.json", Json{{"model_type", "gpt2"},
                            {"n_layer", 1},
                            {"n_head", 1},
                            {"n_embd", channels},
                            {"vocab_size", vocab},
                            {"n_positions", context},
                            {"n_ctx", context},
                            {"layer_norm_epsilon", 1e-5},
                            {"activation_function", "gelu_new"}}
                           .dump());
}

// A model of zeros but for one weight, and for token 1, whose first channel is `size`.
inline void write_large_model(const std::filesystem::path& dir, float size, float weight,
                              float norm = 1) {
  write_flat_model(dir, 32, 128, 16);
  const std::string path = (dir / "model.safetensors").string();
  std::string bytes = read_file(path, 1 << 20);
  const Safetensors file = Safetensors::parse(as_bytes_of(bytes), path);
  const auto set = [&](const char* name, size_t at, float value) {
    const TensorView& view = file.tensors().at(name);
    const auto begin = static_cast<size_t>(view.bytes.data() - as_bytes_of(bytes).data());
    std::memcpy(bytes.data() + begin + at * sizeof value, &value, sizeof value);
  };
  set("wte.weight", 32, size);
  for (size_t channel = 0; channel < 32; ++channel) set("h.0.ln_1.weight", channel, norm);
  for (size_t column = 0; column < 96; ++column) set("h.0.attn.c_attn.weight", column, weight);
  AtomicFile out(path);
  out.append(as_bytes_of(bytes));
  out.commit();
}

}  // namespace split::cloud
