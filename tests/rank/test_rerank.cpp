// Rerankers and the encoders of each family, split: what sentence-transformers computes, at every
// cut and on both programs, and what they refuse.
#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "support/cloud_fixture.h"
#include "support/edge_server.h"

namespace split::test {
namespace {

using Json = nlohmann::json;

constexpr const char* kRerankers[] = {"rerank-bert", "rerank-xlmr", "rerank-modernbert"};
constexpr const char* kEncoders[] = {"xlmr", "roberta", "mpnet", "modernbert", "embgemma"};

std::string path_of(const std::string& name) { return source("tests/golden/models/" + name); }

// A cloud of all of them, and a cache.
struct Clouds {
  static Clouds& get() {
    static ForAllTests<Clouds> all;
    return all.get();
  }
  Clouds()
      : cloud(std::vector{path_of("rerank-bert"), path_of("rerank-xlmr"),
                          path_of("rerank-modernbert"), path_of("xlmr"), path_of("roberta"),
                          path_of("mpnet"), path_of("modernbert"), path_of("embgemma"),
                          path_of("st-minilm"), path_of("qwen3")}) {}

  std::vector<std::string> edge(const std::string& model, const std::string& cut,
                                std::vector<std::string> more = {}) const {
    more.insert(more.end(),
                {cat("--server=", cloud.here()), cat("--cache=", cache.path.string()),
                 "--retry-for=5", cat("--model=", model), cat("--cut=", cut), "--device=cpu"});
    return more;
  }
  http::Reply post(const std::string& path, const Json& body) {
    return http::Client(cloud.url()).request("POST", path, body.dump(), "application/json");
  }

