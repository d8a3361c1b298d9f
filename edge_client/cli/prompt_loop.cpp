#include "edge_client/cli/prompt_loop.h"

#include <cerrno>
#include <cstdio>
#include <fstream>

#include "base/bytes.h"
#include "base/file.h"
#include "base/json.h"
#include "edge_client/cli/line_editor.h"
#include "edge_client/cli/run.h"
#include "program/terminal.h"

namespace split::edge {
namespace {

constexpr std::string_view kPrompt = "> ";
constexpr std::string_view kHello =
    "Write the beginning of a text. :help lists commands, Ctrl-C stops an answer, Ctrl-D leaves.";
constexpr std::string_view kHelp =
    ":again         go on with the last text once more, from another seed unless one is set\n"
    ":cut K|cloud   let the cloud run the first K blocks, or all of them; auto: as it was\n"
    ":seed [N]      use this seed for every answer; without N draw one for each\n"
    ":save FILE     append the last text, its beginning too, to a file\n"
    ":quit          leave, as Ctrl-D does";

// "cut 6, 31 in, 64 out, first after 35 ms, 48.1 tokens/s, seed 7"
std::string in_short(const Receipt& receipt) {
  if (receipt.tokens == 0) return cat("nothing was written, seed ", receipt.seed);
  char times[96];
  std::snprintf(times, sizeof times, "first after %.0f ms, %.1f tokens/s", receipt.first_token_ms,
                receipt.tokens_per_second());
  return cat("cut ", receipt.cut, ", ", receipt.prompt_tokens, " in, ", receipt.tokens, " out, ",
             times, ", seed ", receipt.seed);
}

class Loop {
 public:
  explicit Loop(const PromptLoop& with) : with_(with), seed_(with.options.seed) {}

  void run() {
    LineEditor editor(with_.world.input, with_.world.console.err, with_.interrupt,
                      history_file(with_.world.environment));
    const std::shared_ptr<void> end(nullptr, [this](void*) { with_.lines.through({}); });
    with_.lines.through([&editor](const std::string& line) { editor.tell(line); });
    if (!with_.options.quiet) say(kHello);
    const std::string prompt = marked(Mark::kBold, kPrompt);
    std::string line;
    for (;;) {
      const auto outcome = editor.read(prompt, kPrompt.size(), line);
      if (outcome == LineEditor::Outcome::kEnd) return;
      if (outcome == LineEditor::Outcome::kCancelled || line.empty()) continue;
      try {
        if (line.starts_with(':') ? !obey(line) : !meant_as_command(line) && answer(line)) return;
      } catch (const http::HttpError& error) {
        with_.world.console.err(told_error(error.message, with_.world.console));
      } catch (const Error& error) {
        with_.world.console.err(told_error(error.what(), with_.world.console));
      }
    }
  }

 private:
  std::string marked(Mark mark, std::string_view text) const {
    return split::marked(with_.world.console.err_colors(), mark, text);
  }
  void say(std::string_view line) { with_.world.console.err(cat(line, "\n")); }
  bool obey(std::string_view line);
  bool meant_as_command(std::string_view line);
  void save(const std::string& name);
  bool answer(const std::string& line);

  const PromptLoop& with_;
  std::shared_ptr<PlacedModel> chosen_;  // by :cut
  std::optional<uint64_t> seed_;         // none: drawn for each
  std::string last_, text_;              // the last prompt, and what came behind it
};

// Says what a word is that was typed by habit.
bool Loop::meant_as_command(std::string_view line) {
  for (const std::string_view word : {"help", "quit", "exit", "/help", "/quit", "/exit", "/?"}) {
    if (line != word) continue;
    say("commands begin with a colon: :help lists them, :quit leaves");
    return true;
  }
  return false;
}

void Loop::save(const std::string& name) {
  if (name.empty()) throw Error(ErrorKind::kInput, ":save: expected a file's name");
  if (last_.empty()) throw Error(ErrorKind::kInput, ":save: there is no text yet");
  std::ofstream out(name, std::ios::app | std::ios::binary);
  out << last_ << text_ << "\n";
  if (!out.flush())
    throw Error(ErrorKind::kIo, cat("cannot write to ", name, ": ", errno_text(errno)));
  say(cat("the text is at the end of ", name));
}

// False when the user leaves.
bool Loop::obey(std::string_view line) {
  const size_t space = std::min(line.find(' '), line.size());
  const std::string_view command = line.substr(0, space);
  std::string_view rest = line.substr(space);
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  const std::string value(rest);
  if (command == ":quit" || command == ":q") return false;
  if (command == ":help") {
    say(kHelp);
  } else if (command == ":again") {
    if (last_.empty()) throw Error(ErrorKind::kInput, ":again: there is no text yet");
    answer(std::string(last_));
  } else if (command == ":cut") {
    chosen_ = with_.place(value);
    say(chosen_ ? cat("texts run at cut ", chosen_->place.name(), " from now on")
                : "the cut moves by itself from now on");
  } else if (command == ":seed") {
    const auto seed = parse_u64(value, 0, INT64_MAX);
    if (!value.empty() && !seed) throw Error(ErrorKind::kInput, ":seed: expected a whole number");
    seed_ = seed;
    say(seed ? cat("every text has seed ", *seed) : "each text has a seed of its own");
  } else if (command == ":save") {
    save(value);
  } else {
    throw Error(ErrorKind::kInput, cat("no command ", shown(command), "; :help lists them"));
  }
  return true;
}

// True when nobody reads its texts any more.
bool Loop::answer(const std::string& line) {
  const Options& asked = with_.options;
  const ModelConfig& config = with_.shared.model.config();
  const auto prompt = prompt_ids(config, with_.shared.tokenizer, line, !asked.no_special);
  GenerateOptions options = with_.generate;
  options.sampling.seed = seed_ ? *seed_ : drawn_seed();
  options.seeded = seed_.has_value();
  last_ = line;
  text_.clear();
  bool unread = false;
  SplitWork work(with_.shared, chosen_ ? chosen_ : with_.split());
  const Interrupt::Diversion stop(with_.interrupt, [&work] { work.cancel(); });
  const Interrupt::Hook end(with_.interrupt, [&work] { work.cancel(); });
  const Console& console = with_.world.console;
  Generated text;
  try {
    text = work.generate(prompt, options, [&](std::string_view piece, const ScoredToken*) {
      text_ += piece;
      if (asked.json || piece.empty()) return true;
      with_.wrote(piece);
      unread = !console.out(piece);
      return !unread;
    });
  } catch (const http::HttpError&) {
    if (!work.cancelled()) throw;
    text.finish_reason = "cancelled";
  }
  Receipt receipt = work.counted();
  receipt.prompt_tokens = prompt.size();
  receipt.finish_reason = text.finish_reason;
  receipt.seed = options.sampling.seed;
  if (asked.json) {
    console.out(to_json(receipt, prompt, text, asked.logprobs.has_value()));
    return unread;
  }
  console.out("\n");
  with_.wrote("\n");
  const std::vector<Move>& moves = receipt.counts.moves;
  for (size_t i = 0; i < moves.size() && !asked.quiet; ++i) {
    const std::string words = rescue_words(moves, i, receipt.exact);
    if (!words.empty()) say(words);
  }
  if (!asked.quiet) say(marked(Mark::kDim, in_short(receipt)));
  return unread;
}

}  // namespace

void run_prompt_loop(const PromptLoop& loop) { Loop(loop).run(); }

}  // namespace split::edge
