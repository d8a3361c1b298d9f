// Any request to a cloud with a small model, over loopback: "METHOD
// PATH?QUERY\nCONTENT-TYPE\nBODY". The answer is never a 500, and an error is JSON in OpenAI's
// shape.
#include <nlohmann/json.hpp>
#include <thread>

#include "cloud_server/routes/routes.h"
#include "fuzz.h"
#include "http/client.h"

using namespace split;  // NOLINT(google-build-using-namespace): a program of its own

namespace {

struct World {
  World() {
    cloud::ModelOptions options;
    options.id = "m";
    options.path = SPLIT_SOURCE_DIR "/tests/golden/rand-a";
    options.device = "cpu";
    options.threads = 1;
    options.kv_budget = 8 << 20;
    cloud.models.push_back(std::make_unique<cloud::ServedModel>(options));
    cloud.legacy_routes = true;
    cloud.ready = true;
    cloud::add_routes(server, cloud);
    const int port = server.bind();
    thread = std::thread([this] { server.run(); });
    client.emplace(cat("http://127.0.0.1:", port));
  }
  ~World() {
    client.reset();
    server.stop();
    thread.join();
  }
  cloud::Cloud cloud;
  http::Server server{http::Server::Options{}};
  std::thread thread;
  std::optional<http::Client> client;
};

std::string_view take_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.size(), line.size() + 1));
  return line;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static World world;
  std::string_view text = fuzz::text_of(data, size);
  const std::string_view line = take_line(text), type = take_line(text);
  const size_t space = std::min(line.find(' '), line.size());
  const std::string method(line.substr(0, space)),
      path(line.substr(std::min(space + 1, line.size())));
  if (method != "GET" && method != "POST" && method != "PUT" && method != "DELETE") return 0;
  http::Reply reply;
  try {
    reply = world.client->request(method, path, std::string(method == "GET" ? "" : text), type, {});
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kInput);  // nothing that can be sent
    return 0;
  }
  CHECK(reply.status >= 200 && reply.status != 500);
  if (reply.status >= 400) {
    const auto json = nlohmann::json::parse(reply.body);
    CHECK(json.at("error").at("message").is_string() && json.at("error").at("type").is_string());
  }
  return 0;
}
