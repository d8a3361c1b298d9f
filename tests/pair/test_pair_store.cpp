// edge_client's downloads as a user has them: a program that is killed in the middle, two of them
// at once, and the memory that a load takes.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <future>
#include <map>
#include <random>

#include "http/server/server.h"
#include "io/safetensors.h"
#include "io/write_safetensors.h"
#include "run/shard/shard.h"
#include "support/http_peer.h"
#include "support/programs.h"

namespace split::test {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kChunk = 1 << 20;

const Arguments kEdge = {"--device", "cpu",      "--threads",        "1",     "--json",
                         "--quiet",  "--prompt", "Once upon a time", "--cut", "5",
                         "--seed",   "3",        "--max-tokens",     "3"};

// An object store in this process with the demo's blobs, that can stop in the middle of one.
class ObjectStore {
 public:
  ObjectStore()
      : running_(http::Server::Options{}, [this](http::Server& server) {
          server.route("GET", "/blobs/{hex}",
                       [this](const http::Request& request) { return answer(request); });
        }) {}

  std::string url() const { return running_.url() + "/blobs"; }
  void take_from(const std::string& cloud) {
    http::Client client(cloud);
    // A busy machine may still prepare the weights.
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    auto described = client.request("GET", "/v1/models/demo");
    while (described.status == 503 && std::chrono::steady_clock::now() < end) {
      described = client.request("GET", "/v1/models/demo");
    }
    const Json model = Json::parse(described.body);
    for (const Json& stage : model["stages"]) {
      for (const Json& blob : stage["blobs"]) {
        const std::string hash = blob["sha256"];
        if (blob["format"] == model["format"] && !blobs_.contains(hash)) {
          blobs_[hash] = client.request("GET", "/v1/blobs/sha256/" + hash).body;
        }
      }
    }
  }
  // After `bytes` more, all in all, `then` is called and nothing is sent any more.
  void stop_after(uint64_t bytes, std::function<void()> then) {
    then_ = std::move(then);
    left_ = static_cast<int64_t>(bytes);
  }
  void go_on() { left_ = INT64_MAX; }