  TemporaryFolder cache;
  cloud::TestCloud cloud;
};

struct Pair {
  std::string query, document;
  double score, bound;
};
std::vector<Pair> pairs_of(const std::string& model) {
  const GoldenValues golden("models/" + model);
  const Json json = Json::parse(read_file(path_of(model) + "/golden.json", 1 << 20));
  std::vector<Pair> all;
  for (const Json& prompt : json["prompts"]) {
    const float score = golden.values<float>(prompt["prefix"].get<std::string>() + "score")[0];
    all.push_back({prompt["query"], prompt["text"], score, 1e-5});
  }
  return all;
}

std::vector<std::string> cuts_of(const std::string& model) {
  const Json config = Json::parse(read_file(path_of(model) + "/config.json", 1 << 20));
  std::vector<std::string> cuts = {"cloud"};
  for (int k = 0; k <= config["num_hidden_layers"].get<int>(); ++k) cuts.push_back(cat(k));
  return cuts;
}

std::map<size_t, double> scores_of(const Json& answer) {
  std::map<size_t, double> scores;
  double last = HUGE_VAL;
  for (const Json& result : answer["results"]) {
    const double score = result["relevance_score"];
    EXPECT_LE(score, last) << "the best first";
    last = score;
    scores[result["index"]] = score;
  }
  return scores;
}

void expect_error(const http::Reply& reply, int status, const std::string& code,
                  const std::string& message) {
  EXPECT_EQ(reply.status, status) << reply.body;
  const Json json = Json::parse(reply.body, nullptr, false);
  ASSERT_TRUE(json.contains("error")) << reply.body;
  EXPECT_TRUE(code.empty() || json["error"]["code"] == code) << reply.body;
  EXPECT_NE(json["error"]["message"].get<std::string>().find(message), std::string::npos)
      << reply.body;
}

class Rerankers : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, Rerankers, testing::ValuesIn(kRerankers), [](const auto& info) {
  std::string name = info.param;
  std::ranges::replace(name, '-', '_');
  return name;
});

TEST_P(Rerankers, ScoresAreThoseOfSentenceTransformersAtEveryCutAloneAndTogether) {
  const std::string model = GetParam();
  const std::vector<Pair> pairs = pairs_of(model);
  std::vector<std::string> documents;
  for (const Pair& pair : pairs) documents.push_back(pair.document);
  const Json all = {{"model", model}, {"query", pairs[0].query}, {"documents", documents}};
  std::map<size_t, double> first;
  for (const std::string& cut : cuts_of(model)) {
    std::unique_ptr<EdgeServer> edge;
    if (cut != "cloud") {
      edge = std::make_unique<EdgeServer>(Clouds::get().edge(model, cut));
      edge->ready();
    }
    const auto ask = [&](const Json& body) {
      const http::Reply reply =
          edge ? edge->post("/v1/rerank", body) : Clouds::get().post("/v1/rerank", body);
      EXPECT_EQ(reply.status, 200) << reply.body;
      return Json::parse(reply.body, nullptr, false);
    };
    for (const Pair& pair : pairs) {
      const Json one = ask({{"model", model},
                            {"query", pair.query},
                            {"documents", Json::array({{{"text", pair.document}}})}});
      EXPECT_NEAR(scores_of(one)[0], pair.score, pair.bound) << cut << pair.query;
      EXPECT_FALSE(one["results"][0].contains("document"));
    }
    const Json together = ask(all);
    const std::map<size_t, double> scores = scores_of(together);
    ASSERT_EQ(scores.size(), documents.size());
    if (first.empty()) first = scores;
    EXPECT_EQ(scores, first) << cut;
    EXPECT_EQ(together["usage"]["splitcompute"]["trips"], edge && cut != "0" ? 1 : 0) << cut;
    // Neither its company nor its place changes a document's score.
    Json turned = all;
    turned["documents"] = std::vector(documents.rbegin(), documents.rend());
    const auto other_way = scores_of(ask(turned));
    for (const auto& [index, score] : scores) {
      EXPECT_EQ(other_way.at(documents.size() - 1 - index), score) << cut;
      Json alone = all;
      alone["documents"] = {documents[index]};
      EXPECT_EQ(scores_of(ask(alone))[0], score) << cut;
    }
  }
}

TEST_P(Rerankers, PrintTheBestLinesFirst) {
  const std::string model = GetParam();
  const std::vector<Pair> pairs = pairs_of(model);
  EdgeOptions input;
  input.input = "Once upon a time\n{\"text\":\"The king\"}\nOnce upon a time\n";
  const Outcome lines =
      run_edge(Clouds::get().edge(model, "1", {"--rerank=" + pairs[0].query, "--jsonl"}), input);
  ASSERT_EQ(lines.code, 0) << lines.err;
  std::vector<Json> all;
  std::istringstream in(lines.out);
  for (std::string line; std::getline(in, line);) all.push_back(Json::parse(line));
  ASSERT_EQ(all.size(), 3u);
  for (size_t i = 0; i + 1 < all.size(); ++i) {
    EXPECT_GE(all[i]["relevance_score"], all[i + 1]["relevance_score"]);
    if (all[i]["relevance_score"] == all[i + 1]["relevance_score"]) {
      EXPECT_LT(all[i]["index"], all[i + 1]["index"]) << "equal ones by index";
    }
  }
  const Outcome table =
      run_edge(Clouds::get().edge(model, "cloud", {"--rerank=" + pairs[0].query}), input);
  ASSERT_EQ(table.code, 0) << table.err;
  EXPECT_EQ(std::ranges::count(table.out, '\n'), 3);
  EXPECT_NE(table.out.find("  The king\n"), std::string::npos) << table.out;
  EXPECT_NE(table.err.find("3 documents, "), std::string::npos) << table.err;
}

TEST(Rerank, EmbeddingsOfEachFamilyAreTheSameAtEveryCut) {
  for (const std::string model : kEncoders) {
    const GoldenValues golden("models/" + model);
    std::string first;
    for (const std::string& cut : cuts_of(model)) {
      const Outcome out = run_edge(
          Clouds::get().edge(model, cut, {"--embed", "--json", "--prompt=Once upon a time"}));
      ASSERT_EQ(out.code, 0) << model << cut << out.err;
      if (first.empty()) first = out.out;
      EXPECT_EQ(out.out, first) << model << cut;
    }
    if (!golden.has("p0.embedding")) continue;
    const Outcome once =
        run_edge(Clouds::get().edge(model, "1", {"--embed", "--json", "--prompt=Once"}));
    const auto got = once.json()["embedding"].get<std::vector<float>>();
    const auto want = golden.values<float>("p0.embedding");
    ASSERT_EQ(got.size(), want.size());
    double length = 0;
    for (const float x : want) length += double{x} * double{x};
    const double bound = 1e-6 * std::max(1.0, std::sqrt(length));
    for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], bound) << model;
  }
}

