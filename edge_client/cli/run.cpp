#include "edge_client/cli/run.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "base/bytes.h"
#include "base/json.h"
#include "base/resources/clock.h"
#include "base/resources/threads.h"
#include "device/about.h"
#include "edge_client/cli/audit/audit_command.h"
#include "edge_client/cli/cache_command.h"
#include "edge_client/cli/doctor.h"
#include "edge_client/cli/embed_lines.h"
#include "edge_client/cli/embed_text.h"
#include "edge_client/cli/plan_command.h"
#include "edge_client/cli/prompt.h"
#include "edge_client/cli/prompt_loop.h"
#include "edge_client/cli/told_lines.h"
#include "edge_client/cli/trainer_program.h"
#include "edge_client/engine/request.h"
#include "edge_client/options/command_line.h"
#include "edge_client/server/cloud_notice.h"
#include "edge_client/server/loader_output.h"
#include "edge_client/server/serve.h"
#include "program/exit_codes.h"
#include "program/terminal.h"
#include "text/utf8.h"

namespace split::edge {

uint64_t peak_memory() {
  constexpr std::string_view kName = "VmHWM:";
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(kName))
      return std::strtoull(line.c_str() + kName.size(), nullptr, 10) * 1024;
  }
  return 0;
}

uint64_t drawn_seed() {
  uint32_t seed = 0;
  random_bytes(std::as_writable_bytes(std::span(&seed, 1)));
  return seed;
}

namespace {

// One run, which observes its engine.
class Run : public EngineObserver {
 public:
  Run(const Options& options, const World& world, Interrupt& interrupt)
      : options_(options),
        world_(world),
        interrupt_(interrupt),
        notice_(world.console, ServerAddress(options, world.environment).connect({})->origin(),
                options.quiet),
        engine_(options, options.placement, world.environment, interrupt, *this) {}

  void go(const std::string& prompt);
  void embed_each();   // embeds many texts
  void interactive();  // runs at a terminal

 private:
  void waiting(const RemoteError& error) override { notice_.lost(error); }
  void found(bool again) override { notice_.found(again); }
  double waited_ms() const override { return notice_.waited_ms(); }
  void begins(const ModelChoice::Begin& where, const LoadedModel& model) override;
  void begun(const PlacedModel& split) override;
  void noted(const std::string& line) override {
    if (!options_.quiet) world_.console.err(line + "\n");
  }
  ProgressTo progress() const override { return progress_on(world_.console, options_.quiet); }
  void said(const std::string& line) override { lines_.tell(line); }
  void begins_anew() override {
    clock_.met_ms = 0;
    start_clock();
  }
  void grew(const GrowthNote& note) override { say_beside(note.line()); }
  void moved(const Move& move, const std::string& words) override;
  void stays(const FasterCut& there, double token_ms) override {
    if (!loops_) say_beside(staying_words(there, token_ms));
  }
  void say_beside(const std::string& line) { lines_.tell_beside(cat("--cut auto: ", line)); }

  bool may_open() const;
  void load();
  void start_clock();
  GenerateOptions generate_options();
  std::vector<int32_t> ids_of_prompt(const LoadedModel& model) const;
  void print_text();
  void print_generated(const EngineRequest& work, const Generated& generated);
  void say_what_was_kept(Receipt receipt);
  void embed();
  bool put_text(std::string_view text, const ScoredToken* token);
  bool write(std::string_view text);
  Receipt receipt_of(const EngineRequest& work) const;

