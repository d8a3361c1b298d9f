// From an earlier server's answers, but for its files' hashes, this edge writes the earlier edge's
// text, and asks for nothing else than that did.
#include <gtest/gtest.h>

#include <mutex>

#include "support/edge_world.h"
#include "support/exchanges.h"

namespace split::test {
namespace {

std::string target_of(const http::Request& request) {
  std::string path = std::regex_replace(request.path, std::regex("(/sessions/)[0-9a-f]{32}"),
                                        "$01" + std::string(32, '0'));
  for (size_t i = 0; i < request.query_params.size(); ++i) {
    const auto& [name, value] = request.query_params[i];
    path += cat(i == 0 ? "?" : "&", name, "=", value);
  }
  return path;
}

// Gives each recorded answer once, to the request that it answered; what is known by its name or
// hash, files and blobs, comes from a server of today.
class RecordedCloud {
 public:
  RecordedCloud(const std::string& model, const Json& exchanges)
      : today_(model),
        left_(exchanges.begin(), exchanges.end()),
        server_([this](http::Server& server) {
          const std::pair<const char*, const char*> routes[] = {
              {"GET", "/v1/models"},          {"GET", "/v1/models/{id}"},
              {"PUT", "/v1/sessions/{id}"},   {"POST", "/v1/sessions/{id}/forward"},
              {"POST", "/v1/completions"},    {"POST", "/v1/models/{id}/forward"},
              {"DELETE", "/v1/sessions/{id}"}};
          for (const auto& [method, path] : routes) {
            server.route(method, path, [this](const http::Request& r) { return answer(r); });
          }
          for (const char* path : {"/v1/models/{id}/files/{file}", "/v1/blobs/sha256/{hex}"}) {
            server.route("GET", path, [this](const http::Request& r) { return today_.real(r); });
          }
        }) {
    std::erase_if(left_, [](const Json& exchange) { return exchange.value("aside", false); });
  }
  const std::string& url() const { return server_.url(); }
  // Returns the exchanges that were not asked for again, less goodbyes: nobody waits for these.
  std::vector<Json> left() {
    const std::lock_guard lock(mutex_);
    std::vector<Json> left = left_;
    std::erase_if(left, [](const Json& one) { return one["request"]["method"] == "DELETE"; });
    return left;
  }

 private:
  http::Response answer(const http::Request& request) {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < left_.size(); ++i) {
      const Json exchange = left_[i];
      const Json& asked = exchange["request"];
      if (asked["method"] != request.method || asked["path"] != target_of(request) ||
          recorded_body(asked) != request.body ||
          asked.value("Accept", "") != request.headers.get("Accept").value_or("")) {
        continue;
      }
      left_.erase(left_.begin() + static_cast<ptrdiff_t>(i));
      http::Response response;
      response.status = exchange["status"];
      for (const auto& [name, value] : exchange["headers"].items()) {
        if (name == "Content-Type") {
          response.content_type = value;
        } else {
          response.headers.set(name, value.get<std::string>());
        }
      }
      response.body = recorded_body(exchange);
      // An earlier server named no hashes of its files, without which the edge takes none.
      const std::string& path = request.path;
      if (path.starts_with("/v1/models/") && std::ranges::count(path, '/') == 3) {
        Json described = Json::parse(response.body);
        described["files"] = Json::parse(today_.real(request).body)["files"];
        response.body = described.dump();
      }
      return response;
    }
    ADD_FAILURE() << "never asked before: " << request.method << " " << target_of(request) << " "
                  << request.body.substr(0, 300);
    return http::Response::text(400, "never asked before");
  }

  GatedCloud today_;
  std::mutex mutex_;
  std::vector<Json> left_;
  Running server_;
};

TEST(EdgeExchanges, RecordedEarlierGiveTheSameTexts) {
  const TemporaryFolder cache;
  for (const char* name : {"edge-cut", "edge-head", "edge-embed", "edge-cloud"}) {
    const Json file = recorded(name);
    const auto said = file["arguments"].get<std::vector<std::string>>();
    RecordedCloud cloud(said[0] == "--model=demo" ? "demo" : "rand-a", file["exchanges"]);
    std::vector<std::string> arguments = {"--server=" + cloud.url(), "--device=cpu", "--draft=off",
                                          "--json", "--cache=" + cache.path.string()};
    arguments.insert(arguments.end(), said.begin(), said.end());
    // A text that may leave the cloud is on a session; the earlier ones waited for it.
    if (name == std::string("edge-cloud")) arguments.push_back("--stay");
    const Outcome outcome = run_edge(arguments);
    ASSERT_EQ(outcome.code, 0) << name << outcome.err;
    const Json result = outcome.json();
    for (const auto& [key, value] : file["result"].items()) {
      EXPECT_EQ(result.value(key, Json()), value) << name << key;
    }
    EXPECT_EQ(cloud.left(), std::vector<Json>()) << name;
  }
}

}  // namespace
}  // namespace split::test