// Twenty of two hundred texts by their embeddings, and these by a reranker.
TEST(Rerank, RanksWhatAnEncoderFinds) {
  std::vector<std::string> texts;
  for (const char* who : {"The king", "A little girl", "The old wolf", "A fox", "Nobody"}) {
    for (const char* does : {"lived in", "ran to", "dreamt of", "sang about", "forgot"}) {
      for (const char* what : {"the wood", "a house", "the sea", "a castle", "the moon", "a song",
                               "the river", "a hill"}) {
        texts.push_back(cat(who, " ", does, " ", what, "."));
      }
    }
  }
  ASSERT_EQ(texts.size(), 200u);
  const std::string query = "Who lived in the wood?";
  const auto dot = [](const Json& a, const Json& b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += a[i].get<double>() * b[i].get<double>();
    return sum;
  };
  const auto found = [&](const std::function<Json(const std::string&, const Json&)>& ask_encoder,
                         const std::function<Json(const std::string&, const Json&)>& ask_ranker) {
    const Json answer = ask_encoder("/v1/embeddings", {{"model", "st-minilm"}, {"input", texts}});
    const Json own = ask_encoder("/v1/embeddings", {{"model", "st-minilm"}, {"input", query}});
    std::vector<std::pair<double, size_t>> near;
    for (size_t i = 0; i < texts.size(); ++i) {
      near.emplace_back(-dot(answer["data"][i]["embedding"], own["data"][0]["embedding"]), i);
    }
    std::ranges::sort(near);
    std::vector<std::string> best;
    for (size_t i = 0; i < 20; ++i) best.push_back(texts[near[i].second]);
    return ask_ranker("/v1/rerank", {{"model", "rerank-bert"},
                                     {"query", query},
                                     {"documents", best},
                                     {"top_n", 5},
                                     {"return_documents", true}})["results"];
  };
  const auto cloud = [](const std::string& path, const Json& body) {
    return Json::parse(Clouds::get().post(path, body).body);
  };
  const Json want = found(cloud, cloud);
  ASSERT_EQ(want.size(), 5u);
  EXPECT_TRUE(want[0]["document"]["text"].is_string());
  EdgeServer encoder(Clouds::get().edge("st-minilm", "1")),
      ranker(Clouds::get().edge("rerank-bert", "1"));
  encoder.ready(), ranker.ready();
  const Json got =
      found([&](const auto& path, const Json& body) { return encoder.ask(path, body); },
            [&](const auto& path, const Json& body) { return ranker.ask(path, body); });
  EXPECT_EQ(got, want);
}

TEST(Rerank, RefusesWhatMakesNoSense) {
  EdgeServer edge(Clouds::get().edge("rerank-bert", "1"));
  edge.ready();
  const std::string long_text = [] {
    std::string text;
    for (int i = 0; i < 80; ++i) text += "king ";
    return text;
  }();
  const Json good = {{"model", "rerank-bert"}, {"query", "king"}, {"documents", {"a king", "b"}}};
  const auto with = [&](const char* field, const Json& value) {
    Json body = good;
    body[field] = value;
    return body;
  };
  const auto scores = scores_of(edge.ask("/v1/rerank", good));
  for (const bool on_cloud : {true, false}) {
    const auto post = [&](const Json& body, const std::string& path = "/v1/rerank") {
      return on_cloud ? Clouds::get().post(path, body) : edge.post(path, body);
    };
    expect_error(post(with("documents", Json::array())), 400, "", "expected a list of 1 to 1000");
    expect_error(post(with("documents", std::vector<std::string>(1001, "a"))), 400, "",
                 "expected a list of 1 to 1000");
    expect_error(post(with("documents", {1})), 400, "", "expected each to be a string");
    expect_error(post(with("documents", Json::array({{{"title", "a"}}}))), 400, "",
                 "expected each to be a string");
    expect_error(post(with("top_n", 0)), 400, "", "top_n");
    expect_error(post(with("query", 7)), 400, "", "query");
    expect_error(post(with("nonsense", 7)), 400, "", "nonsense");
    expect_error(post(with("query", long_text)), 400, "", "so that there is room for a document");
    Json refused = with("documents", {"a", long_text});
    EXPECT_EQ(post(refused).status, 200) << "cut unless it says otherwise";
    refused["truncate"] = false;
    expect_error(post(refused), 400, "input_too_long", "document 1: expected at most 60 tokens");
    expect_error(post({{"model", "rerank-bert"}, {"input", "king"}}, "/v1/embeddings"), 400,
                 "no_pool", "scores pairs and makes no embeddings");
    const http::Reply again = post(good);
    EXPECT_EQ(scores_of(Json::parse(again.body)), scores) << "it is as it was";
  }
  for (const char* model : {"st-minilm", "qwen3"}) {
    expect_error(
        Clouds::get().post("/v1/rerank", {{"model", model}, {"query", "a"}, {"documents", {"b"}}}),
        400, "no_rank", "has no classifier of pairs");
  }
  EdgeServer encoder(Clouds::get().edge("st-minilm", "1"));
  expect_error(encoder.ready().post("/v1/rerank", {{"query", "a"}, {"documents", {"b"}}}), 400,
               "no_rank", "has no classifier of pairs");
  const Outcome embeds =
      run_edge(Clouds::get().edge("rerank-bert", "1", {"--embed", "--prompt=king"}));
  EXPECT_EQ(embeds.code, 2);
  EXPECT_NE(embeds.err.find("makes no embeddings: expected --rerank"), std::string::npos)
      << embeds.err;
  EdgeOptions input;
  input.input = "a\n";
  const Outcome ranks = run_edge(Clouds::get().edge("st-minilm", "1", {"--rerank=king"}), input);
  EXPECT_EQ(ranks.code, 2);
  EXPECT_NE(ranks.err.find("expected a reranker"), std::string::npos) << ranks.err;
  const Outcome both = run_edge({"--rerank=a", "--embed", "--server=http://127.0.0.1:1"});
  EXPECT_EQ(both.code, 2);
  EXPECT_NE(both.err.find("--rerank: expected --prompt-file or stdin"), std::string::npos);
}