  const Options& options_;
  const World& world_;
  Interrupt& interrupt_;
  ToldLines lines_{world_.console, options_.quiet};
  CloudNotice notice_;
  std::string said_;             // the user's prompt
  std::vector<int32_t> prompt_;  // its ids, unless the cloud makes them
  bool opens_ = false, loops_ = false;
  std::string before_;  // at a terminal, the prompt before the text
  RunningText row_{world_.console.text_columns()};
  std::atomic<bool> wrote_ = false;
  Receipt told_;  // parts of the receipt that an engine does not know
  struct {
    Clock::time_point start = Clock::now();
    double waited_before = 0;  // time waited for the cloud so far
    double met_ms = 0;         // time to list its models, for a text that begins early
  } clock_;
  Engine engine_;
};

void Run::begins(const ModelChoice::Begin& where, const LoadedModel& model) {
  if (!options_.quiet) world_.console.err(head_line(where.place));
  if (model.model.config().encodes() && !options_.placement.embed) {
    throw Error(ErrorKind::kInput, cat("the model ", shown(where.info.id),
                                       " is an encoder, which writes no text: expected --embed, ",
                                       "--rerank or --serve"));
  }
  expect_use(options_, model.sentences, where.info.id);
  if (loops_ && !model.tokenizer) {
    throw Error(ErrorKind::kInput, "the model has no tokenizer: expected --prompt-ids");
  }
  const int most = model.model.config().context;
  if (options_.max_tokens > most && !options_.placement.embed && !options_.quiet && !wrote_) {
    world_.console.err(cat("--max-tokens ", options_.max_tokens, ": the context of ", most,
                           " tokens, the prompt's among them, ends a text before that\n"));
  }
  if (!opens_ && !loops_ && !options_.jsonl) prompt_ = ids_of_prompt(model);
}

void Run::begun(const PlacedModel&) {
  told_.load_ms = ms_since(clock_.start);
  told_.load_peak_bytes = peak_memory();
  if (!options_.json) lines_.tell(engine_.plan());
}

void Run::moved(const Move& move, const std::string& words) {
  if (loops_) return;
  if (!words.empty()) return lines_.tell(words);
  if (engine_.follows())
    say_beside(move.to == 0 ? "the text goes on here alone"
                            : cat("the text goes on at cut ", move.to.name()));
}

bool Run::put_text(std::string_view text, const ScoredToken* token) {
  if (interrupt_.signal() != 0) return false;
  if (token != nullptr && told_.tokens++ == 0) {
    told_.first_token_ms = ms_since(clock_.start);
    told_.first_waited_ms = notice_.waited_ms() - clock_.waited_before;
  }
  if (options_.json || text.empty()) return true;
  return (before_.empty() || write(std::exchange(before_, {}))) && write(text);
}

bool Run::write(std::string_view text) {
  if (world_.console.out_is_terminal) notice_.wrote(text);
  wrote_ = true;
  return world_.console.out(row_.next(text));
}

GenerateOptions Run::generate_options() {
  GenerateOptions options;
  options.max_tokens = options_.max_tokens;
  options.sampling = options_.sampling;
  options.sampling.seed = told_.seed = options_.seed ? *options_.seed : drawn_seed();
  options.seeded = options_.seed.has_value();
  options.stop = options_.stop;
  options.ignore_end = options_.ignore_eos;
  options.logprobs = options_.logprobs.value_or(-1);
  return options;
}

void Run::start_clock() {
  clock_.start = Clock::now();
  clock_.waited_before = notice_.waited_ms();
}

void Run::load() {
  try {
    engine_.load();
  } catch (const Error&) {
    if (interrupt_.signal() != 0) {
      lines_.tell("\nwhat was downloaded is kept: the next run goes on from it");
    }
    throw;
  }
}

std::vector<int32_t> Run::ids_of_prompt(const LoadedModel& model) const {
  const ModelConfig& config = model.model.config();
  std::vector<int32_t> ids;
  if (options_.placement.embed && model.sentences.meant()) {
    ids =
        options_.prompt_ids
            ? model.sentences.bounded(*options_.prompt_ids, false).ids
            : model.sentences.encode(model.tokens(), model.sentences.prompt({}) + said_, false).ids;
  } else if (options_.prompt_ids) {
    ids = *options_.prompt_ids;
  } else {
    return prompt_ids(config, model.tokens(), said_, !options_.no_special);
  }
  check_prompt(config, ids);
  return ids;
}

// Whether the cloud may begin the text by its words at once, while this machine loads the model.
bool Run::may_open() const {
  const bool words =
      !options_.placement.embed && !options_.prompt_ids && to_valid_utf8(said_) == said_;
  return begins_early(options_.placement.auto_cut, false, words);
}

void Run::go(const std::string& prompt) {
  said_ = prompt;
  if (options_.prompt && world_.console.out_is_terminal && !options_.quiet) before_ = prompt;
  if (may_open()) {
    start_clock();
    engine_.meet();
    clock_.met_ms = ms_since(clock_.start);
    opens_ = !engine_.opens().empty();
  }
  if (!opens_) {
    load();
    if (options_.placement.embed) return embed();
    start_clock();
  }
  print_text();
}

// Prints the text; JSON comes at the end, in one piece.
void Run::print_text() {
  const GenerateOptions options = generate_options();
  told_.max_tokens = options.max_tokens;
  if (!options_.json) lines_.begin_text();
  EngineRequest work(engine_);
  const Interrupt::Hook end(interrupt_, [&work] { work.cancel(); });
  const auto put = [this](std::string_view piece, const ScoredToken* token) {
    return put_text(piece, token);
  };
  std::unique_ptr<Text> text;
  std::jthread beside;  // joined in any case
  if (opens_) {
    engine_.open_beside();
    const auto learn = [&] {
      try {
        load();
      } catch (...) {  // the text reports it
      }
    };
    if (!try_start(beside, learn)) learn();
  }
  try {
    const Json words{{"prompt", said_}, {"special", !options_.no_special}};
    text = opens_ ? work.begin_words(words, options, true) : work.begin(prompt_, options);
    while (text->next(put)) continue;
  } catch (const Error&) {
    say_what_was_kept(receipt_of(work));
    throw;
  }
  const Generated generated = text->take();
  if (prompt_.empty()) prompt_.assign(text->prompt().begin(), text->prompt().end());
  text.reset();  // adds its cost to the request
  print_generated(work, generated);
}

Receipt Run::receipt_of(const EngineRequest& work) const {
  Receipt receipt = work.counted();
  receipt.load_ms = told_.load_ms;
  receipt.load_peak_bytes = told_.load_peak_bytes;
  receipt.first_token_ms = told_.first_token_ms;
  receipt.first_waited_ms = told_.first_waited_ms;
  receipt.waited_ms = notice_.waited_ms() - clock_.waited_before;
  receipt.tokens = told_.tokens;
  receipt.max_tokens = told_.max_tokens;
  receipt.seed = told_.seed;
  for (SplitCounts* const counts : {&receipt.counts, &receipt.first}) {
    counts->ms += clock_.met_ms;
    counts->traffic.stream_ms += clock_.met_ms;
  }
  return receipt;
}

void Run::print_generated(const EngineRequest& work, const Generated& generated) {
  Receipt receipt = receipt_of(work);
  receipt.prompt_tokens = prompt_.size();
  receipt.tokens = generated.tokens.size();
  receipt.finish_reason = generated.finish_reason;
  if (options_.json) {
    world_.console.out(to_json(receipt, prompt_, generated, options_.logprobs.has_value()));
    return;
  }
  if (world_.console.out_is_terminal) world_.console.out("\n");
  if (interrupt_.signal() != 0) return say_what_was_kept(receipt);
  lines_.end_text();
  if (!options_.goal_given) receipt.forecast.reset();
  if (!options_.quiet) {
    world_.console.err(cat("\n", told_receipt(to_text(receipt), world_.console)));
  }
}

// Prints what there is of a text that ended early, its cost, and how to get it again.
void Run::say_what_was_kept(Receipt receipt) {
  notice_.end();
  if (options_.quiet || options_.json) return;
  lines_.end_text();
  if (receipt.tokens == 0) return world_.console.err("\n  nothing was written\n");
  receipt.finish_reason = FinishReason::kCancelled;
  const std::string again = options_.sampling.temperature == 0
                                ? "run again"
                                : cat("run again with --seed ", receipt.seed);
  world_.console.err(cat("\n", told_receipt(to_text(receipt), world_.console), "  ", receipt.tokens,
                         receipt.tokens == 1 ? " token" : " tokens", " written; ", again,
                         " to get the same text\n"));
}

void Run::embed() {
  EngineRequest work(engine_);
  const Interrupt::Hook end(interrupt_, [&work] { work.cancel(); });
  const LoadedModel& model = *engine_.loaded();
  const bool json = options_.json;
  if (model.sentences.meant()) {
    const EmbeddedTexts made = work.embed(std::span(&prompt_, 1), model.sentences);
    world_.console.out(
        embedding_text(made.values, prompt_.size(), model.sentences.normalizes(), json));
  } else {
    const auto channels = static_cast<size_t>(model.model.config().channels);
    world_.console.out(states_text(work.states(prompt_), channels, json));
  }
}

void Run::embed_each() {
  load();
  EngineRequest work(engine_);
  const Interrupt::Hook end(interrupt_, [&work] { work.cancel(); });
  const LoadedModel& model = *engine_.loaded();
  (options_.rerank ? rank_lines : embed_lines)(
      options_, world_, interrupt_, model.sentences, model.tokens(),
      [&](std::span<const std::vector<int32_t>> texts, std::span<const uint32_t> seconds) {
        return work.embed(texts, model.sentences, seconds).values;
      });
}

void Run::interactive() {
  loops_ = true;
  load();
  run_prompt_loop(engine_, options_, world_, interrupt_, lines_, notice_, generate_options());
}

void plan(const Options& options, const World& world, Interrupt& interrupt) {
  ModelChoice choice(options, options.placement, notes_on(world.console, options.quiet),
                     world.environment, interrupt);
  CloudNotice notice(world.console, choice.remote().origin(), options.quiet);
  choice.on_waiting([&](const RemoteError& error) { notice.lost(error); },
                    [&](bool again) { notice.found(again); });
  plan_command(options, world, choice);
}

int run(const CommandLine& line, const World& world, Interrupt& interrupt) {
  const Options& options = line.options;
  const bool told = options.prompt || options.prompt_file || options.prompt_ids;
  if (line.asked == Flags::Asked::kHelp) {
    world.console.out(line.help);
  } else if (line.asked == Flags::Asked::kVersion) {
    world.console.out(version_text("edge_client", SPLIT_VERSION));
  } else if (options.list_devices) {
    for (const ListedDevice& device : list_devices())
      world.console.out(wrapped(device.text + "\n", world.console.columns));
  } else if (options.plan) {
    plan(options, world, interrupt);
  } else if (options.serve) {
    serve_until_interrupted(options, world, interrupt);
  } else if (options.jsonl || options.rerank) {
    Run(options, world, interrupt).embed_each();
  } else if (!told && !options.placement.embed && ::isatty(world.input) == 1) {
    Run(options, world, interrupt).interactive();
  } else {
    const std::string prompt = read_prompt(options, world.input, interrupt);
    Run(options, world, interrupt).go(prompt);
  }
  return 0;
}

}  // namespace

int run_command(const World& world, Interrupt& interrupt, const std::function<int()>& command) {
  int code = 0;
  try {
    code = command();
  } catch (const Error& error) {
    if (interrupt.signal() == 0) {
      world.console.err(told_error(error.what(), world.console));
      return exit_code(error.kind());
    }
  }
  const int signal = interrupt.signal();
  if (signal == 0) return code;
  if (world.console.err_is_terminal) world.console.err("\n");
  return exit_code_of_signal(signal);
}

int edge_main(const std::vector<std::string>& arguments, const World& world, Interrupt& interrupt) {
  return run_command(world, interrupt, [&] {
    const std::span all(arguments);
    const std::string_view first = all.empty() ? "" : std::string_view(all[0]);
    return first == "audit"    ? audit_command(all.subspan(1), world, interrupt)
           : first == "cache"  ? cache_command(all.subspan(1), world)
           : first == "doctor" ? doctor_command(all.subspan(1), world, interrupt)
           : first == "train"  ? become_trainer(all.subspan(1))
                               : run(read_command_line(arguments, world), world, interrupt);
  });
}

}  // namespace split::edge
