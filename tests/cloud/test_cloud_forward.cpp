// POST /v1/models/{id}/forward: partial state without a session, against PyTorch, and everything
// that can be wrong in a request.
#include <cmath>
#include <cstring>
#include <limits>

#include "io/safetensors.h"
#include "run/shard/shard.h"
#include "support/cloud_fixture.h"
#include "text/sampler.h"
#include "text/utf8.h"
#include "wire/protocol.h"

namespace split::cloud {
namespace {

Json point_json(Point point) {
  return point < Point::norm() ? Json(point.block()) : Json(point.name());
}

class CloudForward : public testing::TestWithParam<const char*> {
 protected:
  const std::string name = GetParam();
  const Golden golden{name};
  TestCloud cloud{{name}};
  const std::string path = wire::model_forward_path(name);
  const int layers = cloud.config().layers;
  const size_t channels = static_cast<size_t>(cloud.config().channels);
  const size_t vocab = static_cast<size_t>(cloud.config().vocab);
  // Those from `from` on that rows can leave at.
  std::vector<Point> points(int from) const {
    std::vector<Point> all;
    for (int block = from; block <= layers; ++block) all.emplace_back(block);
    all.insert(all.end(), {Point::norm(), Point::head()});
    return all;
  }
};

TEST_P(CloudForward, EveryPointAgreesWithPyTorch) {
  for (int p = 0; p < golden.prompts(); ++p) {
    const auto ids = golden.ids(p);
    const auto last = golden.values<float>(cat("p", p, ".hidden_last"));
    const bool all = golden.has(cat("p", p, ".hidden_all"));
    const auto every = all ? golden.values<float>(cat("p", p, ".hidden_all")) : last;
    for (const Point point : points(0)) {
      if (point == Point::head()) continue;
      const Json body = {{"tokens", ids}, {"to", point_json(point)}};
      const http::Reply reply = cloud.ask().post_for_tensors(path, body);
      ASSERT_EQ(reply.status, 200) << reply.body;
      const auto got = floats_of(reply.body, "hidden");
      ASSERT_EQ(got.size(), ids.size() * channels);  // all rows by default
      const auto at = static_cast<size_t>(point.stage(layers));
      ASSERT_LT(
          relative(std::span(got).last(channels), std::span(last).subspan(at * channels, channels)),
          2e-4)
          << "prompt " << p << " point " << point.name();
      for (size_t t = 0; all && t < ids.size(); ++t) {
        ASSERT_LT(relative(std::span(got).subspan(t * channels, channels),
                           std::span(every).subspan((at * ids.size() + t) * channels, channels)),
                  2e-4);
      }
      if (p > 1) continue;
      // JSON has the same bits.
      const Json json = json_of(cloud.ask().post(path, body));
      EXPECT_EQ(json["tokens"], Json(ids));
      EXPECT_EQ(json["shape"], Json({ids.size(), channels}));
      EXPECT_EQ(json["dtype"], "f32");
      EXPECT_EQ(flat(json["hidden"]), got);
    }
  }
}

TEST_P(CloudForward, LogitsAgreeWithPyTorch) {
  for (int p = 0; p < golden.prompts(); ++p) {
    const auto ids = golden.ids(p);
    const auto expected = golden.values<float>(cat("p", p, ".logits_last"));
    const Json last = json_of(cloud.ask().post(path, {{"tokens", ids}}));  // head, last
    EXPECT_EQ(last["shape"], Json({1, vocab}));
    const auto got = flat(last["logits"]);
    ASSERT_LT(relative(got, expected), 2e-4);
    const Json top = json_of(cloud.ask().post(path, {{"tokens", ids}, {"top", 10}}));
    ASSERT_EQ(top["top"].size(), 1u);
    ASSERT_EQ(top["top"][0].size(), 10u);
    EXPECT_FALSE(top.contains("logits"));
    EXPECT_EQ(top["top"][0][0][0], golden.values<int32_t>(cat("p", p, ".top10_ids"))[0]);
    // Asks for the same tokens again, with their texts and probabilities.
    ASSERT_EQ(top["top_tokens"].size(), 1u);
    ASSERT_EQ(top["top_tokens"][0].size(), 10u);
    const auto listed = top_logprobs(got, 10);
    for (size_t i = 0; i < 10; ++i) {
      const Json &pair = top["top"][0][i], &token = top["top_tokens"][0][i];
      const auto id = pair[0].get<int32_t>();
      EXPECT_EQ(pair[1].get<float>(), got[static_cast<size_t>(id)]);
      EXPECT_EQ(token["id"], pair[0]);
      EXPECT_EQ(token["logit"], pair[1]);
      EXPECT_FLOAT_EQ(token["p"].get<float>(), std::exp(listed[i].logprob));
      const Tokenizer* const tokenizer = cloud.cloud.find(name).tokenizer();
      if (tokenizer == nullptr) {
        EXPECT_TRUE(token["text"].is_null());
      } else {
        EXPECT_EQ(token["text"], to_valid_utf8(tokenizer->token_bytes(id)));
      }
    }
    if (!golden.has(cat("p", p, ".logits_all"))) continue;
    const auto every = golden.values<float>(cat("p", p, ".logits_all"));
    const auto all = flat(json_of(
        cloud.ask().post(path, {{"tokens", ids}, {"to", "head"}, {"rows", "all"}}))["logits"]);
    ASSERT_EQ(all.size(), every.size());
    for (size_t t = 0; t < ids.size(); ++t) {
      EXPECT_LT(relative(std::span(all).subspan(t * vocab, vocab),
                         std::span(every).subspan(t * vocab, vocab)),
                2e-4);
    }
  }
}

TEST_P(CloudForward, ItsAnswerPostedBackGoesOnBitForBit) {
  const auto ids = golden.ids(1);
  const auto direct = floats_of(
      cloud.ask().post_for_tensors(path, {{"tokens", ids}, {"to", "head"}}).body, "logits");
  for (int point = 0; point <= layers; ++point) {
    const std::string first =
        cloud.ask().post_for_tensors(path, {{"tokens", ids}, {"to", point}}).body;
    for (const Point then : points(point)) {
      const http::Reply rest =
          cloud.ask().post_tensors(cat(path, "?from=", point, "&to=", then.name()), first);
      ASSERT_EQ(rest.status, 200) << rest.body;
      if (then == point) {
        EXPECT_EQ(rest.body, first);
      } else if (then == Point::head()) {
        EXPECT_EQ(floats_of(rest.body, "logits"), direct) << point;
      } else {
        EXPECT_EQ(
            rest.body,
            cloud.ask().post_for_tensors(path, {{"tokens", ids}, {"to", point_json(then)}}).body)
            << point << " to " << then.name();
      }
    }
    // One row of the last block's output is enough for its logits.
    if (point == layers) {
      const std::string one =
          cloud.ask()
              .post_for_tensors(path, {{"tokens", ids}, {"to", point}, {"rows", "last"}})
              .body;
      EXPECT_EQ(
          floats_of(cloud.ask().post_tensors(cat(path, "?from=", layers), one).body, "logits"),
          direct);
    }
  }
  EXPECT_EQ(cloud.pages().in_use(), 0u);
}

TEST_P(CloudForward, RowsAreTheOnesAskedFor) {
  const auto ids = golden.ids(2);
  const auto rows_of = [&](const Json& rows, const Json& to) {
    const char* what = to == "head" ? "logits" : "hidden";
    return flat(
        json_of(cloud.ask().post(path, {{"tokens", ids}, {"to", to}, {"rows", rows}}))[what]);
  };
  for (const Json& to : {Json(1), Json("norm"), Json("head")}) {
    const size_t width = to == "head" ? vocab : channels;
    const auto all = rows_of("all", to);
    ASSERT_EQ(all.size(), ids.size() * width);
    const auto row = [&](size_t t) {
      return std::vector<float>(all.begin() + static_cast<ptrdiff_t>(t * width),
                                all.begin() + static_cast<ptrdiff_t>((t + 1) * width));
    };
    EXPECT_EQ(rows_of("last", to), row(ids.size() - 1));
    auto some = row(0);
    for (const float x : row(ids.size() - 1)) some.push_back(x);
    EXPECT_EQ(rows_of(Json({0, ids.size() - 1}), to), some);
  }
  for (const Json& rows : {Json::array(), Json({1, 0}), Json({1, 1}), Json({ids.size()}),
                           Json({-1}), Json({0.5}), Json("first"), Json(""), Json(true),
                           Json("0,1"), Json({"0"}), Json({2147483648}), Json::object(), Json(1)}) {
    expect_error(cloud.ask().post(path, {{"tokens", ids}, {"rows", rows}}), 400, "invalid_request",
                 "rows", rows.dump());
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CloudForward,
                         testing::Values("demo", "rand-a", "rand-b", "rand-c"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST(CloudForwardText, APromptIsItsTokens) {
  const Golden golden("demo");
  TestCloud cloud({"demo"});
  const std::string path = "/v1/models/demo/forward";
  for (int p = 0; p < golden.prompts(); ++p) {
    const Json& prompt = golden.json["prompts"][static_cast<size_t>(p)];
    const Json by_text =
        json_of(cloud.ask().post(path, {{"prompt", prompt["text"]}, {"to", 0}, {"rows", "last"}}));
    EXPECT_EQ(by_text["tokens"], Json(golden.ids(p)));
    EXPECT_EQ(by_text, json_of(cloud.ask().post(
                           path, {{"tokens", golden.ids(p)}, {"to", 0}, {"rows", "last"}})));
  }
  for (const Json& empty : {Json::object(), Json{{"prompt", ""}}, Json{{"prompt", nullptr}}}) {
    EXPECT_EQ(json_of(cloud.ask().post(path, empty))["tokens"], Json({8191})) << empty;
  }
  EXPECT_EQ(json_of(cloud.ask().post(path, {{"prompt", "<|endoftext|>"}}))["tokens"], Json({8191}));
  EXPECT_GT(
      json_of(cloud.ask().post(path, {{"prompt", "<|endoftext|>"}, {"special", false}}))["tokens"]
          .size(),
      1u);
  const std::string nul("a\0b", 3);
  EXPECT_EQ(json_of(cloud.ask().post(path, {{"prompt", nul}}))["tokens"].size(), 3u);
  expect_error(cloud.ask().post(path, {{"tokens", Json::array()}}), 400, "invalid_request",
               "tokens");
  expect_error(cloud.ask().post(path, {{"tokens", {1}}, {"prompt", "a"}}), 400, "invalid_request",
               "prompt");
  std::string long_prompt;
  for (int i = 0; i < 600; ++i) long_prompt += " the";
  expect_error(cloud.ask().post(path, {{"prompt", long_prompt}}), 400, "invalid_request", "prompt");
  const std::vector<int32_t> full(512, 5);
  EXPECT_EQ(cloud.ask().post(path, {{"tokens", full}, {"to", 1}, {"rows", "last"}}).status, 200);
  const std::vector<int32_t> more(513, 5);
  expect_error(cloud.ask().post(path, {{"tokens", more}}), 400, "invalid_request", "tokens");
}

TEST(CloudForwardText, AModelWithoutTokenizerTakesIdsOnly) {
  TestCloud cloud({"rand-a"});
  expect_error(cloud.ask().post("/v1/models/rand-a/forward", {{"prompt", "a"}}), 400,
               "invalid_request", "prompt");
}

TEST(CloudForwardSize, AnAnswerOver64MiBIsRefusedBeforeItIsComputed) {
  TemporaryDir dir;
  write_flat_model(dir.path, 4, 50257, 512);
  TestCloud cloud({dir.path.string()});
  const std::string path = wire::model_forward_path(dir.path.filename().string());
  const auto refused = [&](const http::Reply& reply) {
    expect_error(reply, 400, "answer_too_large", "rows");
    EXPECT_NE(reply.body.find("`rows`"), std::string::npos);
    EXPECT_NE(reply.body.find("application/octet-stream"), std::string::npos);
  };
  Json body = {{"tokens", std::vector<int32_t>(96, 1)}, {"to", "head"}, {"rows", "all"}};
  refused(cloud.ask().post(path, body));  // 96 * 50257 floats are 67.5 MB of JSON
  EXPECT_EQ(cloud.ask().post_for_tensors(path, body).status, 200);
  body["top"] = 50257;
  refused(cloud.ask().post(path, body));
  body["top"] = 5;
  EXPECT_EQ(cloud.ask().post(path, body).status, 200);
  body.erase("top");
  body["tokens"] = std::vector<int32_t>(340, 1);
  refused(cloud.ask().post_for_tensors(path, body));  // 68 MB
}

// Sends each thing that a client can get wrong in a hidden state.
TEST(CloudForwardHidden, IsTakenOnlyWhole) {
  TestCloud cloud({"rand-a"});
  const std::string path = "/v1/models/rand-a/forward?from=1";
  const std::vector<float> ones(65 * 96, 1.0f);
  const auto floats = [&](uint32_t rows, uint32_t columns) {
    return wire::frame("hidden", rows, columns, std::span(ones).first(size_t{rows} * columns));
  };
  const std::string good = floats(2, 96);
  ASSERT_EQ(cloud.ask().post_tensors(path, good).status, 200);
  for (const auto& [rows, columns] :
       std::vector<std::pair<uint32_t, uint32_t>>{{2, 95}, {2, 97}, {65, 96}, {192, 1}}) {
    expect_error(cloud.ask().post_tensors(path, floats(rows, columns)), 400, "invalid_request",
                 "hidden", cat(rows, " ", columns));
  }
  expect_error(
      cloud.ask().post_tensors(path, wire::frame("state", 1, 96, std::span(ones).first(96))), 400,
      "invalid_request", "hidden");
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    std::vector<float> values(192, 1.0f);
    values[100] = bad;
    expect_error(cloud.ask().post_tensors(path, wire::frame("hidden", 2, 96, values)), 400,
                 "invalid_request", "hidden", cat(bad));
  }
  const std::vector<int32_t> whole(96, 1);
  const NamedTensor integers{"hidden", {DType::kI32, {1, 96}, std::as_bytes(std::span(whole))}};
  expect_error(cloud.ask().post_tensors(path, write_safetensors(std::span(&integers, 1))), 400,
               "invalid_request", "hidden");
  const NamedTensor flat_one{"hidden",
                             {DType::kF32, {96}, std::as_bytes(std::span(ones).first(96))}};
  expect_error(cloud.ask().post_tensors(path, write_safetensors(std::span(&flat_one, 1))), 400,
               "invalid_request", "hidden");
  const NamedTensor none{"hidden", {DType::kF32, {0, 96}, {}}};
  expect_error(cloud.ask().post_tensors(path, write_safetensors(std::span(&none, 1))), 400,
               "invalid_request", "hidden");
  for (size_t size = 0; size < good.size(); size += size < 100 ? 1 : 37) {
    expect_error(cloud.ask().post_tensors(path, good.substr(0, size)), 400, "invalid_request", "",
                 cat("truncated to ", size));
  }
  EXPECT_EQ(cloud.pages().in_use(), 0u);
}

// The largest floats go in; what comes out is numbers or one clear line, never "nan".
TEST(CloudForwardHidden, HugeValuesNeverBecomeBrokenJson) {
  TestCloud cloud({"rand-a"});
  std::vector<float> values(96);
  for (size_t i = 0; i < 96; ++i) {
    values[i] = (i % 3 == 0 ? -1 : 1) * std::numeric_limits<float>::max();
  }
  const std::string body = wire::frame("hidden", 1, 96, values);
  for (const char* to : {"0", "1", "3", "norm", "head"}) {
    const http::Reply reply = cloud.ask().send(
        "POST", cat("/v1/models/rand-a/forward?from=0&to=", to), body, Caller::kTensors);
    if (reply.status == 200) {
      json_of(reply);
    } else {
      expect_error(reply, 400, "invalid_request", "hidden", to);
    }
  }
}

// A copy of rand-a whose `weight` has one value that is no number.
void copy_damaged(const std::filesystem::path& to, const std::string& weight) {
  const std::filesystem::path from = model_dir("rand-a");
  const MappedFile file(from / "model.safetensors");
  const Safetensors parsed = Safetensors::parse(file.bytes(), from.string());
  std::vector<NamedTensor> tensors;
  std::vector<std::byte> bytes;
  for (const auto& [name, view] : parsed.tensors()) {
    tensors.push_back({name, view});
    if (name != weight) continue;
    const float nan = std::numeric_limits<float>::quiet_NaN();
    bytes.assign(view.bytes.begin(), view.bytes.end());
    std::memcpy(bytes.data() + bytes.size() - sizeof nan, &nan, sizeof nan);
    tensors.back().view.bytes = bytes;
  }
  ASSERT_FALSE(bytes.empty());
  write_file(to / "model.safetensors", as_bytes_of(write_safetensors(tensors)));
  write_file(to / "config.json", MappedFile(from / "config.json").bytes());
}

TEST(CloudDamaged, WeightsAreTheServersErrorAndAreNamed) {
  const TemporaryDir dir;
  copy_damaged(dir.path, "transformer.h.1.mlp.c_fc.bias");
  TestCloud cloud({dir.path.string()});
  const std::string id = dir.path.filename().string(), path = wire::model_forward_path(id);
  const auto expect_damaged = [](const http::Reply& reply, const std::string& what) {
    expect_error(reply, 500, "weights_damaged", "", what);
    EXPECT_NE(reply.body.find("'h.1.mlp.c_fc.bias' holds a value that is not finite"),
              std::string::npos)
        << reply.body;
    EXPECT_NE(reply.body.find("server_error"), std::string::npos) << reply.body;
  };
  const Json ids = {1, 2, 3};
  const Json text = {{"prompt", ids}, {"max_tokens", 2}};
  expect_damaged(cloud.ask().post("/v1/completions", text), "a completion");
  Json greedy = text, stream = text;
  greedy["temperature"] = 0;
  stream["stream"] = true;
  expect_damaged(cloud.ask().post("/v1/completions", greedy), "its likeliest tokens");
  const http::Reply events = cloud.ask().post("/v1/completions", stream);
  EXPECT_NE(events.body.find("weights_damaged"), std::string::npos) << events.body;
  expect_damaged(cloud.ask().post(path, {{"tokens", ids}}), "logits");
  expect_damaged(cloud.ask().post(path, {{"tokens", ids}, {"to", 2}}), "hidden states");
  const std::string hidden = wire::frame("hidden", 2, 96, std::vector<float>(2 * 96, 1.0f));
  expect_damaged(cloud.ask().post_tensors(path + "?from=1", hidden), "hidden states that are sent");
  EXPECT_EQ(cloud.ask().post(path, {{"tokens", ids}, {"to", 1}}).status, 200);
  EXPECT_EQ(cloud.ask().post_tensors(path + "?from=2", hidden).status, 200);
  const std::string session = wire::session_path(std::string(32, 'a'));
  const Json range = {{"model", id}, {"from", 0}, {"to", 2}};
  EXPECT_EQ(cloud.ask().send("PUT", session, range.dump()).status, 201);
  expect_damaged(cloud.ask().post_for_tensors(session + "/forward", {{"past", 0}, {"tokens", ids}}),
                 "a step");
}

TEST(CloudForwardQuery, EveryFieldIsChecked) {
  TestCloud cloud({"rand-a"});
  const std::vector<float> ones(2 * 96, 1.0f);
  const std::string body = wire::frame("hidden", 2, 96, ones);
  const auto ask = [&](const std::string& query) {
    return cloud.ask().post_tensors("/v1/models/rand-a/forward?" + query, body);
  };
  EXPECT_EQ(ask("").status, 200);
  for (const char* good : {"from=0", "from=3", "to=0", "to=3", "to=norm", "to=head", "rows=all",
                           "rows=last", "rows=0", "rows=0,1", "top=1", "top=311"}) {
    EXPECT_EQ(ask(good).status, 200) << good;
  }
  const std::map<std::string, std::vector<std::string>> bad = {
      {"from", {"-1", "4", "1.5", "x", "", "1e308", "18446744073709551616", "%00", "%201", "null"}},
      {"to", {"-1", "4", "1.5", "x", "", "1e308", "18446744073709551616", "%00", "Norm", "null"}},
      {"rows", {"-1", "2", "1.5", "x", "", "1e308", "0,", ",0", "1,0", "0,0", "4294967296", "ALL"}},
      {"top", {"-1", "0", "312", "1.5", "x", "", "1e308", "18446744073709551616", "%00"}},
  };
  for (const auto& [field, values] : bad) {
    for (const std::string& value : values) {
      expect_error(ask(field + "=" + value), 400, "invalid_request", field, field + "=" + value);
    }
  }
  expect_error(ask("from=2&to=1"), 400, "invalid_request", "to");
  expect_error(ask("to=1&top=3"), 400, "invalid_request", "top");
  expect_error(ask("form=1"), 400, "invalid_request", "form");
  expect_error(ask("from=1&from=2"), 400, "invalid_request", "from");
}

}  // namespace
}  // namespace split::cloud
