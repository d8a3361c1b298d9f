// Receipts as text, and proofs that rows are a tree's.
#include <gtest/gtest.h>

#include <functional>

#include "base/resources/memory_budget.h"
#include "serve/audit/audits.h"

namespace split::wire {
namespace {

std::vector<float> numbers(size_t count, float first) {
  std::vector<float> out(count);
  for (size_t i = 0; i < count; ++i) out[i] = first + static_cast<float>(i);
  return out;
}

RowTree tree_of(size_t points, size_t rows) {
  RowTree tree;
  for (size_t point = 0; point < points; ++point) {
    tree.points.push_back(row_digests(numbers(rows * 3, static_cast<float>(point) * 100), 3));
  }
  return tree;
}

// Written down apart: SHA-256 of rows, and of 1 and two children.
TEST(RowTree, IsOfTheWrittenShape) {
  const RowTree tree = tree_of(1, 3);
  const auto sum = [](const Digests& children) {
    Sha256 sum;
    const std::byte node{1};
    sum.update({&node, 1});
    for (const Sha256::Digest& one : children) sum.update(one);
    return sum.finish();
  };
  const std::vector<float> first = numbers(3, 0);
  EXPECT_EQ(to_hex(tree.points[0][0]), Sha256::hex_of(std::as_bytes(std::span(first))));
  const Digests& rows = tree.points[0];
  EXPECT_EQ(tree.root(), to_hex(sum({sum({rows[0], rows[1]}), rows[2]})));
}

TEST(RowTree, ProvesEveryRangeAndNoOther) {
  for (size_t points = 1; points <= 5; ++points) {
    for (size_t rows = 1; rows <= 9; ++rows) {
      const RowTree tree = tree_of(points, rows);
      for (size_t point = 0; point < points; ++point) {
        for (size_t first = 0; first < rows; ++first) {
          for (size_t count = 1; first + count <= rows; ++count) {
            const Digests proof = tree.proof(point, first, count);
            const std::span<const Sha256::Digest> known =
                std::span(tree.points[point]).subspan(first, count);
            const auto proven = [&](std::span<const Sha256::Digest> of, const Digests& by,
                                    size_t at) {
              return proven_root(points, rows, at, first, of, by);
            };
            ASSERT_EQ(proven(known, proof, point), tree.root());
            Digests other(known.begin(), known.end());
            other.back()[31] ^= std::byte{1};
            ASSERT_NE(proven(other, proof, point), tree.root());
            Digests longer = proof;
            longer.push_back(known[0]);
            ASSERT_EQ(proven(known, longer, point), "");
            if (!proof.empty()) {
              ASSERT_EQ(proven(known, {proof.begin(), proof.end() - 1}, point), "");
              Digests wrong = proof;
              wrong.front()[0] ^= std::byte{128};
              ASSERT_NE(proven(known, wrong, point), tree.root());
            }
            if (points > 1) {
              ASSERT_NE(proven(known, proof, (point + 1) % points), tree.root());
            }
          }
        }
      }
    }
  }
}

using serve::AuditReceipt;

AuditReceipt parsed(const Json& json) {
  MemoryShare any;
  return serve::parse_audit_receipt(json, any);
}

AuditReceipt some_receipt() {
  AuditReceipt receipt;
  receipt.model = "m";
  receipt.bits = "exact1; x";
  receipt.tokens = {3, 1, 4};
  receipt.prompt = 2;
  receipt.manifest = std::string(64, 'a');
  receipt.root = std::string(64, 'b');
  receipt.options.sampling.seed = UINT64_MAX - 1;
  receipt.options.sampling.temperature = 0.7f;
  receipt.options.sampling.top_p = 0.1f;
  receipt.options.sampling.min_p = 0.05f;
  receipt.options.sampling.top_k = 40;
  receipt.options.sampling.repetition_penalty = 1.1f;
  receipt.options.sampling.repeat_last_n = 64;
  receipt.options.sampling.presence_penalty = -0.3f;
  receipt.options.sampling.frequency_penalty = 0.4f;
  receipt.options.sampling.logit_bias = {{5, -1.3f}, {7, 2}};
  receipt.options.min_tokens = 3;
  receipt.options.ignore_end = true;
  return receipt;
}

TEST(AuditReceipt, ReadsBackAsItIs) {
  const AuditReceipt receipt = some_receipt();
  const Json json = parse_json(to_json(receipt).dump(), 16, "it");
  const AuditReceipt again = parsed(json);
  EXPECT_EQ(to_json(again).dump(), to_json(receipt).dump());
  EXPECT_EQ(again.options.sampling.seed, receipt.options.sampling.seed);
  EXPECT_EQ(again.options.sampling.temperature, 0.7f);
  EXPECT_EQ(again.options.sampling.logit_bias[0].bias, -1.3f);
  EXPECT_TRUE(again.options.ignore_end);
  for (const char* schema : {"", R"({"type":"object","properties":{"b":{},"a":{}}})"}) {
    AuditReceipt formed = some_receipt();
    formed.form.emplace().schema = schema;
    const AuditReceipt read = parsed(parse_json(to_json(formed).dump(), 16, "it"));
    ASSERT_TRUE(read.form);
    EXPECT_EQ(read.form->schema, schema);
  }
}

// The error names the member that is wrong or missing.
void expect_refused(const std::function<void(Json&)>& spoil, const std::string& field) {
  Json json = to_json(some_receipt());
  spoil(json);
  try {
    parsed(json);
    ADD_FAILURE() << field << ": accepted " << json.dump();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput) << error.what();
    EXPECT_NE(std::string(error.what()).find(field), std::string::npos) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
  }
}

TEST(AuditReceipt, RefusesEachWayToBeWrong) {
  for (const char* name :
       {"model", "manifest", "bits", "tokens", "prompt_tokens", "sampling", "root"}) {
    expect_refused([&](Json& json) { json[name] = nullptr; }, name);
    expect_refused([&](Json& json) { json[name] = Json::object(); },
                   name == std::string("sampling") ? "seed" : name);
  }
  const std::string upper(64, 'A');
  expect_refused([&](Json& json) { json["root"] = upper; }, "root");
  expect_refused([&](Json& json) { json["manifest"] = "abc"; }, "manifest");
  expect_refused([](Json& json) { json["tokens"] = Json::array(); }, "prompt_tokens");
  expect_refused([](Json& json) { json["tokens"].push_back(-1); }, "tokens");
  expect_refused([](Json& json) { json["prompt_tokens"] = 4; }, "prompt_tokens");
  expect_refused([](Json& json) { json["sampling"]["temperature"] = -1; }, "temperature");
  expect_refused([](Json& json) { json["sampling"]["logit_bias"] = 3; }, "logit_bias");
  expect_refused([](Json& json) { json["sampling"]["more"] = 1; }, "more");
  expect_refused([](Json& json) { json["response_format"] = 1; }, "response_format");
  expect_refused([](Json& json) { json["response_format"] = Json::object(); }, "response_format");
  expect_refused([](Json& json) { json["more"] = 1; }, "more");
}

TEST(AuditedRows, ReadBackAndRefuseOtherShapes) {
  const AuditedRows rows{numbers(6, 0), row_digests(numbers(6, 9), 3)};
  const std::string frame = to_frame(rows, 3);
  const AuditedRows again = parse_audited_rows(as_bytes_of(frame), 2, 3);
  EXPECT_EQ(again.rows, rows.rows);
  EXPECT_EQ(again.proof, rows.proof);
  EXPECT_THROW(parse_audited_rows(as_bytes_of(frame), 3, 3), Error);
  EXPECT_THROW(parse_audited_rows(as_bytes_of(frame), 1, 3), Error);
  EXPECT_THROW(parse_audited_rows(as_bytes_of(frame), 2, 2), Error);
  EXPECT_THROW(parse_audited_rows(as_bytes_of(frame).first(40), 2, 3), Error);
  const std::string bare = wire::frame("rows", 2, 3, rows.rows);
  EXPECT_THROW(parse_audited_rows(as_bytes_of(bare), 2, 3), Error);
}

TEST(ManifestHash, IsOfTheWeightsAndTheConfigAlone) {
  ModelInfo info;
  info.config_json = R"({"b":1,"a":2})";
  info.stages = {{"embed", "f16", {{{1, "x", {}}, "wte", "f16"}}}};
  const std::string hash = manifest_hash(info);
  ModelInfo same = info;
  same.id = "other";
  same.config_json = R"({"a": 2, "b": 1})";
  same.stages[0].blobs.push_back({{1, "y", {}}, "wte", "q8_0"});
  EXPECT_EQ(manifest_hash(same), hash);
  for (const auto& spoil : std::vector<std::function<void(ModelInfo&)>>{
           [](ModelInfo& one) { one.config_json = R"({"a":2,"b":2})"; },
           [](ModelInfo& one) { one.stages[0].blobs[0].sha256 = "z"; },
           [](ModelInfo& one) { one.stages[0].name = "head"; },
           [](ModelInfo& one) { one.stages.pop_back(); }}) {
    ModelInfo other = info;
    spoil(other);
    EXPECT_NE(manifest_hash(other), hash);
  }
}

}  // namespace
}  // namespace split::wire
