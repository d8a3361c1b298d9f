// io/gguf_tokenizer: a GGUF file's texts become the same tokens and chats as those of the directory
// that it was made of.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>

#include "base/file.h"
#include "base/json.h"
#include "io/checkpoint.h"
#include "io/gguf_tokenizer.h"
#include "support/gguf/file.h"
#include "support/temporary_folder.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace split {
namespace {

namespace fs = std::filesystem;

const fs::path kModels = fs::path(SPLIT_SOURCE_DIR) / "tests/golden/models";

struct Made {
  const char *file, *from, *strings;
};
const Made kMade[] = {
    {"llama3-f16.gguf", "llama3", "bpe-llama3"}, {"llama-q4_k_m.gguf", "llama3", "bpe-llama3"},
    {"llama2-f16.gguf", "llama2", "spm-llama2"}, {"qwen2-f16.gguf", "qwen2", "bpe-qwen2"},
    {"qwen3-bf16.gguf", "qwen3", "bpe-qwen2"},   {"bert-mean-f16.gguf", "st-minilm", "wordpiece"}};

using Files = std::map<std::string, std::string>;

Files files_of(const fs::path& gguf) {
  const MappedFile file(gguf);
  return gguf_text_files(Gguf::parse(file.bytes(), gguf.string()), false);
}

Files files_in(const fs::path& directory) {
  Files files;
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}) {
    if (fs::exists(directory / name)) files[name] = read_file(directory / name, 4 << 20);
  }
  return files;
}

std::vector<std::string> names_of(const Files& files) {
  std::vector<std::string> names;
  for (const auto& [name, text] : files) names.push_back(name);
  return names;
}

class GgufTokenizer : public testing::TestWithParam<Made> {
 protected:
  const Files gguf = files_of(kModels / "gguf" / GetParam().file);
  const Files directory = files_in(kModels / GetParam().from);
};

void expect_same_tokens(const Files& gguf, const Files& directory, const char* with) {
  const auto of = [](const Files& files) {
    return load_tokenizer(
        names_of(files), [&](const char* name) { return files.at(name); }, "FILE");
  };
  const std::optional<Tokenizer> ours = of(gguf), theirs = of(directory);
  ASSERT_TRUE(ours && theirs);
  EXPECT_EQ(ours->size(), theirs->size());
  const Json strings =
      parse_json(read_file(kModels / "tokenizers" / with / "strings.json", 4 << 20), 8, "x");
  for (const Json& one : strings["strings"]) {
    const std::string& text = one["text"].text();
    for (const bool special : {false, true}) {
      const EncodeOptions options{.add_special = special, .parse_special = special};
      const std::vector<int32_t> ids = ours->encode(text, options);
      ASSERT_EQ(ids, theirs->encode(text, options)) << one.dump();
      EXPECT_EQ(ours->decode(ids), theirs->decode(ids)) << one.dump();
      EXPECT_EQ(ours->decode(ids, true), theirs->decode(ids, true)) << one.dump();
    }
  }
}

TEST_P(GgufTokenizer, IsThatOfTheDirectory) {
  expect_same_tokens(gguf, directory, GetParam().strings);
}

TEST_P(GgufTokenizer, HasTheChatOfTheDirectory) {
  const auto of = [](const Files& files) {
    return ChatTemplate::of_files(names_of(files),
                                  [&](const char* name) { return files.at(name); });
  };
  const std::optional<ChatTemplate> ours = of(gguf), theirs = of(directory);
  ASSERT_EQ(ours.has_value(), theirs.has_value());
  if (!ours) return;
  const ChatInput chat{.messages = parse_json(
                           R"([{"role":"user","content":"hi"},{"role":"assistant","content":"ho"},
                               {"role":"user","content":"then?"}])",
                           8, "messages"),
                       .tools = {}};
  EXPECT_EQ(ours->render(chat), theirs->render(chat));
}