// While a list is ranked, others are refused: its scores are those of before.
TEST(Rerank, ARefusalLeavesOtherRequestsAsTheyWere) {
  EdgeServer edge(Clouds::get().edge("rerank-bert", "1"));
  edge.ready();
  std::vector<std::string> documents;
  for (int i = 0; i < 200; ++i) documents.push_back(cat("The king of house ", i, "."));
  const Json good = {{"model", "rerank-bert"}, {"query", "Who?"}, {"documents", documents}};
  Json bad = good;
  std::string longest;
  for (int i = 0; i < 80; ++i) longest += "king ";
  bad["documents"].push_back(longest);
  bad["truncate"] = false;
  for (const bool on_cloud : {true, false}) {
    const auto post = [&](const Json& body) {
      return on_cloud ? Clouds::get().post("/v1/rerank", body) : edge.post("/v1/rerank", body);
    };
    const std::map<size_t, double> want = scores_of(Json::parse(post(good).body));
    ASSERT_EQ(want.size(), documents.size());
    std::vector<std::string> answers(4);
    std::vector<int> statuses(4);
    std::vector<std::thread> callers;
    for (size_t i = 0; i < answers.size(); ++i) {
      callers.emplace_back([&, i] {
        const http::Reply reply = post(i % 2 == 0 ? good : bad);
        answers[i] = reply.body, statuses[i] = reply.status;
      });
    }
    for (std::thread& caller : callers) caller.join();
    for (size_t i = 0; i < answers.size(); ++i) {
      EXPECT_EQ(statuses[i], i % 2 == 0 ? 200 : 400) << answers[i];
      if (i % 2 == 0) {
        EXPECT_EQ(scores_of(Json::parse(answers[i])), want);
      }
    }
  }
}

TEST(Rerank, DoctorComputesAScore) {
  const Outcome out = run_edge(Clouds::get().edge("rerank-xlmr", "1", {"doctor"}));
  EXPECT_EQ(out.code, 0) << out.out;
  EXPECT_NE(out.out.find("score      ok   a score with cut "), std::string::npos) << out.out;
}

// More rows than one trip may have go in as few as that.
TEST(Rerank, AThousandDocumentsTakeOneTrip) {
  EdgeServer edge(Clouds::get().edge("rerank-bert", "1"));
  std::vector<std::string> documents;
  for (int i = 0; i < 1000; ++i) documents.push_back(cat("The king of house ", i, "."));
  const Json answer =
      edge.ready().ask("/v1/rerank", {{"query", "Who is king?"}, {"documents", documents}});
  EXPECT_EQ(answer["results"].size(), 1000u);
  EXPECT_EQ(answer["usage"]["splitcompute"]["texts"], 1000);
  EXPECT_EQ(answer["usage"]["splitcompute"]["trips"], 1);
}

}  // namespace
}  // namespace split::test
