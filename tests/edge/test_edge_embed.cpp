// Embeddings of an encoder that is split: the same bits at every cut, one trip for any number of
// texts; and in bulk, line by line.
#include <gtest/gtest.h>

#include <fstream>

#include "support/edge_server.h"

namespace split::test {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

// A cloud of an encoder whose texts are ids here, and a cache.
struct EncoderPair {
  static EncoderPair& get() {
    static ForAllTests<EncoderPair> all;
    return all.get();
  }
  EncoderPair() : golden("models/st-minilm"), cloud(source("tests/golden/models/st-minilm")) {}

  std::vector<std::string> arguments(std::vector<std::string> more = {}) const {
    more.insert(more.end(), {cat("--server=", cloud.url()), cat("--cache=", cache.path.string()),
                             "--retry-for=5"});
    return more;
  }
  std::vector<std::string> here(std::vector<std::string> more) const {
    more = arguments(std::move(more));
    more.push_back("--device=cpu");
    return more;
  }
  std::vector<std::vector<int32_t>> texts() const {
    std::vector<std::vector<int32_t>> all;
    for (int i = 0; i < 4; ++i) {
      all.push_back(golden.values<int32_t>(cat("p", i, ".embedding_ids")));
    }
    return all;
  }

  TemporaryFolder folder, cache;
  Golden golden;
  GatedCloud cloud;
};

constexpr const char* kCuts[] = {"0", "1", "2", "cloud"};

TEST(EdgeEmbed, PrintsTheSameEmbeddingAtEveryCut) {
  EncoderPair& pair = EncoderPair::get();
  const auto ids = pair.texts()[1];
  const auto want = pair.golden.values<float>("p1.embedding");
  std::string first;
  for (const char* cut : kCuts) {
    const Outcome out = run_edge(
        pair.here({"--embed", "--json", cat("--prompt-ids=", joined(ids)), cat("--cut=", cut)}));
    ASSERT_EQ(out.code, 0) << cut << out.err;
    const Json json = out.json();
    EXPECT_EQ(json["tokens"], ids.size());
    const auto got = json["embedding"].get<std::vector<float>>();
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-6) << cut;
    if (first.empty()) first = out.out;
    EXPECT_EQ(out.out, first) << cut;
  }
  const Outcome plain = run_edge(pair.here({"--embed", cat("--prompt-ids=", joined(ids))}));
  EXPECT_EQ(std::ranges::count(plain.out, ' '), 47);
  const Outcome text = run_edge(pair.here({"--prompt-ids=1,2"}));
  EXPECT_EQ(text.code, 2);
  EXPECT_NE(text.err.find("is an encoder, which writes no text: expected --embed"),
            std::string::npos)
      << text.err;
}

// A decoder that was made for embeddings pools the token that stands behind each text.
TEST(EdgeEmbed, ADecodersTextsAreCutAsWell) {
  const Golden golden("models/st-qwen3");
  GatedCloud cloud(source("tests/golden/models/st-qwen3"));
  const TemporaryFolder cache;
  const auto want = golden.values<float>("p0.embedding");
  std::string first;
  for (const char* cut : kCuts) {
    const Outcome out = run_edge({"--embed", "--json", "--prompt=Once", cat("--cut=", cut),
                                  cat("--server=", cloud.url()), "--device=cpu", "--retry-for=5",
                                  cat("--cache=", cache.path.string())});
    ASSERT_EQ(out.code, 0) << cut << out.err;
    const Json json = out.json();
    EXPECT_EQ(json["tokens"], golden.values<int32_t>("p0.embedding_ids").size());
    const auto got = json["embedding"].get<std::vector<float>>();
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-6) << cut;
    if (first.empty()) first = out.out;
    EXPECT_EQ(out.out, first) << cut;
  }
}

TEST(EdgeEmbed, ServesAnyNumberOfTextsInOneTrip) {
  EncoderPair& pair = EncoderPair::get();
  const auto texts = pair.texts();
  Json first;
  for (const char* cut : kCuts) {
    EdgeServer edge(pair.arguments({cat("--cut=", cut)}));
    const Json answer = edge.ready().ask("/v1/embeddings", {{"input", texts}});
    const Json& receipt = answer["usage"]["splitcompute"];
    EXPECT_EQ(receipt["texts"], texts.size());
    EXPECT_EQ(receipt["trips"], std::string(cut) == "0" ? 0 : 1);
    if (first.is_null()) first = answer["data"];
    EXPECT_EQ(answer["data"], first) << cut;
    for (size_t i = 0; i < texts.size(); ++i) {
      const Json alone = edge.ask("/v1/embeddings", {{"input", texts[i]}});
      EXPECT_EQ(alone["data"][0]["embedding"], answer["data"][i]["embedding"]) << cut << i;
    }
    for (const auto& [path, body] :
         {std::pair<std::string, Json>{"/v1/completions", {{"prompt", {1, 2}}}},
          {"/v1/chat/completions",
           {{"messages", Json::array({{{"role", "user"}, {"content", "x"}}})}}},
          {"/apply-template", {{"messages", Json::array({{{"role", "user"}, {"content", "x"}}})}}},
          {"/split/unsplit", {{"prompt", {1, 2}}}}}) {
      const http::Reply reply = edge.post(path, body);
      EXPECT_EQ(reply.status, 400) << path;
      EXPECT_NE(reply.body.find("\"no_head\""), std::string::npos) << reply.body;
    }
  }
}