 private:
  http::Response answer(const http::Request& request) {
    const std::string& all = blobs_.at(request.path_params[0]);
    const uint64_t first = std::stoull(std::string(request.headers.get("Range")->substr(6)));
    http::Response response;
    response.status = 206;
    response.content_type = "application/octet-stream";
    const std::string_view part =
        std::string_view(all).substr(first, std::min(kChunk, all.size() - first));
    response.stream = [this, part](http::Sink& sink) {
      constexpr size_t kPiece = 10007;
      for (size_t at = 0; at < part.size(); at += kPiece) {
        const std::string_view piece = part.substr(at, kPiece);
        const int64_t before = left_.fetch_sub(static_cast<int64_t>(piece.size()));
        const auto size = static_cast<int64_t>(piece.size());
        if (before > 0) sink.write(piece.substr(0, static_cast<size_t>(std::min(before, size))));
        if (before > 0 && before <= size) then_();
        if (before <= size) throw Error(ErrorKind::kIo, "the test stops here");
      }
      return http::Streamed::kDone;
    };
    return response;
  }
  std::map<std::string, std::string> blobs_;
  std::atomic<int64_t> left_{INT64_MAX};
  std::function<void()> then_;
  http::Running running_;
};

class PairStore : public ::testing::Test {
 protected:
  PairStore() { store_.take_from(cloud_.url()); }
  // Files that have a blob's final name are what it says.
  static size_t expect_good(const fs::path& root) {
    size_t unfinished = 0;
    for (const auto& entry : fs::recursive_directory_iterator(root)) {
      const std::string name = entry.path().filename();
      if (!entry.is_regular_file() || name == "names") continue;
      unfinished += name.ends_with(".part");
      if (!name.ends_with(".part")) {
        EXPECT_EQ(Sha256::hex_of(MappedFile(entry.path()).bytes()), name);
      }
    }
    return unfinished;
  }
  ObjectStore store_;
  CloudProcess cloud_{{"--device", "cpu", "--threads", "1", "--blob-url", store_.url()}};
};

TEST_F(PairStore, GoesOnAfterAKillAtAnyByte) {
  const Folder calm_home;
  const EdgeResult calm = run_edge(cloud_.url(), calm_home, kEdge);
  ASSERT_EQ(calm.code, 0) << calm.err;
  const uint64_t total = calm.receipt("bytes_downloaded");
  ASSERT_GT(total, 5 * kChunk);
  const int kills = std::getenv("SPLIT_LONG") != nullptr ? 100 : 10;
  std::mt19937_64 random(7);
  for (int i = 0; i < kills; ++i) {
    const uint64_t at = 1 + random() % total;
    SCOPED_TRACE(at);
    const Folder home;
    std::promise<const Process*> begun;
    store_.stop_after(at, [&] { begun.get_future().get()->signal(SIGKILL); });
    Process edge(edge_command(cloud_.url(), kEdge), {cat("XDG_CACHE_HOME=", home.path.string())});
    begun.set_value(&edge);
    EXPECT_EQ(edge.wait(), -SIGKILL) << edge.err();
    store_.go_on();
    expect_good(home.path);
    const EdgeResult again = run_edge(cloud_.url(), home, kEdge);
    ASSERT_EQ(again.code, 0) << again.err;
    EXPECT_EQ(again.text(), calm.text());
    const uint64_t came = again.receipt("bytes_downloaded");
    EXPECT_EQ(came + again.receipt("bytes_from_cache").get<uint64_t>(), total);
    // At most the chunks under way on four connections are lost.
    EXPECT_LE(came, total - at + 4 * kChunk);
    EXPECT_EQ(expect_good(home.path), 0u);
  }
}

TEST_F(PairStore, TwoAtOnceDownloadOnce) {
  const Folder home;
  const Arguments environment = {cat("XDG_CACHE_HOME=", home.path.string())};
  Process first(edge_command(cloud_.url(), kEdge), environment);
  Process second(edge_command(cloud_.url(), kEdge), environment);
  EXPECT_EQ(first.wait(), 0) << first.err();
  EXPECT_EQ(second.wait(), 0) << second.err();
  const Json one = Json::parse(first.out()), two = Json::parse(second.out());
  EXPECT_EQ(one["text"], two["text"]);
  const auto sum = [&](const char* what) {
    return one["receipt"][what].get<uint64_t>() + two["receipt"][what].get<uint64_t>();
  };
  EXPECT_EQ(sum("bytes_downloaded"), sum("bytes_from_cache"));
  EXPECT_EQ(expect_good(home.path), 0u);
}

// One dies while another waits for it: the lock goes with the process, and the other goes on.
TEST_F(PairStore, GoesOnWithWhatADeadOneHeld) {
  const Folder home;
  const Arguments environment = {cat("XDG_CACHE_HOME=", home.path.string())};
  std::promise<const Process*> begun;
  std::unique_ptr<Process> second;
  store_.stop_after(3 * kChunk, [&] {
    store_.go_on();
    second = std::make_unique<Process>(edge_command(cloud_.url(), kEdge), environment);
    begun.get_future().get()->signal(SIGKILL);
  });
  Process first(edge_command(cloud_.url(), kEdge), environment);
  begun.set_value(&first);
  EXPECT_EQ(first.wait(), -SIGKILL);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->wait(), 0) << second->err();
  EXPECT_EQ(expect_good(home.path), 0u);
}

