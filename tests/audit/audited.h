// Helpers that the tests of audits share: an auditor, answers with receipts, a cloud that cheats.
#pragma once

#include <gtest/gtest.h>

#include <fstream>

#include "http/sse.h"
#include "support/cloud_fixture.h"
#include "support/edge_server.h"
#include "support/edge_world.h"
#include "wire/audit.h"

namespace split::test {

using Json = nlohmann::json;

// 200 draws of 8 blocks miss one with a chance of 3e-12.
inline constexpr const char* kMany = "--rounds=200";

struct Auditor {
  TemporaryFolder folder;

  std::string file(const std::string& text) const {
    const std::filesystem::path path = folder.path / "receipt.json";
    std::ofstream(path) << text;
    return path;
  }
  Outcome run(const std::string& url, const std::string& receipt,
              std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments = {
        "audit",   file(receipt),  cat("--server=", url), cat("--cache=", cache().string()),
        "--quiet", "--device=cpu", "--threads=1",         "--retry-for=5"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_edge(arguments);
  }
  std::filesystem::path cache() const { return folder.path / "cache"; }
};

// The audit ends with this code, and one line that says why.
inline void expect_line(const Outcome& outcome, int code, const std::string& words) {
  EXPECT_EQ(outcome.code, code) << outcome.err;
  EXPECT_NE(outcome.err.find(words), std::string::npos) << outcome.err;
  EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
}

inline Json asked(const Json& more = {}) {
  Json body = {{"prompt", {3, 5, 9, 14, 2, 7}}, {"max_tokens", 20}, {"receipt", true}, {"seed", 3}};
  if (more.is_object()) body.update(more);
  return body;
}

inline http::Reply post(const std::string& url, const std::string& path, const Json& body) {
  return Client(url).request("POST", path, body.dump(), "application/json");
}

inline std::string answer(const std::string& url, const Json& more = {},
                          const std::string& path = "/v1/completions") {
  const http::Reply reply = post(url, path, asked(more));
  EXPECT_EQ(reply.status, 200) << reply.body;
  return reply.body;
}

inline Json receipt_of(const std::string& text) {
  return Json::parse(text).at("choices").at(0).at("receipt");
}

inline void expect_refused(const http::Reply& reply, int status, const std::string& words) {
  EXPECT_EQ(reply.status, status) << reply.body;
  EXPECT_NE(reply.body.find(words), std::string::npos) << reply.body;
}

inline GatedCloud& demo() {
  static ForAllTests<GatedCloud> all;
  return all.get("demo");
}

// Changes one weight of a block in the file, behind whatever was read of it.
inline void flip_weight(const std::filesystem::path& file, const std::string& name) {
  const std::string text = read_file(file, 64 << 20);
  const Safetensors parsed = Safetensors::parse(as_bytes_of(text), "the model");
  const TensorView& view = parsed.tensors().at(name);
  const auto at = view.bytes.data() - as_bytes_of(text).data();
  std::fstream out(file, std::ios::in | std::ios::out | std::ios::binary);
  // The lower byte of a half keeps it finite; its top bit is worth an eighth of the number.
  const auto byte = static_cast<char>(text[static_cast<size_t>(at)] ^ 0x40);
  out.seekp(at).put(byte);
}

inline std::string manifest_of(GatedCloud& cloud) {
  return wire::manifest_hash(
      wire::parse_model_info(Client(cloud.url()).request("GET", "/v1/models/demo").body));
}

inline std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = 0; (at = text.find(what, at)) != text.npos; at += by.size()) {
    text.replace(at, what.size(), by);
  }
  return text;
}

// A cloud that shows the good model's manifest and weights, and computes, once it is told to, with
// one other number in block 3.
class Cheat {
 public:
  Cheat() {
    std::filesystem::copy(model_dir("demo"), folder_.path / "demo",
                          std::filesystem::copy_options::recursive);
    flip_weight(folder_.path / "demo/model.safetensors", "transformer.h.3.mlp.c_proj.weight");
    good_.emplace("demo");
    bad_.emplace((folder_.path / "demo").string());
    shown_ = manifest_of(*good_);
    own_ = manifest_of(*bad_);
    EXPECT_NE(shown_, own_);
    front_.emplace([this](http::Server& server) {
      for (const char* path :
           {"/v1/models/{id}", "/v1/models/{id}/files/{file}", "/v1/blobs/sha256/{hex}"}) {
        server.route("GET", path, [this](const http::Request& r) { return good_->real(r); });
      }
      for (const char* path : {"/v1/completions", wire::kAuditPath, "/v1/models/{id}/forward",
                               "/v1/sessions/{id}/forward"}) {
        server.route("POST", path, [this](const http::Request& r) { return computed(r); });
      }
      for (const char* method : {"PUT", "DELETE"}) {
        server.route(method, "/v1/sessions/{id}",
                     [this](const http::Request& r) { return computed(r); });
      }
      cloud::add_routes(server, good_->cloud);
    });
  }
  void flip() { cheats_ = true; }
  const std::string& url() const { return front_->url(); }
  GatedCloud& good() { return *good_; }

 private:
  http::Response computed(http::Request request) {
    if (!cheats_) return good_->real(request);
    request.body = replaced(request.body, shown_, own_);
    http::Response response = bad_->real(request);
    response.body = replaced(response.body, own_, shown_);
    return response;
  }
  TemporaryFolder folder_;
  std::optional<GatedCloud> good_, bad_;
  std::string shown_, own_;
  std::atomic<bool> cheats_{false};
  std::optional<Running> front_;
};

}  // namespace split::test
