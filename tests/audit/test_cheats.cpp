// edge_client audit against a cloud that computes with another weight than its manifest says, and
// those whose receipts, rows or paths are wrong.
#include "audit/audited.h"

namespace split::test {
namespace {

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

}  // namespace
}  // namespace split::test
