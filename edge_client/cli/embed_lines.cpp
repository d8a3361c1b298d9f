#include "edge_client/cli/embed_lines.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/figures.h"
#include "base/json.h"
#include "base/resources/clock.h"
#include "edge_client/cli/prompt.h"
#include "serve/compat/rerank.h"
#include "wire/protocol.h"

namespace split::edge {
namespace {

// One trip of many texts costs little more than one of a single text; larger trips gain nothing.
constexpr size_t kTextsAtOnce = 256, kTokensAtOnce = 8192;
constexpr std::chrono::milliseconds kDrawEvery{200};

std::string text_of(const std::string& line, uint64_t index) {
  if (!line.starts_with('{')) return line;
  const std::string where = cat("line ", index + 1);
  const Json json = parse_json(line, 16, where);
  const Json* const text = json.find("text");
  if (text == nullptr || !text->is_string()) {
    throw Error(ErrorKind::kInput, cat(where, ": expected a text, or an object with a \"text\""));
  }
  return text->text();
}

// The output of the lines.
class Output {
 public:
  Output(const Options& options, const Console& console) : console_(console) {
    if (options.out.empty()) return;
    path_ = options.out;
    next_ = whole_lines();
    file_.open(path_, std::ios::app | std::ios::binary);
    if (!file_) fail();
  }
  // Number of lines in the output.
  uint64_t next() const { return next_; }
  // Returns false when nobody reads any more.
  bool write(const std::string& lines) {
    if (path_.empty()) return console_.out(lines);
    file_ << lines << std::flush;
    if (!file_) fail();
    return true;
  }

 private:
  [[noreturn]] void fail() const {
    throw Error(ErrorKind::kIo, cat("--out: ", path_.string(), ": cannot be written"));
  }
  // Cuts off an unfinished line of an interrupted run, and counts the lines.
  uint64_t whole_lines() const {
    std::ifstream file(path_, std::ios::binary);
    uint64_t lines = 0, end = 0;
    std::string last;
    for (std::string line; std::getline(file, line) && !file.eof();) {
      ++lines;
      end += line.size() + 1;
      last = std::move(line);
    }
    file.close();
    std::error_code error;
    if (std::filesystem::exists(path_, error)) std::filesystem::resize_file(path_, end, error);
    if (lines > 0 && !last.starts_with(cat("{\"index\":", lines - 1, ","))) {
      throw Error(ErrorKind::kInput,
                  cat("--out: ", path_.string(), ": expected its last line to be that of index ",
                      lines - 1, ": it is of another command"));
    }
    return lines;
  }

  const Console& console_;
  std::filesystem::path path_;
  std::ofstream file_;
  uint64_t next_ = 0;
};

class Bulk {
 public:
  Bulk(const Options& options, const World& world, Interrupt& interrupt, const Sentences& sentences,
       const Tokenizer* tokenizer, const EmbedTexts& embed)
      : options_(options),
        world_(world),
        interrupt_(interrupt),
        sentences_(sentences),
        tokenizer_(tokenizer),
        embed_(embed),
        lines_(options, world.input, interrupt),
        out_(options, world.console) {}

  void run() {
    uint64_t index = 0;
    for (std::string line; going_ && lines_.next(line); ++index) {
      if (index < out_.next()) continue;
      SentenceIds one =
          sentences_.encode(tokenizer_, sentences_.prompt({}) + text_of(line, index), true);
      truncated_ += one.truncated ? 1 : 0;
      if (one.ids.empty()) {
        throw Error(ErrorKind::kInput, cat("line ", index + 1, ": expected at least one token"));
      }
      if (batch_.texts.size() == kTextsAtOnce || batch_.tokens + one.ids.size() > kTokensAtOnce)
        flush();
      if (batch_.texts.empty()) batch_.first = index;
      batch_.tokens += one.ids.size();
      batch_.texts.push_back(std::move(one.ids));
    }
    flush();
    say_end();
  }

