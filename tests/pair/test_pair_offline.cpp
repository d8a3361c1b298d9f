// A start without any server: a model whose weights are all here, as its server last described it.
#include <fcntl.h>
#include <sys/stat.h>

#include <fstream>

#include "pair_faults.h"

namespace split::test {
namespace {

constexpr std::string_view kSeen = " does not answer: 'demo' is as last seen there, on 20";

class Offline : public Pair {
 protected:
  Arguments text(const Arguments& extra = {}) const {
    return long_text(Arguments{"--cut", "0", "--retry-for", "0"} + extra, 40);
  }
  EdgeResult start(const Arguments& extra = {}) {
    return run_edge(cloud_.url(), home_, text(extra));
  }
  // The one in `path` has another byte in its middle.
  static void flip(const fs::path& path) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    const auto at = static_cast<std::streamoff>(fs::file_size(path) / 2);
    file.seekg(at);
    const int byte = file.get();
    file.seekp(at);
    file.put(static_cast<char>(byte ^ 1));
  }
};

TEST_F(Offline, CutZeroGivesTheSameTextWithoutAServer) {
  const EdgeResult calm = start();
  ASSERT_EQ(calm.code, 0) << calm.err;
  EXPECT_EQ(calm.err.find("last seen"), std::string::npos) << calm.err;
  cloud_.process().kill();
  const Arguments format = {"--format", "q8_0"};
  for (const Arguments& extra : {Arguments{}, {"--model", "demo"}, {"--json"}}) {
    const EdgeResult alone = start(extra);
    ASSERT_EQ(alone.code, 0) << alone.err;
    EXPECT_NE(alone.err.find(cat(cloud_.url(), kSeen)), std::string::npos) << alone.err;
    EXPECT_EQ(alone.json.is_null() ? alone.out : alone.text(), calm.out);
  }
  EXPECT_EQ(start({"--quiet"}).err, "");
  // A model that was never seen, and a text that needs the cloud.
  expect_refusal(start(format), 3, "is cloud_server running there?");
  expect_refusal(start({"--model", "other"}), 3, "is cloud_server running there?");
  for (const char* cut : {"1", "cloud"}) {
    expect_refusal(run_edge(cloud_.url(), home_, long_text({"--cut", cut, "--retry-for", "0"})), 3,
                   "is cloud_server running there?");
  }
  expect_refusal(start({"--head", "cloud"}), 3, "is cloud_server running there?");
  expect_refusal(start({"--plan"}), 3, "is cloud_server running there?");
  // Another server's model is another model.
  CloudProcess other(kOnCpu);
  other.process().kill();
  expect_refusal(run_edge(other.url(), home_, text()), 3, "is cloud_server running there?");
  // A server that is there again is asked.
  cloud_.again();
  const EdgeResult again = start();
  EXPECT_EQ(again.out, calm.out);
  EXPECT_EQ(again.err.find("last seen"), std::string::npos) << again.err;
}

TEST_F(Offline, StatesNeedNoServerEither) {
  const Arguments arguments = {"--cut", "0", "--embed", "--prompt", kPrompt};
  const EdgeResult calm = run(arguments);
  ASSERT_EQ(calm.code, 0) << calm.err;
  cloud_.process().kill();
  const EdgeResult alone = run(arguments);
  EXPECT_EQ(alone.code, 0) << alone.err;
  EXPECT_EQ(alone.out, calm.out);
}

TEST_F(Offline, NoFileIsUsedThatIsNotAsItWas) {
  const EdgeResult calm = start();
  ASSERT_EQ(calm.code, 0) << calm.err;
  cloud_.process().kill();
  size_t records = 0;
  for (const fs::path& file : blobs()) {
    const fs::path copy = home_.path / "copy";
    fs::rename(file, copy);
    for (const bool gone : {false, true}) {
      if (!gone) {
        fs::copy_file(copy, file);
        flip(file);
      }
      const bool record = file.parent_path().filename() == "seen";
      records += record && gone ? 1 : 0;
      const EdgeResult got = start();
      // The one record that this start does not need is of the model's own name.
      if (record && got.code == 0) {
        EXPECT_EQ(got.out, calm.out);
        EXPECT_EQ(start({"--model", "demo"}).code, 3) << file;
      } else {
        EXPECT_EQ(got.code, 3) << file << got.err;
        EXPECT_EQ(got.out, "") << file;
        EXPECT_NE(got.err.find(cloud_.url()), std::string::npos) << got.err;
      }
      fs::remove(file);
      fs::remove(file.string() + ".part");
    }
    fs::rename(copy, file);
  }
  EXPECT_EQ(records, 2u);
  EXPECT_EQ(start().out, calm.out);
}

// A tokenizer's file that could be one, and is not the model's.
TEST_F(Offline, AnotherTokenizerIsNotUsed) {
  ASSERT_EQ(start().code, 0);
  cloud_.process().kill();
  size_t changed = 0;
  for (const fs::path& file : blobs()) {
    std::string text = fs::file_size(file) < (1 << 20) ? read_file(file, 1 << 20) : "";
    if (text.find("\"merges\"") == text.npos) continue;
    text += ' ';
    write_file(file, std::as_bytes(std::span(text)));
    ++changed;
  }
  EXPECT_EQ(changed, 1u);
  expect_refusal(start(), 3, "tokenizer.json");
}

TEST_F(Offline, WhatIsNoFileIsExitFour) {
  ASSERT_EQ(start().code, 0);
  cloud_.process().kill();
  for (const fs::path& file : blobs()) {
    if (file.parent_path().filename() != "seen") continue;
    const fs::path copy = home_.path / "copy";
    fs::rename(file, copy);
    ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
    const EdgeResult fifo = start(), fifo_too = start({"--model", "demo"});
    EXPECT_TRUE(fifo.code == 4 || fifo_too.code == 4) << fifo.err << fifo_too.err;
    fs::remove(file);
    fs::create_symlink(copy, file);
    const EdgeResult link = start(), link_too = start({"--model", "demo"});
    EXPECT_TRUE(link.code == 4 || link_too.code == 4) << link.err << link_too.err;
    fs::remove(file);
    fs::rename(copy, file);
  }
}

TEST_F(Offline, AServersChangedModelWins) {
  const Arguments arguments = {
      "--cut",        "0", "--json",       "--prompt-ids", "1,2,3", "--seed", "1",
      "--max-tokens", "8", "--ignore-eos", "--model",      "demo"};
  const EdgeResult before = run(arguments);
  ASSERT_EQ(before.code, 0) << before.err;
  cloud_.process().kill();
  Process other({program_path("cloud_server"), "--port", cat(cloud_.port()), "--model",
                 cat("demo=", SPLIT_SOURCE_DIR, "/tests/golden/rand-a"), "--device", "cpu"});
  ASSERT_TRUE(other.until(
      [&] { return other.err().find("listening on http://127.0.0.1:") != std::string::npos; }));
  const EdgeResult changed = run(arguments);
  ASSERT_EQ(changed.code, 0) << changed.err;
  EXPECT_NE(changed.tokens(), before.tokens());
  EXPECT_EQ(changed.err.find("last seen"), std::string::npos) << changed.err;
  other.kill();
  // And it is the one that was seen last.
  const EdgeResult alone = run(arguments);
  ASSERT_EQ(alone.code, 0) << alone.err;
  EXPECT_EQ(alone.tokens(), changed.tokens());
}

// An edge that serves.
class Serving {
 public:
  Serving(const std::string& url, const Folder& home) : Serving(url, home, {"--cut", "0"}) {}
  Serving(const std::string& url, const Folder& home, const Arguments& more)
      : process_(edge_command(url, kOnCpu + Arguments{"--serve", "127.0.0.1:0"} + more),
                 {cat("XDG_CACHE_HOME=", home.path.string())}) {
    const std::string mark = "listening on ";
    CHECK(process_.until([&] { return process_.err().find(" ready\n") != std::string::npos; }));
    const size_t at = process_.err().find(mark) + mark.size();
    client_.emplace(process_.err().substr(at, process_.err().find(' ', at) - at));
  }
  static std::string text_of(const std::string& url) {
    const http::Reply reply = http::Client(url).request(
        "POST", "/v1/completions", R"({"prompt":"The king","seed":3,"max_tokens":20})",
        "application/json", {}, 1 << 20);
    return Json::parse(reply.body).at("choices")[0].at("text");
  }
  std::string text() { return text_of(url()); }
  std::string url() const { return client_->origin(); }
  int put_cut(int cut) {
    return client_
        ->request("PUT", "/split/cut", cat("{\"cut\":", cut, "}"), "application/json", {}, 1 << 20)
        .status;
  }
  const std::string& err() const { return process_.err(); }
  Json cloud() {  // of its status
    return Json::parse(client_->request("GET", "/split/status").body).at("server");
  }
  bool says(const std::string& part) {
    return process_.until([&] { return process_.err().find(part) != std::string::npos; });
  }

