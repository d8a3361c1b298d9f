#include "edge_client/cli/prompt_loop.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <fstream>

#include "base/bytes.h"
#include "base/file.h"
#include "base/json.h"
#include "base/plain_words.h"
#include "edge_client/cli/line_editor.h"
#include "edge_client/cli/run.h"
#include "edge_client/engine/request.h"
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
  return cat("cut ", receipt.cut.name(), ", ", receipt.prompt_tokens, " in, ", receipt.tokens,
             " out, ", times, ", seed ", receipt.seed);
}

class Loop {
 public:
  Loop(Engine& engine, const Options& options, const World& world, Interrupt& interrupt,
       ToldLines& lines, CloudNotice& notice, const GenerateOptions& generate)
      : engine_(engine),
        options_(options),
        world_(world),
        interrupt_(interrupt),
        lines_(lines),
        notice_(notice),
        generate_(generate),
        follows_(engine.follows()),
        seed_(options_.seed) {}

  void run() {
    LineEditor editor(world_.input, world_.console.err, interrupt_,
                      history_file(world_.environment));
    const std::shared_ptr<void> end(nullptr, [this](void*) { lines_.through({}); });
    lines_.through([&editor](const std::string& line) { editor.tell(line); });
    if (!options_.quiet) say(kHello);
    const std::string prompt = marked(Mark::kBold, kPrompt);
    std::string line;
    for (;;) {
      const auto outcome = editor.read(prompt, kPrompt.size(), line);
      if (outcome == LineEditor::Outcome::kEnd) return;
      if (outcome == LineEditor::Outcome::kCancelled || line.empty()) continue;
      try {
        if (line.starts_with(':') ? !obey(line) : !meant_as_command(line) && answer(line)) return;
      } catch (const RemoteError& error) {
        const bool silent = error.transient() && error.status == 0;
        world_.console.err(
            told_error(cat(silent ? "the cloud does not answer: " : "", plain_words(error.what())),
                       world_.console));
      } catch (const Error& error) {
        world_.console.err(told_error(error.what(), world_.console));
      }
    }
  }

 private:
  std::string marked(Mark mark, std::string_view text) const {
    return split::marked(world_.console.err_colors(), mark, text);
  }
  void say(std::string_view line) { world_.console.err(cat(line, "\n")); }
  bool obey(std::string_view line);
  bool meant_as_command(std::string_view line);
  void cut(const std::string& value);
  void save(const std::string& name);
  bool answer(const std::string& line);

  Engine& engine_;
  const Options& options_;
  const World& world_;
  Interrupt& interrupt_;
  ToldLines& lines_;
  CloudNotice& notice_;
  const GenerateOptions generate_;
  const bool follows_;            // the cut may move by itself
  std::optional<uint64_t> seed_;  // nullopt: drawn for each
  std::string last_, text_;       // the last prompt, and its text
};

// Suggests a command for a word typed by habit.
bool Loop::meant_as_command(std::string_view line) {
  for (const std::string_view word : {"help", "quit", "exit", "/help", "/quit", "/exit", "/?"}) {
    if (line != word) continue;
    say("commands begin with a colon: :help lists them, :quit leaves");
    return true;
  }
  return false;
}

void Loop::cut(const std::string& value) {
  if (follows_ && value == "auto") {
    engine_.choose_cut();
    return say("the cut moves by itself from now on");
  }
  const int layers = engine_.loaded()->model.config().layers;
  const auto cut = parse_u64(value, 0, static_cast<uint64_t>(layers));
  if (!cut && value != "cloud") {
    throw Error(ErrorKind::kInput, cat(":cut: expected 0..", layers,
                                       follows_ ? ", cloud or auto, got " : " or cloud, got ",
                                       value.empty() ? "nothing" : shown(value)));
  }
  engine_.move_cut(cut ? Cut(static_cast<int>(*cut)) : Cut::cloud());
  say(cat("texts run at cut ", engine_.present()->place.cut.name(), " from now on"));
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

// Obeys a command. Returns false when the user leaves.
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
    cut(value);
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

// Returns true when nobody reads its texts any more.
bool Loop::answer(const std::string& line) {
  const LoadedModel& model = *engine_.loaded();
  const auto prompt =
      prompt_ids(model.model.config(), &*model.tokenizer, line, !options_.no_special);
  GenerateOptions options = generate_;
  options.sampling.seed = seed_ ? *seed_ : drawn_seed();
  options.seeded = seed_.has_value();
  last_ = line;
  text_.clear();
  bool unread = false;
  EngineRequest work(engine_, nullptr, "");
  const Interrupt::Diversion stop(interrupt_, [&work](int signal) {
    if (signal == SIGINT) work.cancel();
    return signal == SIGINT;
  });
  const Interrupt::Hook end(interrupt_, [&work] { work.cancel(); });
  const Console& console = world_.console;
  RunningText row(console.text_columns());
  Generated text;
  try {
    const auto begun = work.begin(prompt, options);
    const auto put = [&](std::string_view piece, const ScoredToken*) {
      text_ += piece;
      if (options_.json || piece.empty()) return true;
      notice_.wrote(piece);
      unread = !console.out(row.next(piece));
      return !unread;
    };
    while (begun->next(put)) continue;
    text = begun->take();
  } catch (const RemoteError&) {
    if (!work.cancelled()) throw;
    text.finish_reason = FinishReason::kCancelled;
  }
  Receipt receipt = work.counted();
  receipt.prompt_tokens = prompt.size();
  receipt.finish_reason = text.finish_reason;
  receipt.seed = options.sampling.seed;
  if (options_.json) {
    console.out(to_json(receipt, prompt, text, options_.logprobs.has_value()));
    return unread;
  }
  console.out("\n");
  notice_.wrote("\n");
  const std::vector<Move>& moves = receipt.counts.moves;
  for (size_t i = 0; i < moves.size() && !options_.quiet; ++i) {
    const std::string words = rescue_words(moves, i, receipt.exact);
    if (!words.empty()) say(words);
  }
  if (!options_.quiet) say(marked(Mark::kDim, in_short(receipt)));
  return unread;
}

}  // namespace

void run_prompt_loop(Engine& engine, const Options& options, const World& world,
                     Interrupt& interrupt, ToldLines& lines, CloudNotice& notice,
                     const GenerateOptions& generate) {
  Loop(engine, options, world, interrupt, lines, notice, generate).run();
}

}  // namespace split::edge