 private:
  void flush() {
    if (batch_.texts.empty() || interrupt_.signal() != 0) return;
    std::vector<float> values = embed_(batch_.texts, {});
    const size_t width = sentences_.dimensions();
    std::string lines;
    for (size_t i = 0; i < batch_.texts.size(); ++i) {
      const auto embedding = std::span(values).subspan(i * width, width);
      if (sentences_.normalizes()) to_unit_length(embedding);
      lines += cat("{\"index\":", batch_.first + i, ",\"tokens\":", batch_.texts[i].size(),
                   ",\"embedding\":");
      wire::append_floats(lines, embedding);
      lines += "}\n";
    }
    going_ = out_.write(lines);
    done_ += batch_.texts.size();
    tokens_ += batch_.tokens;
    batch_ = {};
    draw();
  }

  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  bool bar() const { return !options_.quiet && world_.console.err_is_terminal; }
  void draw() {
    if (!bar() || Clock::now() - drawn_ < kDrawEvery) return;
    drawn_ = Clock::now();
    const auto share = lines_.share();
    world_.console.err(cat("\r", share ? cat(fixed(100 * *share, 0), " %, ") : "", done_,
                           " texts, ", fixed(static_cast<double>(done_) / seconds(), 0),
                           " texts/s   "));
  }
  void say_end() {
    if (options_.quiet) return;
    const double took = seconds();
    world_.console.err(cat(
        bar() ? "\r" : "", done_, " texts, ", tokens_, " tokens in ", fixed(took, 2), " s, ",
        fixed(static_cast<double>(done_) / std::max(took, 1e-9), 1), " texts/s",
        truncated_ > 0 ? cat("; ", truncated_, " were cut to ", sentences_.max_tokens(), " tokens")
                       : "",
        out_.next() > 0 ? cat("; ", out_.next(), " were there") : "", "\n"));
  }

  const Options& options_;
  const World& world_;
  Interrupt& interrupt_;
  const Sentences& sentences_;
  const Tokenizer* const tokenizer_;
  const EmbedTexts& embed_;
  PromptLines lines_;
  Output out_;
  bool going_ = true;
  struct {
    std::vector<std::vector<int32_t>> texts;
    size_t tokens = 0;
    uint64_t first = 0;  // index of the first text
  } batch_;              // waits to be embedded
  uint64_t done_ = 0, tokens_ = 0, truncated_ = 0;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point drawn_;
};

}  // namespace

void embed_lines(const Options& options, const World& world, Interrupt& interrupt,
                 const Sentences& sentences, const Tokenizer* tokenizer, const EmbedTexts& embed) {
  Bulk(options, world, interrupt, sentences, tokenizer, embed).run();
}

void expect_use(const Options& options, const Sentences& sentences, const std::string& model) {
  if (!options.placement.embed || sentences.ranks() == options.rerank.has_value()) return;
  throw Error(ErrorKind::kInput,
              cat("the model ", shown(model),
                  options.rerank ? " has no classifier of pairs: expected a reranker"
                                 : " scores pairs and makes no embeddings: expected --rerank"));
}

void rank_lines(const Options& options, const World& world, Interrupt& interrupt,
                const Sentences& sentences, const Tokenizer* tokenizer, const EmbedTexts& embed) {
  if (tokenizer == nullptr) {
    throw Error(ErrorKind::kInput, "--rerank: expected a model with a tokenizer");
  }
  serve::RankedPairs pairs(sentences, *tokenizer, *options.rerank);
  PromptLines lines(options, world.input, interrupt);
  std::vector<std::string> texts;
  for (std::string line; lines.next(line);) {
    texts.push_back(text_of(line, texts.size()));
    pairs.add(texts.back(), true);
  }
  if (texts.empty())
    throw Error(ErrorKind::kInput, "--rerank: expected at least one line, got none");
  const Clock::time_point start = Clock::now();
  const std::vector<float> scores = embed(pairs.ids, pairs.seconds());
  std::string out;
  for (const size_t i : serve::by_score(scores)) {
    if (options.jsonl) {
      out +=
          Json{{"index", i}, {"relevance_score", scores[i]}, {"document", Json{{"text", texts[i]}}}}
              .dump() +
          "\n";
    } else {
      const std::string number = std::to_string(i + 1);
      out += cat(scores[i] < 0 ? "" : " ", fixed(double{scores[i]}, 4), "  ",
                 std::string(6 - std::min<size_t>(number.size(), 5), ' '), number, "  ", texts[i],
                 "\n");
    }
  }
  world.console.out(out);
  if (options.quiet) return;
  const double took = std::chrono::duration<double>(Clock::now() - start).count();
  world.console.err(cat(texts.size(), texts.size() == 1 ? " document, " : " documents, ",
                        pairs.tokens, " tokens in ", fixed(took, 2), " s",
                        pairs.truncated > 0 ? cat("; ", pairs.truncated, " were cut to ",
                                                  sentences.max_tokens(), " tokens")
                                            : "",
                        "\n"));
}

}  // namespace split::edge
