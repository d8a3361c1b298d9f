// Tests OpenAI's routes whatever they run on: quiet streams and chat templates.
#include <gtest/gtest.h>

#include "serve/completions.h"
#include "support/edge_server.h"
#include "support/http_peer.h"

namespace split::test {
namespace {

// Says nothing until it is told to.
class Silent : public Forward {
 public:
  explicit Silent(std::atomic<bool>& go) : go_(go) {}
  std::span<const float> run(const SequenceRows&) override {
    while (!go_) std::this_thread::yield();
    return logits_;
  }

 private:
  std::atomic<bool>& go_;
  std::vector<float> logits_ = std::vector<float>(4);
};

TEST(Serve, AQuietStreamIsKeptOpenByComments) {
  ModelConfig config;
  config.vocab = 4;
  config.context = 8;
  std::atomic<bool> go{false};
  Running running([&](http::Server& server) {
    server.route("POST", "/v1/completions", [&](const http::Request& request) {
      return serve::completions(request, [&](const std::string&) {
        serve::TextModel model = serve::local_backend(
            "m", config, nullptr,
            [&](size_t, const GenerateOptions&) { return std::make_unique<Silent>(go); });
        model.quiet = std::chrono::milliseconds(1);
        return model;
      });
    });
  });
  http::Peer peer(running.port());
  const std::string body = R"({"prompt":[1],"max_tokens":2,"stream":true})";
  peer.say(cat("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: ", body.size(),
               "\r\n\r\n", body));
  std::string quiet = peer.until(": working\n\n");
  quiet += peer.until(": working\n\n");
  EXPECT_TRUE(quiet.ends_with(": working\n\n")) << quiet;
  EXPECT_EQ(quiet.find("data:"), std::string::npos) << quiet;
  go = true;
  EXPECT_NE(peer.until("[DONE]").find("data: {"), std::string::npos);
}

}  // namespace
}  // namespace split::test