TEST(EdgeEmbed, DoctorComputesAnEmbedding) {
  EncoderPair& pair = EncoderPair::get();
  const Outcome out = run_edge(pair.here({"doctor"}));
  EXPECT_EQ(out.code, 0) << out.out;
  EXPECT_NE(out.out.find("embedding  ok   an embedding of 48 numbers with cut "), std::string::npos)
      << out.out;
}

// --- In bulk

EdgeOptions with_input(const std::string& text) {
  EdgeOptions options;
  options.input = text;
  return options;
}

struct Lines {
  static GatedCloud& cloud() {
    static ForAllTests<GatedCloud> all;
    return all.get("demo");
  }
  std::vector<std::string> arguments(std::vector<std::string> more = {}) const {
    more.insert(more.end(), {"--embed", "--jsonl", "--cut=cloud", cat("--server=", cloud().url()),
                             cat("--cache=", folder.path.string()), "--retry-for=5"});
    return more;
  }
  std::string write(const std::string& text) const {
    const std::string path = (fs::path(folder.path) / "lines.txt").string();
    std::ofstream(path) << text;
    return path;
  }
  TemporaryFolder folder;
};

TEST(EdgeEmbed, EachLineBecomesALine) {
  const Lines lines;
  const std::string text = "Once upon a time\n{\"text\":\"The king\",\"id\":7}\nOnce upon a time";
  const Outcome out = run_edge(lines.arguments({}), with_input(text));
  ASSERT_EQ(out.code, 0) << out.err;
  std::istringstream in(out.out);
  std::vector<Json> all;
  for (std::string line; std::getline(in, line);) all.push_back(Json::parse(line));
  ASSERT_EQ(all.size(), 3u);
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i]["index"], i);
  EXPECT_EQ(all[0]["embedding"], all[2]["embedding"]);
  EXPECT_NE(all[0]["embedding"], all[1]["embedding"]);
  EXPECT_EQ(all[0]["tokens"], 4);
  EXPECT_NE(out.err.find("3 texts, "), std::string::npos) << out.err;
  EXPECT_NE(out.err.find(" texts/s"), std::string::npos) << out.err;
  const Outcome from_file = run_edge(lines.arguments({"--prompt-file=" + lines.write(text)}));
  EXPECT_EQ(from_file.out, out.out);
  const Outcome wrong = run_edge(lines.arguments({}), with_input("a\n{\"body\":1}\n"));
  EXPECT_EQ(wrong.code, 2);
  EXPECT_NE(wrong.err.find("line 2: expected a text, or an object with a \"text\""),
            std::string::npos)
      << wrong.err;
}

TEST(EdgeEmbed, GoesOnBehindTheLastWholeLineOfItsFile) {
  const Lines lines;
  const std::string texts = lines.write("one\ntwo\nthree\nfour\n");
  const std::string out = (fs::path(lines.folder.path) / "out.jsonl").string();
  const auto arguments = lines.arguments({"--prompt-file=" + texts, "--out=" + out});
  ASSERT_EQ(run_edge(arguments).code, 0);
  const std::string whole = read_file(out, 1 << 20);
  EXPECT_EQ(std::ranges::count(whole, '\n'), 4);
  // A file as if the run had been ended in the middle of its third line.
  const size_t third = whole.find("{\"index\":2");
  std::ofstream(out, std::ios::trunc) << whole.substr(0, third + 30);
  const Outcome again = run_edge(arguments);
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(read_file(out, 1 << 20), whole);
  EXPECT_NE(again.err.find("2 texts, "), std::string::npos) << again.err;
  EXPECT_NE(again.err.find("2 were there"), std::string::npos) << again.err;
  std::ofstream(out, std::ios::trunc) << "{\"index\":7,\"x\":1}\n";
  const Outcome other = run_edge(arguments);
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.err.find("it is of another command"), std::string::npos) << other.err;
}

TEST(EdgeEmbed, BulkFlagsBelongTogether) {
  const auto refused = [](std::vector<std::string> arguments) {
    arguments.push_back("--server=http://127.0.0.1:1");
    const Outcome out = run_edge(arguments);
    EXPECT_EQ(out.code, 2);
    return out.err;
  };
  EXPECT_NE(refused({"--jsonl"}).find("--jsonl: expected --embed"), std::string::npos);
  EXPECT_NE(refused({"--embed", "--out=x"}).find("--out: expected --embed --jsonl"),
            std::string::npos);
}

}  // namespace
}  // namespace split::test
