// A cloud whose answers do not end: the edge takes what it asked for and no more.
#include <gtest/gtest.h>

#include "edge_client/cloud/cloud_completion.h"
#include "http/sse.h"
#include "support/edge_world.h"

namespace split::test {
namespace {

// Answers every route with the same piece, again and again.
class EndlessCloud {
 public:
  explicit EndlessCloud(std::string piece, const std::string& type = "application/json")
      : running_([&](http::Server& server) {
          const auto answer = [piece = std::move(piece), type](const http::Request&) {
            http::Response response;
            response.content_type = type;
            response.stream = [piece](http::Sink& sink) {
              while (!sink.full()) {
                if (!sink.write(piece)) return http::Streamed::kDone;
              }
              return http::Streamed::kMore;
            };
            return response;
          };
          server.route("GET", "/v1/models", answer);
          server.route("GET", "/v1/models/{id}", answer);
          server.route("GET", "/v1/models/{id}/stages", answer);
          server.route("GET", "/v1/models/{id}/files/{name}", answer);
          server.route("POST", "/v1/models/{id}/forward", answer);
          server.route("POST", "/v1/sessions/{id}/forward", answer);
          server.route("PUT", "/v1/sessions/{id}", answer);
          server.route("POST", "/v1/completions", answer);
        }) {}

  edge::Remote remote() const {
    return edge::Remote(running_.url(), std::chrono::seconds(20), in_process());
  }

 private:
  Running running_;
};

TEST(Endless, AnswersEndAtWhatWasAskedFor) {
  const EndlessCloud cloud(std::string(1 << 16, ' '));
  edge::Remote remote = cloud.remote();
  edge::Traffic traffic;
  const std::vector<int32_t> ids = {1, 2, 3};
  const std::vector<float> hidden(2 * 96);
  const std::pair<std::function<void()>, uint64_t> asked[] = {
      {[&] { remote.models(); }, 1 << 20},
      {[&] { remote.model("m"); }, 8 << 20},
      {[&] { remote.file("m", "config.json"); }, 64 << 20},
      {[&] { remote.stage_times("m"); }, 1 << 20},
      {[&] {
         remote.ask({edge::Send::kOpen, "s", {.range = {.to = 1}}, &traffic}, {"m"});
       },
       1 << 20},
      {[&] {
         const SequenceRows rows{.tokens = ids, .wanted = Wanted::kAll};
         remote.ask({edge::Send::kStep, "s", rows, &traffic}, {.channels = 96});
       },
       3 * 96 * 4 + 65536},
      {[&] {
         const SequenceRows rows{
             .range = {.from = 3}, .hidden = hidden, .width = 96, .wanted = Wanted::kAll};
         remote.ask({edge::Send::kForward, {}, rows, &traffic}, {.id = "m", .vocab = 5000});
       },
       2 * 5000 * 4 + 65536},
      {[&] {
         const SequenceRows rows{
             .range = {.to = Point::norm()}, .tokens = ids, .wanted = Wanted::kAll};
         remote.ask({edge::Send::kForward, {}, rows, &traffic}, {.id = "m", .channels = 96});
       },
       3 * 96 * 4 + 65536},
  };
  for (const auto& [ask, bytes] : asked) {
    try {
      ask();
      ADD_FAILURE() << "no error, expected one at " << bytes;
    } catch (const edge::RemoteError& error) {
      EXPECT_NE(std::string(error.what()).find(cat("the reply is over ", bytes, " bytes")),
                std::string::npos)
          << error.what();
    }
  }
}

// Keeps what complete_on_cloud() makes of six tokens that were asked for, or the error.
struct Answer {
  Generated text;
  std::string error;
};
Answer answer_to(const EndlessCloud& cloud) {
  edge::Remote remote = cloud.remote();
  GenerateOptions options;
  options.max_tokens = 6;
  edge::RetryOptions retry;
  retry.budget = std::chrono::milliseconds(0);
  Interrupt interrupt;
  edge::SplitCounts counts;
  const std::vector<int32_t> prompt = {1, 2, 3};
  wire::ModelInfo model;
  model.id = "m";
  try {
    return {edge::complete_on_cloud(remote, model, nullptr, prompt, options, {}, retry, interrupt,
                                    2, counts),
            ""};
  } catch (const edge::RemoteError& error) {
    return {{}, error.what()};
  }
}

std::string event(const std::string& ids) {
  return http::sse_event(
      cat(R"({"choices":[{"index":0,"text":"spam","finish_reason":null)", ids, "}]}"));
}

TEST(Endless, AnAnswerEndsAtItsTokensWhateverACloudStreams) {
  const EndlessCloud tokens(event(R"(,"token_ids":[7,8,9,10])"), "text/event-stream");
  const Answer got = answer_to(tokens);
  EXPECT_EQ(got.error, "");
  EXPECT_EQ(got.text.tokens, (std::vector<int32_t>{7, 8, 9, 10, 7, 8}));
  EXPECT_EQ(got.text.finish_reason, FinishReason::kLength);

  const EndlessCloud nothing(event(""), "text/event-stream");
  EXPECT_NE(answer_to(nothing).error.find("more than 22 events, for 6 tokens"), std::string::npos)
      << answer_to(nothing).error;
  const EndlessCloud comments(http::sse_comment(std::string(60000, 'x')), "text/event-stream");
  EXPECT_NE(answer_to(comments).error.find("the reply is over"), std::string::npos)
      << answer_to(comments).error;
}

}  // namespace
}  // namespace split::test
