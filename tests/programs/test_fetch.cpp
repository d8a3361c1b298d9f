// scripts/fetch_model.sh against a hub in this process that answers as the real one does: small
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

const std::string kScript = std::string(SPLIT_SOURCE_DIR) + "/scripts/fetch_model.sh";

// A hub with one repository: its files, the requests it got, and how it misbehaves.
struct Hub {
  explicit Hub(std::string repo)
      : repo(std::move(repo)), running({}, [this](http::Server& server) {
          server.route("GET", "/{org}/{name}/resolve/main/{file}",
                       [this](const Request& request) { return resolve(request); });
          server.route("GET", "/{org}/{name}/resolve/main/{folder}/{file}",
                       [this](Request request) {
                         request.path_params[2] += "/" + request.path_params[3];
                         return resolve(request);
                       });
          server.route("GET", "/cdn/{file}",
                       [this](const Request& request) { return cdn(request); });
          server.route("GET", "/moved/{file}",
                       [this](const Request& request) { return moved(request); });
        }) {}

  Response resolve(const Request& request) {
    if (!token.empty() && request.headers.get("Authorization") != "Bearer " + token) {
      return Response::text(401, "Access to this model is restricted");
    }
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
    response.headers.set("Location", cat("http://", store, ":", running.port, "/cdn/",
                                         request.path_params[0], "?sig=1"));
    return response;
  }
  Response cdn(const Request& request) {
    told += request.headers.count("Authorization");
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
  std::string store = "127.0.0.1";  // where large files are
  std::string token;                // that the repository asks for
  std::atomic<size_t> told{0};      // times that the store of large files was told one
  bool honours_range = true;
  std::atomic<int> refusals{0}, answers{0};
  std::string ranges;  // "bytes=5-;" for each answer
  http::Running running;
};

struct Fetched {
  int code;
  std::string out, err;
};

class FetchModel : public testing::Test {
 protected:
  FetchModel() {
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

TEST_F(FetchModel, FetchesByRedirectsAndTellsHowToServe) {
  const Fetched result = fetch();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, cat("Serve it with: build/bin/cloud_server --model ", out.string(), "\n"));
  expect_whole();
  EXPECT_EQ(hub.ranges, ";;;;");
  // Again: nothing is asked for.
  EXPECT_EQ(fetch().code, 0);
  EXPECT_EQ(hub.answers, 4);
}

TEST_F(FetchModel, KnowsWhoPublishesEachModelAndTheEndpoint) {
  std::map<std::string, std::string> models = {{"gpt2-xl", "openai-community/gpt2-xl"},
                                               {"distilgpt2", "distilbert/distilgpt2"}};
  if (std::getenv("SPLIT_LONG") != nullptr) {
    models["gpt2-medium"] = "openai-community/gpt2-medium";
    models["gpt2-large"] = "openai-community/gpt2-large";
  }
  for (const auto& [name, repo] : models) {
    hub.repo = repo;
    fs::remove_all(out);
    const Fetched result = fetch(name, "", hub.running.url() + "/");
    EXPECT_EQ(result.code, 0) << result.err;
    expect_whole();
  }
}

TEST_F(FetchModel, GoesOnWhereItStopped) {
  write(out / "model.safetensors.part", weights.substr(0, 100'000));
  EXPECT_EQ(fetch().code, 0);
  EXPECT_EQ(hub.ranges, ";;;bytes=100000-;");
  expect_whole();
}

TEST_F(FetchModel, TakesAWholePartForWhatItIs) {
  write(out / "model.safetensors.part", weights);
  EXPECT_EQ(fetch().code, 0);
  expect_whole();
  EXPECT_EQ(hub.ranges, ";;;bytes=300000-;");  // answered by 416
}

TEST_F(FetchModel, StartsAgainWhereGoingOnIsImpossible) {
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

TEST_F(FetchModel, TriesAgainWhenTheServerIsBusy) {
  hub.refusals = 1;
  const Fetched result = fetch();
  EXPECT_EQ(result.code, 0) << result.err;
  expect_whole();
}

// A server that says 300,000 bytes, sends some of them and closes, twice; then the rest.
TEST_F(FetchModel, GoesOnAfterACutConnection) {
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

TEST_F(FetchModel, RefusesAWrongSizeOrHash) {
  hub.hash_lie = std::string(64, '0');
  Fetched result = fetch();
  EXPECT_EQ(result.code, 1);
  EXPECT_TRUE(result.err.ends_with(
      cat("fetch_model.sh: model.safetensors: its sha256 is not ", hub.hash_lie, "\n")))
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

TEST_F(FetchModel, LinksWhatTheCacheHas) {
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

// An encoder's modules, weights in pieces, and nothing that is not on the list.
TEST_F(FetchModel, FetchesModulesAndPiecesAndNothingElse) {
  hub.repo = "sentence-transformers/all-MiniLM-L6-v2";
  hub.files.erase("model.safetensors");
  hub.files.erase("merges.txt");
  hub.files.erase("vocab.json");
  hub.files["vocab.txt"] = "[PAD]\n";
  hub.files["modules.json"] =
      "[\n  {\"idx\": 0, \"path\": \"\"},\n  {\"idx\": 1, \"path\": \"1_Pooling\"},\n"
      "  {\"idx\": 2, \"path\": \"2_Dense\"},\n  {\"path\": \"../evil\"}]\n";
  hub.files["1_Pooling/config.json"] = R"({"pooling_mode_mean_tokens":true})";
  hub.files["2_Dense/config.json"] = "{}";
  hub.files["2_Dense/model.safetensors"] = "dense";
  hub.files["model.safetensors.index.json"] =
      R"({"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}})";
  for (const char* piece :
       {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}) {
    hub.files[piece] = std::string("piece ") + piece;
  }
  const auto expected = hub.files;
  for (const char* other : {"README.md", "pytorch_model.bin", "model.onnx", "run.py"}) {
    hub.files[other] = "not wanted";
  }
  const Fetched result = fetch("all-minilm-l6-v2", hub.running.url());
  EXPECT_EQ(result.code, 0) << result.err;
  std::map<std::string, std::string> there;
  for (const auto& entry : fs::recursive_directory_iterator(out)) {
    if (!entry.is_directory()) {
      const std::string name = fs::relative(entry.path(), out).string();
      there[name] = got(name);
    }
  }
  EXPECT_EQ(there, expected);
}

// A repository by its own name, which asks for a token: that goes to the hub alone and is in no
// line.
TEST_F(FetchModel, SendsTheTokenToTheHubAlone) {
  hub.repo = "meta-llama/Llama-3.2-1B";
  hub.token = "hf_canary0123";
  hub.store = "localhost";  // another host, to curl
  const auto ask = [&](const std::string& token) {
    Process process(
        {kScript, "meta-llama/Llama-3.2-1B", "--out", out.string(), "--mirror", hub.running.url()},
        {"HF_HUB_CACHE=", cat("HF_HOME=", home.path.string()), "HF_TOKEN=" + token, "no_proxy=*"});
    const int code = process.wait();
    return Fetched{code, process.out(), process.err()};
  };
  const Fetched without = ask("");
  EXPECT_EQ(without.code, 1);
  EXPECT_NE(without.err.find("HTTP 401: accept its terms at "
                             "https://huggingface.co/meta-llama/Llama-3.2-1B, and set HF_TOKEN"),
            std::string::npos)
      << without.err;
  const Fetched with = ask(hub.token);
  EXPECT_EQ(with.code, 0) << with.err;
  expect_whole();
  EXPECT_EQ(hub.told, 0u);
  EXPECT_EQ((with.out + with.err).find("canary"), std::string::npos);
  EXPECT_EQ(ask("two\nlines").code, 2);
}

TEST_F(FetchModel, ErrorsAreOneLine) {
  const auto refused = [&](const Arguments& arguments, int code, const std::string& part) {
    Arguments argv = {kScript};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    Process process(argv, {cat("HF_HOME=", home.path.string())});
    EXPECT_EQ(process.wait(), code) << part;
    EXPECT_NE(process.err().find(part), std::string::npos) << process.err();
    EXPECT_EQ(std::count(process.err().begin(), process.err().end(), '\n'), 1) << process.err();
  };
  refused({}, 2, "which model?; usage: fetch_model.sh NAME|ORG/REPO [");
  refused({"gpt3"}, 2, "no model is called 'gpt3' here (--list, or ORG/REPO)");
  refused({"--nothing"}, 2, "unknown argument '--nothing'");
  refused({"../etc"}, 2, "no model is called '../etc'");
  refused({"gpt2", "distilgpt2"}, 2, "one model at a time");
  refused({"gpt2", "--mirror"}, 2, "--mirror needs a value");
  refused({"gpt2", "--mirror", "ftp://x"}, 2, "--mirror: expected http://");
  refused({"gpt2", "--out", "/proc/nowhere"}, 1, "/proc/nowhere");
  hub.files.erase("merges.txt");
  const Fetched result = fetch();
  EXPECT_EQ(result.code, 1);
  EXPECT_TRUE(
      result.err.ends_with("openai-community/gpt2 has no tokenizer: tokenizer.json, "
                           "vocab.json and merges.txt, vocab.txt or tokenizer.model\n"))
      << result.err;
}

}  // namespace
}  // namespace split