// Six blocks of 6 MB in halves.
void write_model(const fs::path& dir, int layers, int channels) {
  const auto c = static_cast<int64_t>(channels);
  std::vector<std::pair<std::string, Dims>> shapes = {
      {"wte.weight", {300, c}}, {"wpe.weight", {64, c}}, {"ln_f.weight", {c}}, {"ln_f.bias", {c}}};
  for (int layer = 0; layer < layers; ++layer) {
    const std::string h = cat("h.", layer, ".");
    for (const char* norm : {"ln_1", "ln_2"}) {
      shapes.push_back({cat(h, norm, ".weight"), {c}});
      shapes.push_back({cat(h, norm, ".bias"), {c}});
    }
    const std::pair<const char*, Dims> matrices[] = {{"attn.c_attn", {c, 3 * c}},
                                                     {"attn.c_proj", {c, c}},
                                                     {"mlp.c_fc", {c, 4 * c}},
                                                     {"mlp.c_proj", {4 * c, c}}};
    for (const auto& [name, dims] : matrices) {
      shapes.push_back({cat(h, name, ".weight"), dims});
      shapes.push_back({cat(h, name, ".bias"), {dims[1]}});
    }
  }
  const std::vector<uint16_t> zeros(static_cast<size_t>(300 * c + 4 * c * c));
  std::vector<NamedTensor> tensors;
  for (const auto& [name, dims] : shapes) {
    const auto count = static_cast<size_t>(*element_count(dims));
    tensors.push_back({name, {DType::kF16, dims, std::as_bytes(std::span(zeros).first(count))}});
  }
  write_file(dir / "model.safetensors", as_bytes_of(write_safetensors(tensors)));
  const Json config = {
      {"model_type", "gpt2"}, {"n_layer", layers},          {"n_head", 8},
      {"n_embd", channels},   {"vocab_size", 300},          {"n_positions", 64},
      {"n_ctx", 64},          {"layer_norm_epsilon", 1e-5}, {"activation_function", "gelu_new"}};
  write_file(dir / "config.json", as_bytes_of(config.dump()));
}

const std::string kDemo = std::string(SPLIT_SOURCE_DIR) + "/weights/demo";

// The tool's directory stands for the floats that it was made of: the same text from half the bytes
// on the server's disk, and a cut or head anywhere.
TEST(PairQuantised, GivesTheTextOfTheFloatsInThatProfile) {
  const Folder folder;
  for (const std::string& format : std::vector<std::string>{"q8_0", "q4_0"}) {
    const std::string dir = (folder.path / format).string();
    Process tool(Arguments{program_path("cloud_server"), "quantize", "--model", kDemo, "--format",
                           format, "--out", dir});
    ASSERT_EQ(tool.wait(), 0) << tool.err();
    const Arguments same = {"--device", "cpu", "--threads", "1", "--profile", format};
    Arguments of_floats = same, of_blocks = same;
    of_blocks.insert(of_blocks.end(), {"--model", dir});
    CloudProcess floats(of_floats), blocks(of_blocks);
    for (const char* cut : {"0", "5", "8", "cloud"}) {
      Arguments asked = kEdge;
      asked.insert(asked.end(), {"--cut", cut});
      Arguments in_format = asked;
      in_format.insert(in_format.end(), {"--format", format});
      const EdgeResult expected = run_edge(floats.url(), folder, in_format);
      const EdgeResult got = run_edge(blocks.url(), folder, asked);
      ASSERT_EQ(expected.code, 0) << expected.err;
      ASSERT_EQ(got.code, 0) << got.err;
      EXPECT_EQ(got.text(), expected.text()) << format << " " << cut;
      // Blobs are the same by their hash: nothing is fetched twice.
      EXPECT_EQ(got.receipt("bytes_downloaded"), 0) << format << " " << cut;
    }
  }
  Process again(Arguments{program_path("cloud_server"), "quantize", "--model", kDemo, "--format",
                          "q8_0", "--out", (folder.path / "q8_0").string()});
  EXPECT_EQ(again.wait(), 2);
  Process nowhere(Arguments{program_path("cloud_server"), "quantize", "--model", kDemo, "--format",
                            "q8_0", "--out", "/proc/none"});
  EXPECT_EQ(nowhere.wait(), 4) << nowhere.err();
  EXPECT_EQ(std::ranges::count(nowhere.err(), '\n'), 1) << nowhere.err();
}

