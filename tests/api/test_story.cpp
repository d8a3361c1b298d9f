// The library's examples, as their readers run them: the first word comes from the server, the
// layers land, the server ends, and the text goes on.
#include <gtest/gtest.h>

#include "support/programs.h"

namespace split::test {
namespace {

std::string text_of(const std::string& url, int tokens) {
  const Json body = {
      {"prompt", "The king"}, {"max_tokens", tokens}, {"temperature", 0}, {"ignore_eos", true}};
  const http::Reply reply =
      http::Client(url).request("POST", "/v1/completions", body.dump(), "application/json");
  EXPECT_EQ(reply.status, 200) << reply.body;
  return Json::parse(reply.body)["choices"][0]["text"];
}

// A sanitizer's runtime is a program's own: Python has none.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kPythonLoadsIt = false;
#else
constexpr bool kPythonLoadsIt = true;
#endif

class Story : public testing::TestWithParam<bool> {};

TEST_P(Story, GoesOnWithoutItsServer) {
  if (GetParam() && !kPythonLoadsIt) GTEST_SKIP() << "Python cannot load a sanitizer's library";
  CloudProcess cloud({"--model", cat("demo=", SPLIT_SOURCE_DIR, "/weights/demo")});
  const std::string expected = text_of(cloud.url(), 400);
  // So slow a stream that the layers land before its end.
  Process link(
      {program_path("split_link"), "--to", cat("127.0.0.1:", cloud.port()), "--events-per-s", "5"});
  ASSERT_TRUE(link.until([&] { return link.err().find('\n') != std::string::npos; }));
  const std::string mark = "listening on http://127.0.0.1:";
  ASSERT_TRUE(link.err().starts_with(mark)) << link.err();
  const std::string url = cat("http://127.0.0.1:", std::atoi(link.err().c_str() + mark.size()));
  const Folder cache;
  const std::string story = cat(SPLIT_SOURCE_DIR, "/edge_client/api/examples/story.py");
  const Arguments argv =
      GetParam() ? Arguments{"python3", story, url} : Arguments{program_path("story"), url};
  Process process(
      argv, {cat("XDG_CACHE_HOME=", cache.path.string()), cat("LD_LIBRARY_PATH=", SPLIT_LIBRARY)});
  ASSERT_TRUE(process.until([&] { return process.out().size() > 10; })) << process.err();
  ASSERT_TRUE(process.until([&] {
    return process.err().find("[all layers are here") != std::string::npos;
  })) << process.err();
  cloud.process().signal(SIGKILL);
  EXPECT_EQ(process.wait(), 0) << process.err();
  EXPECT_EQ(process.out(), expected);
}

INSTANTIATE_TEST_SUITE_P(Examples, Story, testing::Bool(),
                         [](const auto& info) { return info.param ? "Python" : "C"; });

TEST(PythonProgram, AsksOneEdgeFromFourThreads) {
  if (!kPythonLoadsIt) GTEST_SKIP() << "Python cannot load a sanitizer's library";
  CloudProcess cloud({"--model", cat("demo=", SPLIT_SOURCE_DIR, "/weights/demo")});
  const Folder cache;
  Process process({"python3", cat(SPLIT_SOURCE_DIR, "/tests/api/four_threads.py"), cloud.url(),
                   cache.path.string()},
                  {cat("LD_LIBRARY_PATH=", SPLIT_LIBRARY)});
  EXPECT_EQ(process.wait(), 0) << process.err();
  EXPECT_EQ(process.out(), text_of(cloud.url(), 32));
}

TEST(StoryWithout, AServerSaysSo) {
  Process process({program_path("story"), "ftp://x"});
  EXPECT_EQ(process.wait(), 2);
  EXPECT_NE(process.err().find("--server: "), std::string::npos) << process.err();
}

}  // namespace
}  // namespace split::test
