// Answers with receipts, and edge_client audit against honest clouds: which answers and receipts
// there are, and what is refused.
#include "audit/audited.h"

namespace split::test {
namespace {

TEST(Audit, AgreesWithAnswersOfEachFamily) {
  for (const auto& [model, profile] : std::vector<std::pair<std::string, Profile>>{
           {"demo", Profile::kF32},
           {"demo", Profile::kInt8},
           {"demo", Profile::kQ8_0},
           {"models/llama3", Profile::kF32},
           {"models/qwen35", Profile::kF32},     // blocks with states
           {"models/gemma4", Profile::kF32}}) {  // rows with parts, shared keys
    SCOPED_TRACE(cat(model, " ", profile_name(profile)));
    GatedCloud cloud(model, profile);
    const Auditor auditor;
    const Outcome outcome = auditor.run(cloud.url(), answer(cloud.url()), {"--rounds=12"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(std::ranges::count(outcome.out, '\n'), 13) << outcome.out;
    EXPECT_NE(outcome.out.find("is the seed's"), std::string::npos) << outcome.out;
  }
}

TEST(Audit, SaysWithWhichChanceACheatIsFound) {
  const std::string text = answer(demo().url());
  const Auditor auditor;
  const auto told = [&](const char* rounds) {
    return auditor.run(demo().url(), text, {rounds}).out;
  };
  EXPECT_NE(told("--rounds=1").find("with a chance of 12.5 %\n"), std::string::npos);  // 1 - 7/8
  EXPECT_NE(told("--rounds=3").find("with a chance of 33.0 %\n"), std::string::npos);
  EXPECT_NE(told("--rounds=3").find("one of its 8 blocks"), std::string::npos);
}

// Whatever the sampler does, an end that is held off included.
TEST(Audit, FollowsTheSampler) {
  const Auditor auditor;
  for (const Json& more :
       {Json{{"temperature", 0}}, Json{{"temperature", 0.7}, {"top_k", 20}, {"min_p", 0.01}},
        Json{{"repetition_penalty", 1.3}, {"presence_penalty", 0.5}, {"frequency_penalty", -0.5}},
        Json{{"repeat_penalty", 1.2}, {"repeat_last_n", 5}, {"top_p", 0.9}},
        Json{{"min_tokens", 20}, {"logit_bias", {{"0", 30}, {"7", -2.5}}}},
        Json{{"ignore_eos", true}, {"logit_bias", {{"0", 4.25}}}}, Json{{"seed", -7}}}) {
    SCOPED_TRACE(more.dump());
    const Outcome outcome = auditor.run(demo().url(), answer(demo().url(), more), {"--rounds=30"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
  }
}

// In the last event of each text, and of a chat too.
TEST(Audit, StreamsAndChatsAndChoicesHaveReceipts) {
  const Auditor auditor;
  const auto events =
      events_of(answer(demo().url(), {{"stream", true}, {"n", 2}, {"temperature", 1.5}}));
  std::vector<Json> receipts;
  for (const std::string& event : events) {
    if (event == "[DONE]") continue;
    const Json choice = Json::parse(event)["choices"][0];
    EXPECT_EQ(choice.contains("receipt"), !choice["finish_reason"].is_null()) << event;
    if (choice.contains("receipt")) receipts.push_back(choice["receipt"]);
  }
  ASSERT_EQ(receipts.size(), 2u);
  EXPECT_NE(receipts[0]["root"], receipts[1]["root"]);
  EXPECT_EQ(receipts[0]["sampling"]["seed"].get<int>() + receipts[1]["sampling"]["seed"].get<int>(),
            7);
  for (const Json& receipt : receipts) {
    EXPECT_EQ(auditor.run(demo().url(), receipt.dump(), {"--rounds=8"}).code, 0);
  }
  const Json chat = {{"messages", {{{"role", "user"}, {"content", "Once"}}}}, {"prompt", nullptr}};
  const std::string text = answer(demo().url(), chat, "/v1/chat/completions");
  EXPECT_EQ(auditor.run(demo().url(), text, {"--rounds=8"}).code, 0);
  const Json without = Json::parse(answer(demo().url(), {{"receipt", false}}));
  EXPECT_FALSE(without["choices"][0].contains("receipt"));
}

Json with_schema() {
  return {{"response_format",
           {{"type", "json_schema"},
            {"json_schema",
             {{"schema",
               {{"type", "object"},
                {"properties", {{"b", {{"type", "integer"}}}, {"a", {{"enum", {"x", "yes"}}}}}},
                {"required", {"b", "a"}},
                {"additionalProperties", false}}}}}}},
          {"max_tokens", 60}};
}
Json with_tools() {
  return {{"messages", {{{"role", "user"}, {"content", "Once"}}}},
          {"prompt", nullptr},
          {"max_tokens", 60},
          {"tool_choice", "required"},
          {"tools",
           {{{"type", "function"},
             {"function",
              {{"name", "look"},
               {"parameters",
                {{"type", "object"}, {"properties", {{"at", {{"type", "boolean"}}}}}}}}}}}}};
}

// The receipt has the form that held the draws, in whose words the token is the seed's.
TEST(Audit, FollowsTheAnswersForm) {
  const Auditor auditor;
  const std::string completions = "/v1/completions", chats = "/v1/chat/completions";
  Json object = {{"response_format", {{"type", "json_object"}}}, {"temperature", 1.2}};
  for (const auto& [path, more] : std::vector<std::pair<std::string, Json>>{
           {completions, object}, {completions, with_schema()}, {chats, with_tools()}}) {
    SCOPED_TRACE(more.dump());
    const Json receipt = receipt_of(answer(demo().url(), more, path));
    ASSERT_TRUE(receipt.contains("response_format")) << receipt;
    const Outcome outcome = auditor.run(demo().url(), receipt.dump(), {"--rounds=30"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_NE(outcome.out.find("is the seed's"), std::string::npos) << outcome.out;
    Json other = receipt;  // as if the server had drawn without it
    other.erase("response_format");
    expect_line(auditor.run(demo().url(), other.dump(), {kMany}), 5, "the seed draws ");
    other["response_format"] = with_schema()["response_format"];
    if (path == chats) expect_line(auditor.run(demo().url(), other.dump(), {kMany}), 5, "token ");
  }
  const Json words = receipt_of(answer(demo().url()));
  EXPECT_FALSE(words.contains("response_format"));
  Json form = words;  // as if it had been asked for, and was not kept to
  form["response_format"] = object["response_format"];
  expect_line(auditor.run(demo().url(), form.dump(), {kMany}), 5, "token ");
  form["response_format"] = {{"type", "xml"}};
  expect_line(auditor.run(demo().url(), form.dump()), 2, "response_format");
}

TEST(Audit, NamesReceiptsThatCannotBeRead) {
  const Auditor auditor;
  const std::string text = receipt_of(answer(demo().url())).dump();
  expect_line(auditor.run(demo().url(), text.substr(0, text.size() / 2)), 2, "is not valid JSON");
  expect_line(auditor.run(demo().url(), "[1]"), 2, "expected an object");
  expect_line(auditor.run(demo().url(), R"({"choices":[{"text":"x"}]})"), 2, "model");
  expect_line(auditor.run(demo().url(), ""), 2, "is not valid JSON");
  const Outcome none = run_edge({"audit", "/no/such/receipt"});
  expect_line(none, 2, "No such file");
  expect_line(run_edge({"audit"}), 2, "expected one file");
  EXPECT_NE(run_edge({"audit", "--help"}).out.find("--rounds K"), std::string::npos);
}

// The rows are computed again where they were not kept, and are an error where they are others now.
TEST(Audit, ComputesEvictedRowsAgainWhereTheBitsAreTheSame) {
  Cheat cheat;
  const Auditor auditor;
  const std::string &url = cheat.url(), text = answer(url);
  std::atomic<uint64_t> rows{0};  // computed by the cloud
  cheat.good().model().batcher().on_step(
      [&](const StepSeen& seen) { rows += seen.prompt_rows + seen.generated_rows; });
  const auto computes = [&](const std::string& of) {
    const uint64_t before = rows;
    EXPECT_EQ(auditor.run(url, of).code, 0);
    return rows - before;
  };
  EXPECT_EQ(computes(text), 0u);  // it has them still
  cheat.good().cloud.audits.set_limit(0);
  const std::string other = answer(url, {{"seed", 4}});  // evicts the first, and is not kept
  EXPECT_GT(computes(text), 0u);
  EXPECT_GT(computes(other), 0u);
  cheat.flip();
  expect_line(auditor.run(url, text), 3, "computed again they are others");
}

TEST(Audit, RefusesWhatCannotBeProven) {
  const std::string& url = demo().url();
  const Json session = {{"prompt", {3, 5}}, {"receipt", true}};
  expect_refused(
      post(url, cat("/v1/models/demo/sessions/", std::string(32, 'a'), "/completions"), session),
      400, "texts of this route have none");
  expect_refused(post(url, "/v1/completions", asked({{"receipt", 1}})), 400, "receipt");
  const Json receipt = receipt_of(answer(url));
  const auto audit = [&](const Json& more = Json::object()) {
    Json body = {{"receipt", receipt}, {"point", 1}, {"first", 0}, {"count", 2}};
    body.update(more);
    return post(url, wire::kAuditPath, body);
  };
  EXPECT_EQ(audit().status, 200);
  expect_refused(audit({{"point", 9}}), 400, "point");
  expect_refused(audit({{"first", 26}}), 400, "first");
  expect_refused(audit({{"count", 27}}), 400, "count");
  expect_refused(audit({{"receipt", 3}}), 400, "receipt");
  expect_refused(audit({{"more", 3}}), 400, "more");
  Json other = receipt;
  other["model"] = "gpt9";
  expect_refused(audit({{"receipt", other}}), 404, "no model of this id");
  other = receipt;
  other["manifest"] = std::string(64, 'a');
  expect_refused(audit({{"receipt", other}}), 409, "is of another model");
  other = receipt;
  other["tokens"][0] = 1 << 20;
  expect_refused(audit({{"receipt", other}}), 400, "tokens below");
  other = receipt;
  other["root"] = std::string(64, 'a');
  expect_refused(audit({{"receipt", other}}), 410, "rows_gone");
}

// The budget of all requests pays for what an audit holds.
TEST(Audit, StaysWithinTheBudgetOfRequests) {
  cloud::TestCloud cloud({"demo"});
  const auto text = cloud.ask().post("/v1/completions", asked({{"max_tokens", 400}}));
  ASSERT_EQ(text.status, 200) << text.body;
  Json receipt = receipt_of(text.body);
  const Json body = {{"receipt", receipt}, {"point", 1}, {"first", 0}, {"count", 400}};
  EXPECT_EQ(cloud.ask().post(wire::kAuditPath, body).status, 200);
  cloud.cloud.memory.set_limit(512 << 10);  // the rows of a point take 400 KiB
  const auto refused = cloud.ask().post(wire::kAuditPath, body);
  EXPECT_EQ(refused.status, 503) << refused.body;
  cloud.cloud.memory.set_limit(4 << 20);  // all points do not fit, one does
  EXPECT_EQ(cloud.ask().post(wire::kAuditPath, body).status, 200);
  receipt["root"] = std::string(64, 'a');
  const auto again = cloud.ask().post(
      wire::kAuditPath, {{"receipt", receipt}, {"point", 1}, {"first", 0}, {"count", 1}});
  EXPECT_EQ(again.status, 503) << again.body;
  const auto without = cloud.ask().post("/v1/completions", asked({{"max_tokens", 400}}));
  EXPECT_EQ(without.status, 503) << without.body;
}

}  // namespace
}  // namespace split::test
