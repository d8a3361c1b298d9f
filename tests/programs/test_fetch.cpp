// scripts/fetch_gpt2.sh against a hub in this process that answers as the real one does: small
// files at once, large ones by a redirect to another path, with their size and sha256 on the
// redirect.
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>

#include "support/http_peer.h"
#include "support/programs.h"

namespace split {
namespace {

namespace fs = std::filesystem;
using http::Request;
using http::Response;
using test::Arguments;
using test::Folder;
using test::Process;

const std::string kScript = std::string(SPLIT_SOURCE_DIR) + "/scripts/fetch_gpt2.sh";

// A hub with one repository: its files, the requests it got, and how it misbehaves.
struct Hub {
  explicit Hub(std::string repo)
      : repo(std::move(repo)), running({}, [this](http::Server& server) {
          server.route("GET", "/{org}/{name}/resolve/main/{file}",
                       [this](const Request& request) { return resolve(request); });
          server.route("GET", "/cdn/{file}",
                       [this](const Request& request) { return cdn(request); });
          server.route("GET", "/moved/{file}",
                       [this](const Request& request) { return moved(request); });
        }) {}

  Response resolve(const Request& request) {
    const std::string& file = request.path_params[2];
    if (request.path_params[0] + "/" + request.path_params[1] != repo || files.count(file) == 0) {
      return Response::text(404, "Entry not found");
    }
    if (file != "model.safetensors") return sent(file, request);
    const std::string& data = files.at(file);
    Response response = Response::text(302, "Found");
    response.headers.set("Location", "/moved/" + file);  // relative, as for a renamed repository
    response.headers.set("X-Linked-Size", cat(data.size() + size_lie));
    response.headers.set(
        "X-Linked-ETag",
        cat("\"", hash_lie.empty() ? Sha256::hex_of(as_bytes_of(data)) : hash_lie, "\""));
    return response;
  }
  Response moved(const Request& request) {
    Response response = Response::text(307, "");
    response.headers.set("Location", cat(running.url(), "/cdn/", request.path_params[0], "?sig=1"));
    return response;
  }
  Response cdn(const Request& request) {
    if (refusals > 0) {
      --refusals;
      return Response::text(503, "later");
    }
    return sent(request.path_params[0], request);
  }
  Response sent(const std::string& file, const Request& request) {
    ++answers;
    ranges += std::string(request.headers.get("Range").value_or("")) + ";";
    const std::string& data = files.at(file);
    if (!honours_range) return Response::text(200, data);
    return Response::bytes({as_bytes_of(data)}, nullptr, "application/octet-stream", "\"x\"");
  }