TEST(PairMemory, ALoadTakesTheModelAndAFewChunks) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's own memory is counted too";
#endif
  const Folder small, large, home;
  write_model(small.path, 1, 32);
  write_model(large.path, 6, 512);
  CloudProcess cloud({"--device", "cpu", "--threads", "1", "--model",
                      "small=" + small.path.string(), "--model", "large=" + large.path.string()});
  const auto peak = [&](const char* model, uint64_t& downloaded) {
    const EdgeResult got =
        run_edge(cloud.url(), home,
                 {"--device", "cpu", "--threads", "1", "--cut", "0", "--prompt-ids", "1,2",
                  "--max-tokens", "1", "--json", "--quiet", "--model", model});
    EXPECT_EQ(got.code, 0) << got.err;
    downloaded = got.receipt("bytes_downloaded");
    return got.receipt("load_peak_bytes").get<uint64_t>();
  };
  uint64_t downloaded = 0, model = 0;
  const uint64_t base = peak("small", downloaded);
  const uint64_t cold = peak("large", model), warm = peak("large", downloaded);
  ASSERT_GT(model, 30u << 20);
  EXPECT_EQ(downloaded, 0u);
  // Packed weights stay; beside them a matrix's file while it is packed, and a chunk a connection.
  EXPECT_LT(cold, base + model + 10 * kChunk);
  EXPECT_LT(warm, base + model + 10 * kChunk);
  std::printf("%.1f MB of weights: %.1f MB cold, %.1f MB warm, %.1f MB without any\n",
              static_cast<double>(model) / 1e6, static_cast<double>(cold) / 1e6,
              static_cast<double>(warm) / 1e6, static_cast<double>(base) / 1e6);
}

// Gemma 4 E, small but for its table of per-layer inputs: 168 MB of zeros, a hole in the file.
// Returns the bytes of all others.
uint64_t write_gemma_with_table(const fs::path& dir, int64_t vocab, int context) {
  Json types = Json::array();
  for (int i = 0; i < 10; ++i) types.push_back(i % 5 == 4 ? "full_attention" : "sliding_attention");
  Json config = Json::parse(R"({"model_type":"gemma4_text","num_hidden_layers":10,"hidden_size":64,
      "num_attention_heads":4,"num_key_value_heads":1,"intermediate_size":96,"head_dim":16,
      "global_head_dim":32,"hidden_activation":"gelu_pytorch_tanh","sliding_window":16,
      "hidden_size_per_layer_input":128,"num_kv_shared_layers":5,"rms_norm_eps":1e-6,
      "rope_parameters":{"sliding_attention":{"rope_theta":1e4,"rope_type":"default"},
        "full_attention":{"partial_rotary_factor":0.25,"rope_theta":1e6,"rope_type":"proportional"}},
      "tie_word_embeddings":true,"use_double_wide_mlp":true,"final_logit_softcapping":30.0,
      "bos_token_id":2,"eos_token_id":1})");
  config["layer_types"] = types;
  config["vocab_size"] = config["vocab_size_per_layer_input"] = vocab;
  config["max_position_embeddings"] = context;
  write_file(dir / "config.json", as_bytes_of(config.dump()));
  const auto model = make_model(config.dump());
  struct Part {
    uint64_t begin, values;
  };
  std::vector<Part> parts;
  std::vector<NamedTensor> tensors;
  const std::byte nothing{};  // a header needs sizes alone
  uint64_t bytes = 0, others = 0;
  for (const Blob& blob : model->blobs()) {
    for (const WeightDecl& decl : blob.weights) {
      if (!decl.from.empty()) continue;
      const auto values = static_cast<uint64_t>(*element_count(decl.dims));
      tensors.push_back({decl.name, {DType::kF16, decl.dims, {&nothing, 2 * values}}});
      if (!decl.looked_up) {
        parts.push_back({bytes, values});
        others += 2 * values;
      }
      bytes += 2 * values;
    }
  }
  const std::string header = safetensors_header(tensors);
  const fs::path path = dir / "model.safetensors";
  write_file(path, as_bytes_of(header));
  fs::resize_file(path, header.size() + bytes);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  std::minstd_rand random(1);
  for (const Part& part : parts) {
    std::vector<uint16_t> halves(part.values);  // numbers from 2^-7 to 2^-5, of either sign
    for (uint16_t& half : halves)
      half = static_cast<uint16_t>(0x2000 + random() % 0x800 + (random() % 2) * 0x8000);
    file.seekp(static_cast<std::streamoff>(header.size() + part.begin));
    file.write(reinterpret_cast<const char*>(halves.data()),
               static_cast<std::streamsize>(2 * part.values));
  }
  EXPECT_TRUE(file.flush());
  return others;
}

