// Answers with receipts, and edge_client audit against clouds and edges: honest ones, one that
// computes with another weight than its manifest says, and those whose rows or paths are wrong.
#include <gtest/gtest.h>

#include <fstream>

#include "http/sse.h"
#include "support/cloud_fixture.h"
#include "support/edge_server.h"
#include "support/edge_world.h"
#include "wire/audit.h"

namespace split::test {
namespace {

using Json = nlohmann::json;

// 200 draws of 8 blocks miss one with a chance of 3e-12.
constexpr const char* kMany = "--rounds=200";

struct Auditor {
  TemporaryFolder folder;

  std::string file(const std::string& text) const {
    const std::filesystem::path path = folder.path / "receipt.json";
    std::ofstream(path) << text;
    return path;
  }
  Outcome run(const std::string& url, const std::string& receipt,
              std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments = {
        "audit",   file(receipt),  cat("--server=", url), cat("--cache=", cache().string()),
        "--quiet", "--device=cpu", "--threads=1",         "--retry-for=5"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_edge(arguments);
  }
  std::filesystem::path cache() const { return folder.path / "cache"; }
};

// The audit ends with this code, and one line that says why.
void expect_line(const Outcome& outcome, int code, const std::string& words) {
  EXPECT_EQ(outcome.code, code) << outcome.err;
  EXPECT_NE(outcome.err.find(words), std::string::npos) << outcome.err;
  EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
}

Json asked(const Json& more = {}) {
  Json body = {{"prompt", {3, 5, 9, 14, 2, 7}}, {"max_tokens", 20}, {"receipt", true}, {"seed", 3}};
  if (more.is_object()) body.update(more);
  return body;
}

http::Reply post(const std::string& url, const std::string& path, const Json& body) {
  return Client(url).request("POST", path, body.dump(), "application/json");
}

std::string answer(const std::string& url, const Json& more = {},
                   const std::string& path = "/v1/completions") {
  const http::Reply reply = post(url, path, asked(more));
  EXPECT_EQ(reply.status, 200) << reply.body;
  return reply.body;
}

Json receipt_of(const std::string& text) {
  return Json::parse(text).at("choices").at(0).at("receipt");
}

void expect_refused(const http::Reply& reply, int status, const std::string& words) {
  EXPECT_EQ(reply.status, status) << reply.body;
  EXPECT_NE(reply.body.find(words), std::string::npos) << reply.body;
}

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

GatedCloud& demo() {
  static ForAllTests<GatedCloud> all;
  return all.get("demo");
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

// The whole receipt is committed to: what is changed in it afterwards does not fit the rows.
TEST(Audit, FindsReceiptsThatWereChanged) {
  const Auditor auditor;
  const Json good = receipt_of(answer(demo().url(), {{"max_tokens", 40}}));
  const auto changed = [&](const std::function<void(Json&)>& change) {
    Json receipt = good;
    change(receipt);
    return auditor.run(demo().url(), receipt.dump(), {kMany});
  };
  expect_line(changed([](Json& one) { one["tokens"][3] = 15; }), 5, "the embedding of position 3");
  expect_line(changed([](Json& one) { one["sampling"]["seed"] = 4; }), 5, "the seed draws");
  expect_line(changed([](Json& one) { one["sampling"]["temperature"] = 0; }), 5, "the seed draws");
  expect_line(changed([](Json& one) { one["manifest"] = std::string(64, 'a'); }), 5,
              "is of another model");
  expect_line(changed([](Json& one) { one["bits"] = "exact9; x"; }), 2,
              "the receipt's bits are 'exact9; x' and this machine's 'cpu 2; f32");
  expect_line(changed([](Json& one) { one["root"] = std::string(64, 'a'); }), 3,
              "the rows of this receipt are not kept, and computed again they are others");
  expect_line(changed([](Json& one) { one["model"] = "gpt9"; }), 3, "has no model 'gpt9'");
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

// A cloud whose answers to audits are changed on the way.
class Relay {
 public:
  using Change = std::function<void(wire::AuditedRows&)>;
  Relay(GatedCloud& cloud, Change change)
      : running_([&cloud, change = std::move(change)](http::Server& server) {
          server.route("POST", wire::kAuditPath, [&cloud, change](const http::Request& request) {
            http::Response response = cloud.real(request);
            if (response.status != 200) return response;
            const Json asked = Json::parse(request.body);
            const auto width =
                static_cast<uint32_t>(cloud.model().config().row_width(asked["point"]));
            wire::AuditedRows rows =
                wire::parse_audited_rows(as_bytes_of(response.body), asked["count"], width);
            change(rows);
            response.body = wire::to_frame(rows, width);
            return response;
          });
          cloud::add_routes(server, cloud.cloud);
        }) {}
  const std::string& url() const { return running_.url(); }

 private:
  Running running_;
};

TEST(Audit, FindsRowsAndPathsThatAreWrong) {
  const Auditor auditor;
  const std::string text = answer(demo().url());
  const auto changed = [&](const Relay::Change& change) {
    const Relay relay(demo(), change);
    return auditor.run(relay.url(), text);
  };
  const std::string words = "do not lead to the receipt's root";
  expect_line(changed([](auto& rows) { rows.rows.back() += 1; }), 5, words);
  expect_line(changed([](auto& rows) { rows.proof[0][5] ^= std::byte{4}; }), 5, words);
  expect_line(changed([](auto& rows) { rows.proof.pop_back(); }), 5, words);
  expect_line(changed([](auto& rows) { rows.proof.push_back({}); }), 5, words);
  EXPECT_EQ(changed([](auto&) {}).code, 0);
}

// Changes one weight of a block in the file, behind whatever was read of it.
void flip_weight(const std::filesystem::path& file, const std::string& name) {
  const std::string text = read_file(file, 64 << 20);
  const Safetensors parsed = Safetensors::parse(as_bytes_of(text), "the model");
  const TensorView& view = parsed.tensors().at(name);
  const auto at = view.bytes.data() - as_bytes_of(text).data();
  std::fstream out(file, std::ios::in | std::ios::out | std::ios::binary);
  // The lower byte of a half keeps it finite; its top bit is worth an eighth of the number.
  const auto byte = static_cast<char>(text[static_cast<size_t>(at)] ^ 0x40);
  out.seekp(at).put(byte);
}

std::string manifest_of(GatedCloud& cloud) {
  return wire::manifest_hash(
      wire::parse_model_info(Client(cloud.url()).request("GET", "/v1/models/demo").body));
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = 0; (at = text.find(what, at)) != text.npos; at += by.size()) {
    text.replace(at, what.size(), by);
  }
  return text;
}

// A cloud that shows the good model's manifest and weights, and computes, once it is told to, with
// one other number in block 3.
class Cheat {
 public:
  Cheat() {
    std::filesystem::copy(model_dir("demo"), folder_.path / "demo",
                          std::filesystem::copy_options::recursive);
    flip_weight(folder_.path / "demo/model.safetensors", "transformer.h.3.mlp.c_proj.weight");
    good_.emplace("demo");
    bad_.emplace((folder_.path / "demo").string());
    shown_ = manifest_of(*good_);
    own_ = manifest_of(*bad_);
    EXPECT_NE(shown_, own_);
    front_.emplace([this](http::Server& server) {
      for (const char* path :
           {"/v1/models/{id}", "/v1/models/{id}/files/{file}", "/v1/blobs/sha256/{hex}"}) {
        server.route("GET", path, [this](const http::Request& r) { return good_->real(r); });
      }
      for (const char* path : {"/v1/completions", wire::kAuditPath, "/v1/models/{id}/forward",
                               "/v1/sessions/{id}/forward"}) {
        server.route("POST", path, [this](const http::Request& r) { return computed(r); });
      }
      for (const char* method : {"PUT", "DELETE"}) {
        server.route(method, "/v1/sessions/{id}",
                     [this](const http::Request& r) { return computed(r); });
      }
      cloud::add_routes(server, good_->cloud);
    });
  }
  void flip() { cheats_ = true; }
  const std::string& url() const { return front_->url(); }
  GatedCloud& good() { return *good_; }

 private:
  http::Response computed(http::Request request) {
    if (!cheats_) return good_->real(request);
    request.body = replaced(request.body, shown_, own_);
    http::Response response = bad_->real(request);
    response.body = replaced(response.body, own_, shown_);
    return response;
  }
  TemporaryFolder folder_;
  std::optional<GatedCloud> good_, bad_;
  std::string shown_, own_;
  std::atomic<bool> cheats_{false};
  std::optional<Running> front_;
};

TEST(Audit, FindsACloudThatCheatsInOneBlock) {
  Cheat cheat;
  const Auditor auditor;
  const auto audited = [&] { return auditor.run(cheat.url(), answer(cheat.url()), {kMany}); };
  EXPECT_EQ(audited().code, 0);
  cheat.flip();
  const Outcome found = audited();
  expect_line(found, 5, "block 3, row ");
  EXPECT_EQ(found.out.find("block 3, "), std::string::npos) << found.out;  // else all agrees
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
  const Json schema = {{"response_format", {{"type", "json_object"}}}};
  expect_refused(post(url, "/v1/completions", asked(schema)), 400, "response_format");
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

struct Edge {
  Edge(std::string url, std::vector<std::string> more)
      : cloud(std::move(url)), server([&] {
          more.insert(more.end(), {cat("--server=", cloud), "--retry-for=1",
                                   cat("--cache=", auditor.cache().string())});
          return more;
        }()) {
    server.ready();
  }
  Outcome audited(std::vector<std::string> more = {"--rounds=12"}) {
    more.push_back(cat("--weights=", cloud));
    return auditor.run(server.url(), answer(server.url()), more);
  }
  const std::string cloud;
  Auditor auditor;
  EdgeServer server;
};

// Whichever machine computed a block: the edge gives rows of both.
TEST(EdgeAudit, AgreesWithAnswersOfPairs) {
  GatedCloud exact("demo", Profile::kInt8);
  for (GatedCloud* cloud : {&demo(), &exact}) {
    for (const char* cut : {"--cut=3", "--cut=cloud", "--cut=0", "--cut=8"}) {
      SCOPED_TRACE(cat(cut, cloud == &exact ? " int8" : ""));
      Edge edge(cloud->url(), {cut});
      const Outcome outcome = edge.audited();
      EXPECT_EQ(outcome.code, 0) << outcome.err;
    }
  }
}

// The pair's two machines are asked alike, and either one is found.
TEST(EdgeAudit, FindsACloudThatCheatsInOneBlock) {
  Cheat cheat;
  Edge edge(cheat.url(), {"--cut=5"});
  EXPECT_EQ(edge.audited().code, 0);
  cheat.flip();
  expect_line(edge.audited({kMany}), 5, "block 3, row ");
}

TEST(EdgeAudit, HasNoReceiptsWhereRowsAreOfTwoKinds) {
  Edge edge(demo().url(), {"--cut=3", "--profile=int8"});
  expect_refused(edge.server.post("/v1/completions", asked()), 400, "rows of two kinds");
  EXPECT_EQ(edge.server.post("/v1/completions", asked({{"receipt", false}})).status, 200);
  Edge alone(demo().url(), {"--cut=0", "--profile=int8"});
  EXPECT_EQ(alone.server.post("/v1/completions", asked()).status, 200);
  expect_refused(alone.server.post("/split/unsplit", asked()), 400, "have none");
}

TEST(EdgeAudit, SaysThatTheCloudOfItsRowsIsLost) {
  std::optional<Running> front(
      [](http::Server& server) { cloud::add_routes(server, demo().cloud); });
  Edge edge(front->url(), {"--cut=3"});
  const Json receipt = receipt_of(answer(edge.server.url()));
  Json other = receipt;
  other["root"] = std::string(64, 'a');
  const auto audit = [&](const Json& of) {
    return edge.server.post(wire::kAuditPath,
                            {{"receipt", of}, {"point", 1}, {"first", 0}, {"count", 2}});
  };
  expect_refused(audit(other), 410, "rows_gone");
  front.reset();
  EXPECT_EQ(audit(receipt).status, 200);  // it has these
  expect_refused(audit(other), 503, "cloud_unavailable");
}

}  // namespace
}  // namespace split::test