 private:
  Process process_;
  std::optional<http::Client> client_;
};

// Tells it in the log and to the page; the text ends as it began.
TEST_F(Offline, AnEdgeThatServesCountsTheSecondsWithoutItsCloud) {
  Serving edge(cloud_.url(), home_, {"--cut", "4"});
  EXPECT_TRUE(edge.cloud().at("lost_s").is_null());
  const std::string calm = edge.text();
  cloud_.process().kill();
  std::string text;
  std::thread asks([&] { text = Serving::text_of(edge.url()); });
  const std::string waiting = cat("waiting for the cloud at ", cloud_.url());
  EXPECT_TRUE(edge.says(waiting)) << edge.err();
  const Json lost = edge.cloud();
  EXPECT_FALSE(lost.at("reachable").get<bool>());
  EXPECT_GE(lost.at("lost_s").get<double>(), 0.3);  // as long as a wait is not told
  cloud_.again();
  asks.join();
  EXPECT_EQ(text, calm);
  EXPECT_TRUE(edge.says("the cloud answers, after ")) << edge.err();
  Json found;
  do found = edge.cloud();
  while (!found.at("reachable").get<bool>());  // looked at once a second
  EXPECT_TRUE(found.at("lost_s").is_null()) << found.dump();
}

// A service is often started before its cloud.
TEST_F(Offline, AnEdgeThatServesWaitsForACloudThatStartsLater) {
  cloud_.process().kill();
  Process edge(
      edge_command(cloud_.url(), kOnCpu + Arguments{"--cut", "4", "--serve", "127.0.0.1:0"}),
      {cat("XDG_CACHE_HOME=", home_.path.string())});
  const auto says = [&](const std::string& part) {
    return edge.until([&] { return edge.err().find(part) != std::string::npos; });
  };
  EXPECT_TRUE(says(cat("waiting for the cloud at ", cloud_.url(), " (Ctrl-C stops)\n")))
      << edge.err();
  cloud_.again();
  EXPECT_TRUE(says(" ready\n")) << edge.err();
}

TEST_F(Offline, AnEdgeThatServesStartsToo) {
  std::string calm;
  {
    Serving edge(cloud_.url(), home_);
    calm = edge.text();
    EXPECT_EQ(edge.err().find("last seen"), std::string::npos) << edge.err();
  }
  cloud_.process().kill();
  Serving edge(cloud_.url(), home_);
  EXPECT_NE(edge.err().find(cat(cloud_.url(), kSeen)), std::string::npos) << edge.err();
  EXPECT_EQ(edge.text(), calm);
  // The cloud is there again, and the cut moves as ever.
  cloud_.again();
  EXPECT_EQ(edge.put_cut(6), 200);
  EXPECT_EQ(edge.text(), calm);
  EXPECT_EQ(edge.put_cut(0), 200);
  EXPECT_EQ(edge.text(), calm);
}

}  // namespace
}  // namespace split::test
