// The manifest of a model: sums that are right whatever the pieces, and manifests that contradict
// themselves.
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "wire/protocol.h"

namespace split::wire {
namespace {

using Json = nlohmann::json;

std::string bytes_of_length(size_t length) {
  std::string text(length, '\0');
  uint32_t state = 1;
  for (char& c : text) {
    state = state * 1664525 + 1013904223;
    c = static_cast<char>(state >> 24);
  }
  return text;
}

BlobSums sums_of(std::string_view text, size_t piece) {
  BlobSummer summer;
  for (size_t at = 0; at < text.size(); at += piece) {
    summer.update(as_bytes_of(text.substr(at, piece)));
  }
  return summer.finish();
}

TEST(BlobSums, AreOfTheWholeAndOfEachMebibyteWhateverThePieces) {
  constexpr size_t kMebibyte = 1 << 20;
  for (const size_t length : {size_t{1}, kMebibyte - 1, kMebibyte, kMebibyte + 1, 3 * kMebibyte}) {
    const std::string text = bytes_of_length(length);
    for (const size_t piece : {size_t{1000}, kMebibyte, 10 * kMebibyte}) {
      const BlobSums sums = sums_of(text, piece);
      EXPECT_EQ(sums.bytes, length);
      EXPECT_EQ(sums.sha256, Sha256::hex_of(as_bytes_of(text)));
      ASSERT_EQ(sums.chunks.size(), (length + kMebibyte - 1) / kMebibyte);
      ASSERT_EQ(sums.chunks.size(), chunk_count(length));
      for (size_t i = 0; i < sums.chunks.size(); ++i) {
        const std::string chunk = text.substr(i * kMebibyte, kMebibyte);
        EXPECT_EQ(chunk_size(length, i), chunk.size());
        EXPECT_EQ(sums.chunks[i], Sha256::hex_of(as_bytes_of(chunk)));
      }
    }
  }
}

class Manifest : public testing::Test {
 protected:
  Manifest() {
    info.id = "m";
    info.config_json = "{}";
    info.format = info.profile = "f32";
    info.generate_phase = "narrow";
    info.files = {{"config.json", 2, Sha256::hex_of(as_bytes_of("{}"))}, {"vocab.json", 0, kNone}};
    info.stages.push_back(
        {"embed", "f32", {{sums_of(bytes_of_length(3 << 20), 1 << 20), "wte", "f32"}}});
    info.stages.push_back({"norm", "f32", {{sums_of("abc", 3), "ln_f", "f32"}}});
    info.stages.push_back({"head", "f32", {info.stages[0].blobs[0]}});
    good = Json::parse(to_json(info));
  }
  Json& blob(Json& json, size_t stage) { return json["stages"][stage]["blobs"][0]; }
  void expect_refusal(const Json& json, const std::string& part) {
    try {
      parse_model_info(json.dump());
      ADD_FAILURE() << "not refused: " << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
  const std::string kNone = Sha256::hex_of({});
  ModelInfo info;
  Json good;
};

TEST_F(Manifest, OfAnEarlierServerHasNoFeatures) {
  for (const char* field : {"features", "bits", "phases_alike"}) good.erase(field);
  const ModelInfo parsed = parse_model_info(good.dump());
  EXPECT_TRUE(parsed.features.empty() && parsed.bits.empty() && !parsed.phases_alike);
  good["features"] = {"to", "fill"};
  good["bits"] = "cpu 1; f32";
  good["phases_alike"] = true;
  const ModelInfo now = parse_model_info(good.dump());
  EXPECT_EQ(now.features, (std::vector<std::string>{"to", "fill"}));
  EXPECT_EQ(now.bits, "cpu 1; f32");
  EXPECT_TRUE(now.phases_alike);
  EXPECT_EQ(Json::parse(to_json(now)), good);
}

TEST_F(Manifest, SaysWhatAModelIsAndHowFarItsTextsGo) {
  for (const char* field : {"kind", "architecture", "stops"}) good.erase(field);
  EXPECT_EQ(parse_model_info(good.dump()).kind, "decoder");
  EXPECT_EQ(parse_model_info(good.dump()).context, 0);
  good["kind"] = "decoder";
  good["architecture"] = "llama";
  good["max_context"] = 131072;
  good["context"] = 4096;
  good["stops"] = {128001, 128009};
  const ModelInfo now = parse_model_info(good.dump());
  EXPECT_EQ(now.architecture, "llama");
  EXPECT_EQ(now.max_context, 131072);
  EXPECT_EQ(now.context, 4096);
  EXPECT_EQ(now.stops, (std::vector<int>{128001, 128009}));
  EXPECT_EQ(Json::parse(to_json(now)), good);
  good["context"] = 0;
  EXPECT_THROW(parse_model_info(good.dump()), Error);
  good["context"] = 1;
  good["stops"] = {-1};
  EXPECT_THROW(parse_model_info(good.dump()), Error);
}

TEST_F(Manifest, SaysWhatRowsHaveBesideTheirHiddenStates) {
  EXPECT_TRUE(parse_model_info(good.dump()).row_parts.empty());
  good["row_parts"] = {{{"name", "inputs"}, {"columns", 12}, {"each", 4}, {"from", 0}, {"to", 2}},
                       {{"name", "keys.1"}, {"columns", 8}, {"each", 0}, {"from", 2}, {"to", 2}}};
  const ModelInfo now = parse_model_info(good.dump());
  EXPECT_EQ(now.row_parts, (std::vector<RowPart>{{"inputs", 12, 4, 0, 2}, {"keys.1", 8, 0, 2, 2}}));
  EXPECT_EQ(Json::parse(to_json(now)), good);
  good["row_parts"][1]["to"] = 1;  // before it begins
  EXPECT_THROW(parse_model_info(good.dump()), Error);
  good["row_parts"] = 3;
  EXPECT_THROW(parse_model_info(good.dump()), Error);
}

TEST_F(Manifest, ComesBackAsItWas) {
  const ModelInfo parsed = parse_model_info(good.dump());
  EXPECT_EQ(Json::parse(to_json(parsed)), good);
  EXPECT_EQ(parsed.stages[0].blobs[0], info.stages[0].blobs[0]);
}

TEST_F(Manifest, ThatContradictsItselfIsRefused) {
  const std::string other(64, 'a');
  const std::pair<const char*, std::function<void(Json&)>> lies[] = {
      {"expected a list of 3 hashes for 3145728 bytes, got 2",
       [&](Json& json) { blob(json, 0)["chunks"].erase(2); }},
      {"expected a list of 3 hashes for 3145728 bytes, got 4",
       [&](Json& json) { blob(json, 0)["chunks"].push_back(other); }},
      {"expected a list of 4 hashes for 3145729 bytes, got 3",
       [&](Json& json) { blob(json, 0)["bytes"] = (3 << 20) + 1; }},
      {"expected a list of 1073741824 hashes for 1125899906842624 bytes, got 3",
       [&](Json& json) { blob(json, 0)["bytes"] = int64_t{1} << 50; }},
      {"'bytes'", [&](Json& json) { blob(json, 0)["bytes"] = (int64_t{1} << 50) + 1; }},
      {"'bytes'", [&](Json& json) { blob(json, 0)["bytes"] = 0; }},
      {"'bytes'", [&](Json& json) { blob(json, 0)["bytes"] = -1; }},
      {"'chunks'", [&](Json& json) { blob(json, 0).erase("chunks"); }},
      {"hashes for 3145728 bytes, got none", [&](Json& json) { blob(json, 0)["chunks"] = other; }},
      {"64 hex digits each", [&](Json& json) { blob(json, 0)["chunks"][1] = 7; }},
      {"64 hex digits each", [&](Json& json) { blob(json, 0)["chunks"][1] = other + "a"; }},
      {"64 hex digits each",
       [&](Json& json) { blob(json, 0)["chunks"][1] = std::string(64, 'A'); }},
      {"'sha256'", [&](Json& json) { blob(json, 0)["sha256"] = other + "a"; }},
      {"for its only chunk", [&](Json& json) { blob(json, 1)["chunks"][0] = other; }},
      {"for its only chunk", [&](Json& json) { blob(json, 1)["sha256"] = other; }},
      {"one size and one list",
       [&](Json& json) {
         blob(json, 2)["bytes"] = (2 << 20) + 1;  // as many chunks, another size
       }},
      {"one size and one list", [&](Json& json) { blob(json, 2)["chunks"][0] = other; }},
  };
  for (const auto& [part, lie] : lies) {
    Json json = good;
    lie(json);
    expect_refusal(json, part);
  }
}

}  // namespace
}  // namespace split::wire
