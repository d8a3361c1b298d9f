// wire/: the manifest that a server sends, as the edge reads it.
#include <gtest/gtest.h>

#include <random>

#include "support/attack_files.h"
#include "wire/protocol.h"

namespace split::wire {
namespace {

std::string error_of(const std::string& manifest) {
  try {
    parse_model_info(manifest);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput) << error.what();
    return error.what();
  }
  return "";
}

constexpr test::Attack kAttacks[] = {
    {"empty", "the body is not valid JSON at byte 1"},
    {"json_cut", "the body is not valid JSON at byte 510"},
    {"json_not_utf8", "the body is not valid JSON at byte 8"},
    {"json_deep", "the body nests deeper than 16 objects and arrays"},
    {"key_twice", "the body has the key 'id' twice"},
    {"not_object", "the body: expected a JSON object"},
    {"no_id", "'id': is missing"},
    {"id_number", "'id': expected a string"},
    {"no_config", "'config': is missing"},
    {"config_text", "'config': expected an object"},
    {"no_format", "'format': is missing"},
    {"profile_number", "'profile': expected a string"},
    {"phases_list", "'phases': expected an object with \"generate\""},
    {"phases_without_generate", "'phases': expected an object with \"generate\""},
    {"files_number", "'files': expected a list of at most 16 files"},
    {"files_many", "'files': expected a list of at most 16 files"},
    {"files_of_numbers", "'files': expected objects with \"name\", \"bytes\" and \"sha256\""},
    {"files_without_hashes", "'files': expected objects with \"name\", \"bytes\" and \"sha256\""},
    {"files_twice", "'files': expected each file once, got 'config.json' twice"},
    {"file_name_number", "'name': expected a string"},
    {"file_without_bytes", "'bytes': is missing"},
    {"file_bytes_negative", "'bytes': expected a whole number in 0..1125899906842624"},
    {"file_bytes_max", "'bytes': expected a whole number in 0..1125899906842624"},
    {"file_without_sha256", "'sha256': is missing"},
    {"file_sha256_short", "'sha256': expected 64 hex digits"},
    {"file_sha256_upper_case", "'sha256': expected 64 hex digits"},
    {"file_sha256_path", "'sha256': expected 64 hex digits"},
    {"no_stages", "'stages': is missing"},
    {"stages_object", "'stages': expected a list of stages"},
    {"stages_many", "'stages': expected a list of stages"},
    {"stage_text", "the body: expected a JSON object inside a list"},
    {"stage_without_name", "'name': is missing"},
    {"stage_without_format", "'format': is missing"},
    {"stage_without_blobs", "'blobs': is missing"},
    {"blobs_text", "'blobs': expected a list of blobs"},
    {"blob_list", "the body: expected a JSON object inside a list"},
    {"blob_name_null", "'name': is missing"},
    {"blob_format_number", "'format': expected a string"},
    {"bytes_negative", "'bytes': expected a whole number in 1..1125899906842624"},
    {"bytes_fraction", "'bytes': expected a whole number in 1..1125899906842624"},
    {"bytes_text", "'bytes': expected a whole number in 1..1125899906842624"},
    {"bytes_over_50_bits", "'bytes': expected a whole number in 1..1125899906842624"},
    {"bytes_max", "'bytes': expected a whole number in 1..1125899906842624"},
    {"sha256_upper_case", "'sha256': expected 64 hex digits"},
    {"sha256_short", "'sha256': expected 64 hex digits"},
    {"sha256_path", "'sha256': expected 64 hex digits"},
    {"sha256_number", "'sha256': expected a string"},
    {"no_chunks", "'chunks': is missing"},
    {"chunks_text", "'chunks': expected a list of 1 hashes for 1000 bytes, got none"},
    {"chunks_empty", "'chunks': expected a list of 1 hashes for 1000 bytes, got 0"},
    {"chunks_less", "'chunks': expected a list of 2 hashes for 1048577 bytes, got 1"},
    {"chunks_more", "'chunks': expected a list of 1 hashes for 1000 bytes, got 2"},
    {"chunks_many",
     "'chunks': expected a list of 1073741824 hashes for 1125899906842624 bytes, got 1"},
    {"chunk_number", "'chunks': expected 64 hex digits each"},
    {"chunk_short", "'chunks': expected 64 hex digits each"},
    {"chunk_long", "'chunks': expected 64 hex digits each"},
    {"chunk_upper_case", "'chunks': expected 64 hex digits each"},
    {"chunk_not_the_blob", "'chunks': expected the blob's sha256 for its only chunk"},
    {"one_hash_two_sizes", "'sha256': expected one size and one list of chunks for one hash"},
    {"one_hash_two_lists", "'sha256': expected one size and one list of chunks for one hash"},
};

TEST(ManifestAttacks, RefusesEachAttackWithItsOwnMessage) {
  test::expect_refused(".manifest", kAttacks, "", error_of);
}

TEST(ManifestAttacks, RefusesWhatIsTooLarge) {
  EXPECT_EQ(error_of(std::string((8 << 20) + 1, ' ')),
            "the body: expected at most 8388608 bytes of JSON, got 8388609");
}

// Whatever is taken can be said again and is the same.
TEST(ManifestAttacks, EveryDamageIsRefusedOrMeansSomething) {
  const std::string good = read_file(test::attack_file("good.manifest"), 1 << 20);
  const auto check = [](const std::string& text) {
    try {
      const ModelInfo info = parse_model_info(text);
      EXPECT_EQ(to_json(parse_model_info(to_json(info))), to_json(info));
      for (const StageInfo& stage : info.stages) {
        for (const BlobInfo& blob : stage.blobs) EXPECT_TRUE(is_lower_hex(blob.sha256, 64));
      }
      for (const FileInfo& file : info.files) EXPECT_TRUE(is_lower_hex(file.sha256, 64));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
    }
  };
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string text = good;
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ 1 << bit % 8);
    check(text);
  }
  std::mt19937_64 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::string text = good;
    text.erase(random() % text.size(), random() % 8);
    for (uint64_t n = random() % 4; n > 0; --n) {
      text[random() % text.size()] = static_cast<char>(random());
    }
    check(text);
  }
}

}  // namespace
}  // namespace split::wire