  std::string repo;
  std::map<std::string, std::string> files = {{"config.json", R"({"model_type":"gpt2"})"},
                                              {"vocab.json", R"({"a":0})"},
                                              {"merges.txt", "#version: 0.2\n"},
                                              {"model.safetensors", std::string(300'000, 'w')}};
  uint64_t size_lie = 0;
  std::string hash_lie;
  bool honours_range = true;
  std::atomic<int> refusals{0}, answers{0};
  std::string ranges;  // "bytes=5-;" for each answer
  http::Running running;
};

struct Fetched {
  int code;
  std::string out, err;
};

class FetchGpt2 : public testing::Test {
 protected:
  FetchGpt2() {
    for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<char>(i * i >> 7);
    hub.files["model.safetensors"] = weights;
  }

  // HF_HOME is this test's; the mirror is the flag, or $HF_ENDPOINT with "".
  Fetched fetch(const std::string& name, const std::string& mirror,
                const std::string& endpoint = {}) {
    Arguments argv = {kScript, name, "--out", out.string()};
    if (!mirror.empty()) argv.insert(argv.end(), {"--mirror", mirror});
    Process process(argv, {"HF_HUB_CACHE=", cat("HF_HOME=", home.path.string()),
                           cat("HF_ENDPOINT=", endpoint), "no_proxy=*"});
    const int code = process.wait();
    return {code, process.out(), process.err()};
  }
  Fetched fetch() { return fetch("gpt2", hub.running.url()); }
  std::string got(const std::string& file) const { return read_file(out / file, 1 << 20); }
  void write(const fs::path& path, std::string_view text) {
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
  }
  // All there, and nothing else.
  void expect_whole() const {
    size_t count = 0;
    for (const auto& entry : fs::directory_iterator(out)) {
      ++count;
      EXPECT_EQ(got(entry.path().filename()), hub.files.at(entry.path().filename()))
          << entry.path();
    }
    EXPECT_EQ(count, hub.files.size());
  }

  Folder home;
  fs::path out = home.path / "out";
  std::string weights = std::string(300'000, 0);
  Hub hub{"openai-community/gpt2"};
};

TEST_F(FetchGpt2, FetchesByRedirectsAndTellsHowToServe) {
  const Fetched result = fetch();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, cat("Serve it with: build/bin/cloud_server --model ", out.string(), "\n"));
  expect_whole();
  EXPECT_EQ(hub.ranges, ";;;;");
  // Again: nothing is asked for.
  EXPECT_EQ(fetch().code, 0);
  EXPECT_EQ(hub.answers, 4);
}

TEST_F(FetchGpt2, KnowsWhoPublishesEachModelAndTheEndpoint) {
  for (const auto& [name, repo] :
       std::map<std::string, std::string>{{"gpt2-medium", "openai-community/gpt2-medium"},
                                          {"gpt2-large", "openai-community/gpt2-large"},
                                          {"gpt2-xl", "openai-community/gpt2-xl"},
                                          {"distilgpt2", "distilbert/distilgpt2"}}) {
    hub.repo = repo;
    fs::remove_all(out);
    const Fetched result = fetch(name, "", hub.running.url() + "/");
    EXPECT_EQ(result.code, 0) << result.err;
    expect_whole();
  }
}

TEST_F(FetchGpt2, GoesOnWhereItStopped) {
  write(out / "model.safetensors.part", weights.substr(0, 100'000));
  EXPECT_EQ(fetch().code, 0);
  EXPECT_EQ(hub.ranges, ";;;bytes=100000-;");
  expect_whole();
}

TEST_F(FetchGpt2, TakesAWholePartForWhatItIs) {
  write(out / "model.safetensors.part", weights);
  EXPECT_EQ(fetch().code, 0);
  expect_whole();
  EXPECT_EQ(hub.ranges, ";;;bytes=300000-;");  // answered by 416
}

TEST_F(FetchGpt2, StartsAgainWhereGoingOnIsImpossible) {
  write(out / "model.safetensors.part", std::string(100'000, 'x'));  // of another model
  EXPECT_EQ(fetch().code, 0);
  expect_whole();
  fs::remove_all(out);
  write(out / "model.safetensors.part", weights + "and more");
  EXPECT_EQ(fetch().code, 0);
  expect_whole();
  fs::remove_all(out);
  hub.honours_range = false;
  write(out / "model.safetensors.part", weights.substr(0, 100'000));
  const Fetched result = fetch();
  EXPECT_EQ(result.code, 0) << result.err;
  expect_whole();
}

TEST_F(FetchGpt2, TriesAgainWhenTheServerIsBusy) {
  hub.refusals = 1;
  const Fetched result = fetch();
  EXPECT_EQ(result.code, 0) << result.err;
  expect_whole();
}

// A server that says 300,000 bytes, sends some of them and closes, twice; then the rest.
TEST_F(FetchGpt2, GoesOnAfterACutConnection) {
  hub.files.erase("model.safetensors");
  http::Server::Options options;
  std::atomic<int> asked{0};
  http::Running cutting(options, [&](http::Server& server) {
    server.route("GET", "/{org}/{name}/resolve/main/{file}", [&](const Request& request) {
      const std::string& file = request.path_params[2];
      if (file != "model.safetensors") return hub.resolve(request);
      const std::string range(request.headers.get("Range").value_or("bytes=0-"));
      const size_t from = std::stoul(range.substr(6));
      const bool last = ++asked == 3;
      Response response;
      response.status = from == 0 ? 200 : 206;
      if (from > 0) response.headers.set("Content-Range", cat("bytes ", from, "-299999/300000"));
      response.stream = [this, from, last](http::Sink& sink) {
        sink.write(std::string_view(weights).substr(from, last ? std::string::npos : 100'000));
        if (!last) throw Error(ErrorKind::kIo, "the connection is cut");
        return http::Streamed::kDone;
      };
      return response;
    });
  });
  const Fetched result = fetch("gpt2", cutting.url());
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(asked, 3);
  EXPECT_EQ(got("model.safetensors"), weights);
}

TEST_F(FetchGpt2, RefusesAWrongSizeOrHash) {
  hub.hash_lie = std::string(64, '0');
  Fetched result = fetch();
  EXPECT_EQ(result.code, 1);
  EXPECT_TRUE(result.err.ends_with(
      cat("fetch_gpt2.sh: model.safetensors: its sha256 is not ", hub.hash_lie, "\n")))
      << result.err;
  EXPECT_FALSE(fs::exists(out / "model.safetensors"));
  EXPECT_FALSE(fs::exists(out / "model.safetensors.part"));
  hub.size_lie = 1;
  result = fetch();
  EXPECT_EQ(result.code, 1);
  EXPECT_TRUE(result.err.ends_with("model.safetensors: 300000 bytes, expected 300001\n"))
      << result.err;
  EXPECT_FALSE(fs::exists(out / "model.safetensors"));
}

TEST_F(FetchGpt2, LinksWhatTheCacheHas) {
  const fs::path cached = home.path / "hub/models--openai-community--gpt2";
  const fs::path snapshot = cached / "snapshots/607a30d783dfa663caf39e06633721c8d4cfcd7e";
  write(cached / "refs/main", "607a30d783dfa663caf39e06633721c8d4cfcd7e");
  write(cached / "snapshots/0123/config.json", "of another revision");
  const std::string hash = Sha256::hex_of(as_bytes_of(weights));
  write(cached / "blobs" / hash, weights);
  write(snapshot / "config.json", hub.files["config.json"]);
  write(snapshot / "vocab.json", hub.files["vocab.json"]);
  fs::create_symlink(cat("../../blobs/", hash), snapshot / "model.safetensors");
  EXPECT_EQ(fetch().code, 0);
  expect_whole();
  EXPECT_EQ(hub.answers, 1);  // merges.txt
  EXPECT_EQ(fs::read_symlink(out / "model.safetensors"), fs::canonical(cached / "blobs" / hash));

  // Whole, without any network.
  write(snapshot / "merges.txt", hub.files["merges.txt"]);
  fs::remove_all(out);
  Fetched result = fetch("gpt2", "http://127.0.0.1:1");
  EXPECT_EQ(result.code, 0) << result.err;
  expect_whole();

  // A damaged blob is not taken; a link whose cache went away is replaced.
  write(cached / "blobs" / hash, cat("x", weights.substr(1)));
  fs::remove(out / "model.safetensors");
  result = fetch();
  EXPECT_EQ(result.code, 0);
  EXPECT_NE(result.err.find("is damaged"), std::string::npos);
  fs::remove_all(cached);
  EXPECT_EQ(fetch().code, 0);
  expect_whole();
}

TEST_F(FetchGpt2, ErrorsAreOneLine) {
  const auto refused = [&](const Arguments& arguments, int code, const std::string& part) {
    Arguments argv = {kScript};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    Process process(argv, {cat("HF_HOME=", home.path.string())});
    EXPECT_EQ(process.wait(), code) << part;
    EXPECT_NE(process.err().find(part), std::string::npos) << process.err();
    EXPECT_EQ(std::count(process.err().begin(), process.err().end(), '\n'), 1) << process.err();
  };
  refused({}, 2, "which model?; usage: fetch_gpt2.sh gpt2|");
  refused({"gpt3"}, 2, "unknown argument 'gpt3'");
  refused({"gpt2", "distilgpt2"}, 2, "one model at a time");
  refused({"gpt2", "--mirror"}, 2, "--mirror needs a value");
  refused({"gpt2", "--mirror", "ftp://x"}, 2, "--mirror: expected http://");
  refused({"gpt2", "--out", "/proc/nowhere"}, 1, "/proc/nowhere");
  hub.files.erase("merges.txt");
  const Fetched result = fetch();
  EXPECT_EQ(result.code, 1);
  EXPECT_TRUE(result.err.ends_with("openai-community/gpt2 has no merges.txt\n")) << result.err;
}

}  // namespace
}  // namespace split
