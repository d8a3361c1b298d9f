#include "edge_client/cli/prompt_loop.h"

#include <cstdio>

#include "edge_client/cli/line_editor.h"
#include "edge_client/cli/run.h"

namespace split::edge {
namespace {

constexpr std::string_view kPrompt = "> ";

// "cut 6, 31 in, 64 out, first after 35 ms, 48.1 tokens/s, seed 7"
std::string in_short(const Receipt& receipt) {
  char times[96];
  std::snprintf(times, sizeof times, "first after %.0f ms, %.1f tokens/s", receipt.first_token_ms,
                receipt.tokens_per_second());
  return cat("cut ", receipt.cut, ", ", receipt.prompt_tokens, " in, ", receipt.tokens, " out, ",
             times, ", seed ", receipt.seed);
}

class Loop {
 public:
  explicit Loop(const PromptLoop& with) : with_(with) {
    const char* const no_color = with.world.environment("NO_COLOR");
    color_ = with.world.console.err_is_terminal && (no_color == nullptr || *no_color == '\0');
  }

  void run() {
    LineEditor editor(with_.world.input, with_.world.console.err, with_.interrupt);
    const std::string prompt = marked("\x1b[1m", kPrompt);
    std::string line;
    for (;;) {
      const auto outcome = editor.read(prompt, kPrompt.size(), line);
      if (outcome == LineEditor::Outcome::kEnd) return;
      if (outcome == LineEditor::Outcome::kCancelled || line.empty()) continue;
      try {
        answer(line);
      } catch (const http::HttpError& error) {
        say(cat("edge_client: ", error.message));
      } catch (const Error& error) {
        say(cat("edge_client: ", error.what()));
      }
    }
  }

 private:
  std::string marked(std::string_view how, std::string_view text) const {
    return color_ ? cat(how, text, "\x1b[0m") : std::string(text);
  }
  void say(const std::string& line) { with_.world.console.err(line + "\n"); }
  void answer(const std::string& line);

  const PromptLoop& with_;
  bool color_ = false;
};

void Loop::answer(const std::string& line) {
  const Options& asked = with_.options;
  const ModelConfig& config = with_.shared.model.config();
  const auto prompt = prompt_ids(config, with_.shared.tokenizer, line, !asked.no_special);
  GenerateOptions options = with_.generate;
  if (!asked.seed) options.sampling.seed = drawn_seed();
  options.seeded = asked.seed.has_value();
  SplitWork work(with_.shared, with_.split());
  const Interrupt::Diversion stop(with_.interrupt, [&work] { work.cancel(); });
  const Interrupt::Hook end(with_.interrupt, [&work] { work.cancel(); });
  const Console& console = with_.world.console;
  Generated text;
  try {
    text = work.generate(prompt, options, [&](std::string_view piece, const ScoredToken*) {
      return asked.json || piece.empty() || console.out(piece);
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
    return;
  }
  console.out("\n");
  if (!asked.quiet) say(marked("\x1b[2m", in_short(receipt)));
}

}  // namespace

void run_prompt_loop(const PromptLoop& loop) { Loop(loop).run(); }

}  // namespace split::edge