// Behind a prompt whose tokens have their rows all over the table, an edge holds what runs on it:
// below its cut it has no table, and at cut 0 it reads rows of the file.
TEST(PairMemory, ATableOfPerLayerInputsStaysOnTheDisk) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's own memory is counted too";
#endif
  constexpr int kPrompt = 4096, kContext = kPrompt + 32;
  constexpr int64_t kVocab = 1 << 16;
  const Folder folder, home;
  const uint64_t weights = write_gemma_with_table(folder.path, kVocab, kContext);
  const auto model = make_model(read_file(folder.path / "config.json", 1 << 20));
  const uint64_t most = weights + kv_bytes_for(*model, {}, Profile::kF32, 1) + 150'000'000;
  CloudProcess cloud({"--device", "cpu", "--threads", "1", "--model", folder.path.string()});
  std::vector<int32_t> prompt(kPrompt);
  for (size_t i = 0; i < prompt.size(); ++i)
    prompt[i] = static_cast<int32_t>(7 + i * (kVocab / kPrompt));
  const Json wish = {{"prompt", prompt},
                     {"max_tokens", 2},
                     {"temperature", 0},
                     {"ignore_eos", true},
                     {"return_token_ids", true}};
  Json first;
  for (const char* cut : {"4", "0"}) {
    Process edge(edge_command(cloud.url(), {"--device", "cpu", "--threads", "1", "--cut", cut,
                                            "--head", "edge", "--serve", "127.0.0.1:0"}),
                 {cat("XDG_CACHE_HOME=", home.path.string())});
    ASSERT_TRUE(edge.until([&] { return edge.err().find(" ready\n") != std::string::npos; }))
        << edge.err();
    const size_t at = edge.err().find("http://127.0.0.1:", edge.err().find("listening on "));
    http::Client client(edge.err().substr(at, edge.err().find(' ', at) - at));
    const auto reply = client.request("POST", "/v1/completions", wish.dump(), "application/json");
    ASSERT_EQ(reply.status, 200) << reply.body;
    const Json ids = Json::parse(reply.body)["choices"][0]["token_ids"];
    if (first.is_null()) first = ids;
    EXPECT_EQ(ids, first);
    std::ifstream proc(cat("/proc/", edge.pid(), "/status"));
    const std::string status(std::istreambuf_iterator<char>(proc), {});
    const uint64_t peak = 1024 * std::stoull(status.substr(status.find("VmHWM:") + 6));
    EXPECT_LT(peak, most) << "cut " << cut;
    std::printf("cut %s: %.1f MB, of %.1f MB at most\n", cut, static_cast<double>(peak) / 1e6,
                static_cast<double>(most) / 1e6);
  }
}

}  // namespace
}  // namespace split::test