// Byte-level and SentencePiece-like tokenizers of families of which there is no file, as
// llama.cpp's converter writes them.
class WrittenTokenizer : public testing::TestWithParam<Made> {
 protected:
  static test::GgufFile written() {
    const fs::path from = kModels / GetParam().from;
    const auto json = [&](const char* name) {
      return parse_json(read_file(from / name, 4 << 20), 16, name);
    };
    const Json tokenizer = json("tokenizer.json"), &model = tokenizer["model"];
    const bool gemma = GetParam().file == std::string("gemma4");
    enum : int32_t { kNormal = 1, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };
    std::vector<std::string> tokens, merges;
    std::vector<int32_t> types;
    const auto add = [&](const Json& id, const std::string& token, int32_t type) {
      const auto at = id.get<size_t>();
      if (at >= tokens.size()) tokens.resize(at + 1, "[PAD]"), types.resize(at + 1, kUnused);
      tokens[at] = token, types[at] = type;
    };
    for (const auto& [token, id] : model["vocab"].members()) {
      add(id, token, gemma && token.starts_with("<0x") ? kByte : kNormal);
    }
    for (const Json& one : tokenizer["added_tokens"]) {
      add(one["id"], one["content"].text(), one["special"].get<bool>() ? kControl : kUserDefined);
    }
    for (const Json& merge : model["merges"]) {
      merges.push_back(merge.is_array() ? cat(merge[0].text(), " ", merge[1].text())
                                        : merge.text());
    }
    test::GgufFile file;
    file.text("tokenizer.ggml.model", gemma ? "gemma4" : "gpt2");
    if (!gemma) file.text("tokenizer.ggml.pre", GetParam().file);
    file.texts("tokenizer.ggml.tokens", tokens);
    file.numbers("tokenizer.ggml.token_type", 5, types);
    file.texts("tokenizer.ggml.merges", merges);
    if (gemma) file.numbers("tokenizer.ggml.scores", 6, std::vector<float>(tokens.size()));
    const auto id = [&](const char* token) {
      return static_cast<uint64_t>(std::ranges::find(tokens, token) - tokens.begin());
    };
    file.integer("tokenizer.ggml.eos_token_id", id(gemma ? "<end_of_turn>" : "<|im_end|>"));
    if (gemma) {
      file.integer("tokenizer.ggml.bos_token_id", id("<bos>"));
      file.flag("tokenizer.ggml.add_bos_token", true);
      file.flag("tokenizer.ggml.add_space_prefix", false);
    }
    return file;
  }
};

TEST_P(WrittenTokenizer, IsThatOfTheDirectory) {
  const test::TemporaryFolder dir;
  written().write(dir.path / "tokenizer.gguf");
  const Files ours = files_of(dir.path / "tokenizer.gguf"),
              theirs = files_in(kModels / GetParam().from);
  expect_same_tokens(ours, theirs, GetParam().strings);
  const bool gemma = GetParam().file == std::string("gemma4");
  // The golden strings have no marks that merge with letters.
  if (!gemma) {
    const auto pattern = [](const Files& files) {
      const Json json = parse_json(files.at("tokenizer.json"), 16, "x");
      return json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"].text();
    };
    EXPECT_EQ(pattern(ours), pattern(theirs));
  }
  EXPECT_EQ(ours.at("generation_config.json"),
            gemma ? R"({"eos_token_id":[814,1]})" : R"({"eos_token_id":[638,636]})");
}

INSTANTIATE_TEST_SUITE_P(Families, WrittenTokenizer,
                         testing::Values(Made{"qwen35", "qwen35", "bpe-qwen35"},
                                         Made{"gemma4", "gemma4", "spm-gemma"}),
                         [](const auto& one) { return std::string(one.param.file); });

INSTANTIATE_TEST_SUITE_P(Files, GgufTokenizer, testing::ValuesIn(kMade), [](const auto& one) {
  std::string name(one.param.file);
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
});

TEST(GgufTexts, AreAmongTheFilesOfACheckpoint) {
  const Checkpoint checkpoint(kModels / "gguf/llama3-f16.gguf");
  EXPECT_EQ(checkpoint.files(),
            (std::vector<std::string>{"config.json", "tokenizer.json", "tokenizer_config.json",
                                      "generation_config.json", "chat_template.jinja"}));
  EXPECT_EQ(checkpoint.file("generation_config.json"), R"({"eos_token_id":[650]})");
}

// A text ends at the end of a turn too, which has a key of its own (T7).
TEST(GgufTexts, NameEveryStop) {
  std::string bytes = read_file(kModels / "gguf/llama3-f16.gguf", 64 << 20);
  const std::string key = "tokenizer.ggml.bos_token_id";
  bytes.replace(bytes.find(key), key.size(), "tokenizer.ggml.eot_token_id");
  const Files files = gguf_text_files(Gguf::parse(as_bytes_of(bytes), "there"), false);
  EXPECT_EQ(files.at("generation_config.json"), R"({"eos_token_id":[650,642]})");
}

}  // namespace
}  // namespace split
