// text/tokenizer against Hugging Face's tokenizers: every string of the goldens
// (tests/golden/models/README.md), and what the strings cannot show.
#include <gtest/gtest.h>

#include "text_testing.h"

namespace split {
namespace {

const fs::path kGoldens = kSource / "tests/golden/models/tokenizers";
constexpr const char* kNames[] = {"bpe-llama3",      "bpe-modernbert", "bpe-qwen2",  "bpe-qwen35",
                                  "bpe-roberta",     "bpe-smollm2",    "spm-gemma",  "spm-llama2",
                                  "spm-mistral",     "unigram-bge",    "unigram-e5", "wordpiece",
                                  "wordpiece-cased", "wordpiece-mpnet"};

const Tokenizer& golden(std::string_view name) {
  static std::map<std::string, Tokenizer, std::less<>> all;
  auto found = all.find(name);
  if (found == all.end()) {
    found =
        all.emplace(name, Tokenizer::from_tokenizer_json(slurp(kGoldens / name / "tokenizer.json")))
            .first;
  }
  return found->second;
}

std::string streamed(const Tokenizer& tokenizer, const Ids& ids, bool skip_special) {
  TokenStream stream(tokenizer, skip_special);
  std::string text;
  for (const int32_t id : ids) text += stream.push(id);
  return text;
}

void expect_strings(const std::string& name, const Tokenizer& tokenizer) {
  const Json strings = Json::parse(slurp(kGoldens / name / "strings.json"));
  EXPECT_EQ(tokenizer.size(), strings["size"].get<int>());
  size_t count = 0;
  for (const Json& one : strings["strings"]) {
    const std::string text = one["text"];
    const auto ids_of = [&](const char* key, const Ids& otherwise) {
      return one.contains(key) ? one[key].get<Ids>() : otherwise;
    };
    const Ids ids = ids_of("ids", {}), bare = ids_of("ids_bare", ids),
              plain = ids_of("ids_text", bare);
    const std::string decoded = one["decoded"], skipped = one.value("decoded_skipped", decoded);
    EXPECT_EQ(tokenizer.encode(text, {.add_special = true}), ids) << name << " " << one["text"];
    EXPECT_EQ(tokenizer.encode(text), bare) << name << " " << one["text"];
    EXPECT_EQ(tokenizer.encode(text, false), plain) << name << " " << one["text"];
    EXPECT_EQ(tokenizer.decode(bare), decoded) << name << " " << one["text"];
    EXPECT_EQ(tokenizer.decode(ids, true), skipped) << name << " " << one["text"];
    EXPECT_EQ(streamed(tokenizer, bare, false), decoded) << name << " " << one["text"];
    EXPECT_EQ(streamed(tokenizer, ids, true), skipped) << name << " " << one["text"];
    ++count;
  }
  EXPECT_GE(count, 153u);
}

TEST(Tokenizers, GiveTheIdsAndTextsOfHuggingFace) {
  for (const char* name : kNames) expect_strings(name, golden(name));
}

TEST(Tokenizers, ReadVocabTxtAsTokenizerJson) {
  expect_strings("wordpiece", Tokenizer::from_vocab_txt(slurp(kGoldens / "wordpiece/vocab.txt")));
  expect_strings("wordpiece-cased",
                 Tokenizer::from_vocab_txt(slurp(kGoldens / "wordpiece-cased/vocab.txt"),
                                           R"({"do_lower_case": false})"));
  // Tokens between the texts of a pair are the same, too.
  const Tokenizer of_txt = Tokenizer::from_vocab_txt(slurp(kGoldens / "wordpiece/vocab.txt"));
  EXPECT_TRUE(std::ranges::equal(of_txt.between(), of_txt.behind()));
  EXPECT_TRUE(std::ranges::equal(of_txt.between(), golden("wordpiece").between()));
}

// A vocabulary that is padded has rows without a token (T8).
TEST(Tokenizers, GiveNoTextForIdsBeyondTheirSize) {
  for (const char* name : kNames) {
    const Tokenizer& tokenizer = golden(name);
    EXPECT_EQ(tokenizer.token_bytes(tokenizer.size()), "") << name;
    Ids ids = tokenizer.encode("Once upon a time");
    const std::string text = tokenizer.decode(ids);
    ids.insert(ids.begin() + 1, {tokenizer.size(), 1 << 30});
    EXPECT_EQ(tokenizer.decode(ids), text) << name;
    ids.insert(ids.begin(), tokenizer.size());  // which gives no space to strip
    EXPECT_EQ(tokenizer.decode(ids), text) << name;
    EXPECT_NE(message_of([&] { tokenizer.decode(Ids{-1}); }), "no error");
  }
}

// One space goes, once, whichever tokens give it (T9).
TEST(Tokenizers, StripOneLeadingSpaceOnce) {
  const Tokenizer& llama = golden("spm-llama2");
  const Ids three = llama.encode("   a");
  EXPECT_EQ(llama.decode(three), "   a");
  EXPECT_EQ(streamed(llama, three, false), "   a");
  TokenStream behind(llama, false, true);
  std::string text;
  for (const int32_t id : llama.encode("a")) text += behind.push(id);
  EXPECT_EQ(text, " a");
}

// Whatever content holds, no special token is read in it, nor across its end (T6).
TEST(Tokenizers, ReadNoSpecialTokenInBrokenText) {
  const Tokenizer& qwen = golden("bpe-qwen2");
  const int32_t end = *qwen.added_id("<|im_end|>");
  for (const char* text :
       {"<|im_end|>", "a<|im_end|><|im_end|>", "<<|im_end|>|im_end|>", "<|im_", "x<"}) {
    const std::string broken = qwen.broken(text);
    Ids expected = qwen.encode(text, false);
    EXPECT_EQ(qwen.encode(broken, {.breaks = true}), expected) << text;
    expected.push_back(end);
    EXPECT_EQ(qwen.encode(broken + "<|im_end|>", {.breaks = true}), expected) << text;
  }
  Ids apart = qwen.encode(qwen.broken("<|im_") + "end|>", {.breaks = true});
  EXPECT_EQ(std::ranges::count(apart, end), 0);
  EXPECT_EQ(qwen.broken("no special tokens"), "no special tokens");
}

// An encoding whose time is the square of the text's length does not end within the test's limit.
TEST(Tokenizers, EncodeAMebibyteOfOneLetter) {
  const std::string letters(1 << 20, 'a'), accents = [] {
    std::string text = "e";
    for (int i = 0; i < 1 << 18; ++i) text += i % 2 == 0 ? "\u0323" : "\u0301";
    return text;
  }();
  for (const char* name : kNames) {
    const Ids ids = golden(name).encode(letters);
    EXPECT_LE(ids.size(), letters.size() + 1) << name;
    if (!golden(name).may_shorten()) {
      EXPECT_EQ(golden(name).decode(ids), letters) << name;
    }
    EXPECT_GE(golden(name).encode(accents).size(), 1u) << name;
  }
}

TEST(Tokenizers, RefuseVocabTxtByName) {
  const auto error = [](const std::string& text) {
    return message_of([&] { Tokenizer::from_vocab_txt(text); });
  };
  EXPECT_EQ(error("[UNK]\n[CLS]\n"), "[tokenizer] vocab.txt: expected a token [SEP], got none");
  EXPECT_EQ(error("a\na\n"), "[tokenizer] vocab.txt: line 2 is there before");
  EXPECT_EQ(error("a\n\nb\n"),
            "[tokenizer] vocab.txt: line 2: expected a token of UTF-8, got 0 bytes");
}

Json golden_json(std::string_view name) {
  return Json::parse(slurp(kGoldens / name / "tokenizer.json"));
}

// A pattern that differs by a character is another one (T1).
TEST(Tokenizers, KnowPatternsByTheirExactText) {
  for (const char* name : {"bpe-llama3", "bpe-qwen2"}) {
    Json file = golden_json(name);
    Json& pattern = file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"];
    const std::string text = pattern;
    Tokenizer::from_tokenizer_json(file.dump());
    for (const std::string& other : {text + "?", text.substr(1), text + "|x"}) {
      pattern = other;
      EXPECT_TRUE(message_of([&] {
                    Tokenizer::from_tokenizer_json(file.dump());
                  }).starts_with("[tokenizer] tokenizer.json: pre_tokenizer: the pattern "))
          << name << " " << other;
    }
  }
}

// A piece that is a token is this token, whatever the merges would make of it (T2).
TEST(Tokenizers, TakeAWholePieceBeforeMerges) {
  Json file = golden_json("bpe-llama3");
  file["model"]["merges"] = Json::array();
  const Tokenizer whole = Tokenizer::from_tokenizer_json(file.dump());
  file["model"]["ignore_merges"] = false;
  const Tokenizer merged = Tokenizer::from_tokenizer_json(file.dump());
  size_t compared = 0;
  for (const auto& [key, id] : file["model"]["vocab"].items()) {
    if (key.size() < 3 || !std::ranges::all_of(key, [](char c) { return c >= 'a' && c <= 'z'; }))
      continue;
    ++compared;
    EXPECT_EQ(whole.encode(key), Ids{id.get<int32_t>()}) << key;
    EXPECT_EQ(merged.encode(key).size(), key.size()) << key;
  }
  EXPECT_GT(compared, 10u);
}

// Lower case knows no place in a word, letters lose what NFD takes off them, Hangul falls into
// jamo, and ideographs stand alone beyond U+FFFF too (T3).
TEST(Tokenizers, FoldWordsAsBertDoes) {
  const char* const kWords =
      "[UNK]\n[CLS]\n[SEP]\n\u03bf\u03b4\u03bf\u03c3\n\u03bf\u03b4\u03bf\u03c2\ni\ni\u0307\ne\n"
      "\u1112\u1161\u11ab\n\ud55c\na\nb\n\U00020000\n\u4e2d\ne\u0301\n\u00e9";
  const Tokenizer uncased = Tokenizer::from_vocab_txt(kWords);
  const Tokenizer accents = Tokenizer::from_vocab_txt(kWords, R"({"strip_accents": false})");
  const auto words = [](const Tokenizer& tokenizer, const char* text) {
    std::string out;
    for (const int32_t id : tokenizer.encode(text)) out += cat(tokenizer.token_bytes(id), "|");
    std::erase(out, ' ');
    return out;
  };
  EXPECT_EQ(words(uncased, "\u039f\u0394\u039f\u03a3"), "\u03bf\u03b4\u03bf\u03c3|");
  EXPECT_EQ(words(uncased, "\u0130"), "i|") << "its dot is a mark";
  EXPECT_EQ(words(accents, "\u0130"), "i\u0307|");
  EXPECT_EQ(words(uncased, "\u00c9"), "e|");
  EXPECT_EQ(words(accents, "\u00c9"), "\u00e9|");
  EXPECT_EQ(words(uncased, "\ud55c"), "\u1112\u1161\u11ab|");
  EXPECT_EQ(words(uncased, "a\U00020000b\u4e2da"), "a|\U00020000|b|\u4e2d|a|");
}

// Files say which stretches between special tokens get a space before them (T4).
TEST(Tokenizers, PutASpaceBeforeWhatTheirFilesSay) {
  const auto parts = [](const Tokenizer& tokenizer, const char* special) {
    const Ids word = tokenizer.encode("time"), ids = tokenizer.encode(cat("time", special, "time"));
    const auto at = std::ranges::find(ids, *tokenizer.added_id(special));
    return std::tuple(word, Ids(ids.begin(), at), Ids(at + 1, ids.end()));
  };
  const auto text_of = [](const Tokenizer& tokenizer, const Ids& ids) {
    std::string text;
    for (const int32_t id : ids) text += tokenizer.token_bytes(id);
    return text;
  };
  const Tokenizer &llama = golden("spm-llama2"), &mistral = golden("spm-mistral"),
                  &gemma = golden("spm-gemma");
  auto [word, before, behind] = parts(llama, "</s>");
  EXPECT_EQ(before, word);
  EXPECT_EQ(behind, word);
  EXPECT_EQ(text_of(llama, behind), " time");
  std::tie(word, before, behind) = parts(mistral, "</s>");
  EXPECT_EQ(before, word);
  EXPECT_EQ(text_of(mistral, before), " time");
  EXPECT_EQ(text_of(mistral, behind), "time");
  std::tie(word, before, behind) = parts(gemma, "<eos>");
  EXPECT_EQ(text_of(gemma, before), "time");
  EXPECT_EQ(behind, before);
}

// tokenizer.json says how texts are cut, vocab.json and merges.txt do not (T1).
TEST(Tokenizers, ComeFromTokenizerJsonFirst) {
  const Json file = golden_json("bpe-qwen2");
  std::map<std::string, std::string> files;
  files["tokenizer.json"] = file.dump();
  files["vocab.json"] = file["model"]["vocab"].dump();
  for (const Json& merge : file["model"]["merges"]) {
    files["merges.txt"] += merge[0].get<std::string>() + " " + merge[1].get<std::string>() + "\n";
  }
  const auto load = [&] {
    std::vector<std::string> names;
    for (const auto& [name, text] : files) names.push_back(name);
    return load_tokenizer(
        names, [&](const char* name) { return files.at(name); }, "there");
  };
  const std::string text = "cafe\u0301";  // composed first
  EXPECT_EQ(load()->encode(text), golden("bpe-qwen2").encode(text));
  files.erase("tokenizer.json");
  EXPECT_NE(load()->encode(text), golden("bpe-qwen2").encode(text));
  files["tokenizer_config.json"] = R"({"tokenizer_class": "Qwen2Tokenizer"})";
  EXPECT_EQ(message_of(load, ErrorKind::kNotFound),
            "[tokenizer] there: a 'Qwen2Tokenizer' needs its tokenizer.json, which is not there");
}

}  // namespace
}  // namespace split
