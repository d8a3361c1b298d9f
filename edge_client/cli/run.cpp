#include "edge_client/cli/run.h"

#include <openssl/rand.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <mutex>

#include "base/bytes.h"
#include "base/figures.h"
#include "base/json.h"
#include "base/resources/clock.h"
#include "base/resources/threads.h"
#include "device/about.h"
#include "edge_client/cli/cache_command.h"
#include "edge_client/cli/doctor.h"
#include "edge_client/cli/embed_lines.h"
#include "edge_client/cli/embed_text.h"
#include "edge_client/cli/options.h"
#include "edge_client/cli/plan_command.h"
#include "edge_client/cli/prompt.h"
#include "edge_client/cli/prompt_loop.h"
#include "edge_client/cli/told_lines.h"
#include "edge_client/cloud/cloud_completion.h"
#include "edge_client/drive/split_embed.h"
#include "edge_client/drive/split_text.h"
#include "edge_client/engine/answers.h"
#include "edge_client/engine/rescuer.h"
#include "edge_client/server/cloud_notice.h"
#include "edge_client/server/serve.h"
#include "program/exit_codes.h"
#include "program/terminal.h"
#include "text/utf8.h"

namespace split::edge {
namespace {

// Bytes of this process at its peak so far; 0 where the system does not tell.
uint64_t peak_memory() {
  constexpr std::string_view kName = "VmHWM:";
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(kName))
      return std::strtoull(line.c_str() + kName.size(), nullptr, 10) * 1024;
  }
  return 0;
}

}  // namespace

uint64_t drawn_seed() {
  uint32_t seed = 0;
  CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(&seed), sizeof seed) == 1);
  return seed;
}

namespace {

// The steps of one run, in their order.
class Run {
 public:
  Run(const Options& options, const World& world, Interrupt& interrupt)
      : options_(options),
        world_(world),
        interrupt_(interrupt),
        loader_(options, world.console, world.environment, interrupt),
        rescuer_(loader_, options.exact),
        notice_(world.console, loader_.remote().origin(), options.quiet),
        answers_(options.exact) {
    loader_.on_waiting([this](const RemoteError& error) { notice_.lost(error); },
                       [this](bool again) { notice_.found(again); });
  }

  void go(const std::string& prompt);
  void embed_each();   // of many texts
  void interactive();  // at a terminal
  void plan() { plan_command(options_, world_, loader_); }

 private:
  SplitRun split_run() {
    return {*link_,
            split_->place,
            split_->batcher(),
            loader_.model(),
            tokenizer_ ? &*tokenizer_ : nullptr,
            loader_.retry(),
            interrupt_,
            {},
            moving_ ? &*moving_ : nullptr,
            opened_ ? &*opened_ : nullptr};
  }
  std::unique_ptr<CloudLink> lane_link();
  bool open(const std::string& prompt);
  void select_model();
  void load();
  GenerateOptions generate_options();
  void begin_arrival();
  void say(const std::string& line);
  void say_beside(const std::string& line);
  void start_clock();
  void begin_writing();
  void say_plan();
  void print_text();
  void say_what_was_kept();
  void print_states();
  void print_embedding();
  void expect_texts() const;
  bool put_text(std::string_view text, const ScoredToken* token);
  bool write(std::string_view text);

  const Options& options_;
  const World& world_;
  Interrupt& interrupt_;
  Loader loader_;
  Rescuer rescuer_;
  CloudNotice notice_;

  Placement place_;
  wire::ModelInfo info_;
  std::optional<Tokenizer> tokenizer_;
  std::optional<Sentences> sentences_;
  std::vector<int32_t> prompt_;
  std::shared_ptr<PlacedModel> split_;
  std::optional<ModelLink> link_;  // to the cloud of split_
  std::optional<Moving> moving_;
  std::optional<Opened> opened_;
  std::optional<GenerateOptions> generate_;  // of the one text
  size_t known_bytes_ = 0;                   // of the text to come
  std::string before_;                       // the text, at a terminal: its prompt
  size_t moves_told_ = 0;
  ToldLines lines_{world_.console, options_.quiet};  // by a thread of the arrival too: before it
  Answers answers_;                                  // likewise
  std::unique_ptr<Forecasts> forecasts_;             // likewise; none: of a head on the cloud
  AnswerWatch watch_;                                // of the one text
  std::optional<Arrival> arrival_;
  DraftMemory draft_memory_;
  Receipt receipt_;
  Clock::time_point start_ = Clock::now();
  double waited_before_ = 0;  // for the cloud
};

void Run::say_plan() {
  describe(receipt_, *split_, loader_.config(), loader_.remote().origin());
  receipt_.exact = split_->exact;
  receipt_.load_ms = ms_since(start_);
  receipt_.load_peak_bytes = peak_memory();
  if (!options_.json) lines_.tell(receipt_.plan());
}

bool Run::put_text(std::string_view text, const ScoredToken* token) {
  if (interrupt_.signal() != 0) return false;
  for (; moves_told_ < receipt_.counts.moves.size(); ++moves_told_) {
    const int cut = receipt_.counts.moves[moves_told_].to;
    rescuer_.describe(receipt_);
    const auto exact = receipt_.exact ? receipt_.exact : answers_.exact();
    const std::string words = rescue_words(receipt_.counts.moves, moves_told_, exact);
    if (!words.empty()) lines_.tell(words);
    if (words.empty() && arrival_)
      say_beside(cut == 0 ? "the text goes on here alone" : cat("the text goes on at cut ", cut));
  }
  const double waited = notice_.waited_ms() - waited_before_;
  if (token != nullptr) watch_.token(receipt_.counts, ms_since(start_) - waited);
  if (token != nullptr && receipt_.tokens++ == 0) {
    receipt_.first_token_ms = ms_since(start_);
    receipt_.first_waited_ms = waited;
    receipt_.first = receipt_.counts;
  }
  const size_t known = std::min(known_bytes_, text.size());
  known_bytes_ -= known;
  text.remove_prefix(known);
  if (options_.json || text.empty()) return true;
  return (before_.empty() || write(std::exchange(before_, {}))) && write(text);
}

bool Run::write(std::string_view text) {
  if (world_.console.out_is_terminal) notice_.wrote(text);
  return world_.console.out(text);
}

GenerateOptions Run::generate_options() {
  GenerateOptions options;
  options.max_tokens = options_.max_tokens;
  options.sampling.temperature = options_.temperature;
  options.sampling.top_k = options_.top_k;
  options.sampling.top_p = options_.top_p;
  options.sampling.min_p = options_.min_p;
  options.sampling.repetition_penalty = options_.repetition_penalty;
  options.sampling.presence_penalty = options_.presence_penalty;
  options.sampling.frequency_penalty = options_.frequency_penalty;
  options.sampling.seed = receipt_.seed = options_.seed ? *options_.seed : drawn_seed();
  options.seeded = options_.seed.has_value();
  options.stop = options_.stop;
  options.ignore_end = options_.ignore_eos;
  options.logprobs = options_.logprobs.value_or(-1);
  if (!place_.head_on_cloud && (place_.local() || options_.auto_cut))
    options.drafts = options_.drafts;
  options.drafts.memory = &draft_memory_;
  return options;
}

// Weights come beside the texts, and what is computed here.
void Run::begin_arrival() {
  ArrivalOptions arrival;
  arrival.grow.max_weights = options_.max_weights.value_or(kMaxWeights);
  arrival.grow.told = [this](const GrowthNote& note) { say_beside(note.line()); };
  arrival.goal = options_.goal;
  arrival.info = info_;
  arrival.forecasts = forecasts_.get();
  arrival.grows = [this](const std::shared_ptr<PlacedModel>& model) {
    answers_.grow_beside(model);
  };
  arrival.landed = [this](const Landed& place) { answers_.go_on_at(place); };
  arrival.offered = [this](const Landed& place) { answers_.offer(place); };
  arrival.tell = [this](const std::string& line) { say(line); };
  if (forecasts_) answers_.choose_by(*forecasts_, [this](const std::string& line) { say(line); });
  if (moving_) {
    moving_->options.stays = [this](const Quicker& there, double token_ms) {
      say_beside(staying_words(there, token_ms));
    };
  }
  arrival_.emplace(loader_, std::move(arrival));
  rescuer_.comes_by(&*arrival_);
}

void Run::say(const std::string& line) { lines_.tell(cat("--cut auto: ", line)); }

void Run::say_beside(const std::string& line) { lines_.tell_beside(cat("--cut auto: ", line)); }

void Run::start_clock() {
  start_ = Clock::now();
  waited_before_ = notice_.waited_ms();
}

// JSON comes at the end, in one piece.
void Run::begin_writing() {
  if (!options_.json) lines_.begin_text();
}

void Run::print_text() {
  const GenerateOptions options = generate_ ? *generate_ : generate_options();
  if (!opened_) {
    start_clock();
    receipt_.counts.traffic.stream_ms = 0;  // of another text
  }
  begin_writing();
  receipt_.prompt_tokens = prompt_.size();
  receipt_.max_tokens = options.max_tokens;
  SplitText text(split_run(), prompt_, options, receipt_.counts);
  std::optional<Answers::Entry> entry;
  if (arrival_) entry.emplace(answers_, *text.forward(), options.repeats());
  const auto put = [this](std::string_view piece, const ScoredToken* token) {
    return put_text(piece, token);
  };
  try {
    while (text.next(put)) continue;
  } catch (const Error&) {
    say_what_was_kept();
    throw;
  }
  const Generated generated = text.take();
  entry.reset();
  receipt_.device = split_->device();  // it may have failed meanwhile
  receipt_.prompt_tokens = prompt_.size();
  receipt_.tokens = generated.tokens.size();
  receipt_.finish_reason = generated.finish_reason;
  receipt_.waited_ms = notice_.waited_ms() - waited_before_;
  receipt_.end_at_last_move();
  if (arrival_) {
    receipt_.exact = answers_.exact();
    describe_place(receipt_, answers_, loader_.config());
  }
  rescuer_.describe(receipt_);
  if (forecasts_) {
    const bool drafts = options.drafts.most > 0;
    forecasts_->describe(receipt_, watch_, drafts);
    forecasts_->learn(receipt_, watch_, drafts);
  }
  if (options_.json) {
    world_.console.out(to_json(receipt_, prompt_, generated, options_.logprobs.has_value()));
    return;
  }
  if (world_.console.out_is_terminal) world_.console.out("\n");
  if (interrupt_.signal() != 0) return say_what_was_kept();
  lines_.end_text();
  if (!options_.goal_given) receipt_.forecast.reset();
  if (!options_.quiet) {
    world_.console.err(cat("\n", told_receipt(to_text(receipt_), world_.console)));
  }
}

// Where a text ends early: what there is of it, what it cost, and how to get it again.
void Run::say_what_was_kept() {
  notice_.end();
  if (options_.quiet || options_.json) return;
  lines_.end_text();
  if (receipt_.tokens == 0) return world_.console.err("\n  nothing was written\n");
  receipt_.waited_ms = notice_.waited_ms() - waited_before_;
  receipt_.finish_reason = "cancelled";
  receipt_.device = split_->device();
  receipt_.end_at_last_move();
  if (arrival_) describe_place(receipt_, answers_, loader_.config());
  rescuer_.describe(receipt_);
  const std::string again =
      options_.temperature == 0 ? "run again" : cat("run again with --seed ", receipt_.seed);
  world_.console.err(cat("\n", told_receipt(to_text(receipt_), world_.console), "  ",
                         receipt_.tokens, receipt_.tokens == 1 ? " token" : " tokens", " written; ",
                         again, " to get the same text\n"));
}

void Run::print_states() {
  const std::vector<float> rows = final_states(split_run(), prompt_, receipt_.counts);
  world_.console.out(
      states_text(rows, static_cast<size_t>(loader_.config().channels), options_.json));
}

void Run::print_embedding() {
  const EmbeddedTexts made =
      embed_texts(split_run(), std::span(&prompt_, 1), *sentences_, receipt_.counts);
  world_.console.out(
      embedding_text(made.values, prompt_.size(), sentences_->normalizes(), options_.json));
}

void Run::embed_each() {
  select_model();
  load();
  embed_lines(options_, world_, interrupt_, *sentences_, tokenizer_ ? &*tokenizer_ : nullptr,
              [this](std::span<const std::vector<int32_t>> texts) {
                return embed_texts(split_run(), texts, *sentences_, receipt_.counts).values;
              });
}

// Throws where the model writes none.
void Run::expect_texts() const {
  if (!loader_.config().encodes() || options_.embed) return;
  throw Error(ErrorKind::kInput,
              cat("the model ", shown(info_.id), " is an encoder, which writes no text: expected ",
                  "--embed or --serve"));
}

void Run::select_model() {
  if (!info_.id.empty()) return;
  loader_.select_model();
  loader_.expect_flags();
  Loader::Begin begin = loader_.begin();
  place_ = std::move(begin.place);
  info_ = std::move(begin.info);
  if (!options_.quiet) world_.console.err(head_line(place_));
  tokenizer_ = loader_.tokenizer(info_);
  sentences_ = loader_.sentences(info_);
  expect_texts();
}

void Run::load() {
  try {
    split_ = loader_.load(place_, info_);
  } catch (const Error&) {
    if (interrupt_.signal() != 0) {
      lines_.tell("\nwhat was downloaded is kept: the next run goes on from it");
    }
    throw;
  }
  loader_.remember(*split_);
  link_.emplace(loader_.remote(),
                link_options(*split_, loader_.config(), loader_.retry(), interrupt_));
  if (split_->moves()) {
    moving_.emplace(rescuer_.moving(split_, [this] { return lane_link(); }));
    loader_.remote().on_silence(rescuer_.is_lost(split_));
  }
  // They are kept in the cache, which a text on the cloud does without.
  const bool kept = !place_.all_on_cloud || loader_.has_cache();
  if (!place_.head_on_cloud && kept) forecasts_ = loader_.forecasts(info_);
  say_plan();
}

std::unique_ptr<CloudLink> Run::lane_link() {
  const auto remote = ended_by(interrupt_, loader_.connect(loader_.remote().patience().timeout));
  remote->set_manifest_query(split_->query);
  return std::make_unique<ModelLink>(
      remote, link_options(*split_, loader_.config(), loader_.retry(), interrupt_));
}

// A text whose words say all: the cloud begins it at once, and what this machine has to know of the
// model comes beside that. False where it did not begin.
bool Run::open(const std::string& prompt) {
  if (!options_.auto_cut || options_.prompt_ids || to_valid_utf8(prompt) != prompt) return false;
  start_clock();
  loader_.select_id();
  if (loader_.recalled()) return false;
  receipt_.counts.traffic.stream_ms = ms_since(start_);  // the cloud was asked for its models
  loader_.expect_flags();
  begin_writing();
  Remote& remote = loader_.lend();
  if (loader_.is_seen_alone()) remote.on_silence([this] { return !loader_.cloud_lives(); });
  std::atomic<bool> known = false;
  std::exception_ptr error;
  std::jthread beside;  // is waited for whatever happens meanwhile
  const auto learn = [&] {
    try {
      loader_.ask_begun([this] {
        info_ = {};
        select_model();
      });
    } catch (...) {
      error = std::current_exception();
    }
    known = true;
  };
  if (!try_start(beside, learn)) return false;
  generate_ = generate_options();
  Opened opened;
  opened.session = random_session_id();
  try {
    open_on_cloud(
        remote, loader_.id(),
        {prompt, !options_.no_special, *generate_, [&] { return known.load(); }},
        [this](std::string_view text, const ScoredToken* token) { return put_text(text, token); },
        opened, receipt_.counts);
  } catch (const RemoteError& lost) {  // it goes on, or begins, as any other
    opened.lost = lost.loses();
  }
  beside.join();
  receipt_.counts.ms = ms_since(start_);
  if (error) std::rethrow_exception(error);
  prompt_ = opened.prompt;
  const bool begun = !opened.tokens.empty() || !opened.finish_reason.empty();
  if (begun) opened_ = std::move(opened);
  return begun;
}

void Run::go(const std::string& prompt) {
  if (options_.prompt && world_.console.out_is_terminal && !options_.quiet) before_ = prompt;
  const bool begun = open(prompt);
  select_model();
  const bool sentence = options_.embed && sentences_->meant();
  if (begun && loader_.recalled()) place_ = place(options_, loader_.model());  // lost since then
  if (begun) {
    if (!place_.all_on_cloud) known_bytes_ = opened_->text_bytes;  // the same text from its start
    if (!place_.all_on_cloud) opened_.reset();
  } else if (sentence) {
    const Tokenizer* const tokenizer = tokenizer_ ? &*tokenizer_ : nullptr;
    prompt_ = options_.prompt_ids
                  ? sentences_->bounded(*options_.prompt_ids, false).ids
                  : sentences_->encode(tokenizer, sentences_->prompt({}) + prompt, false).ids;
    check_prompt(loader_.config(), prompt_);
  } else if (options_.prompt_ids) {
    prompt_ = *options_.prompt_ids;
    check_prompt(loader_.config(), prompt_);
  } else {
    prompt_ = prompt_ids(loader_.config(), tokenizer_ ? &*tokenizer_ : nullptr, prompt,
                         !options_.no_special);
  }
  load();
  if (options_.auto_cut && place_.all_on_cloud) begin_arrival();
  sentence ? print_embedding() : options_.embed ? print_states() : print_text();
}

void Run::interactive() {
  select_model();
  if (!tokenizer_) {
    throw Error(ErrorKind::kInput, "the model has no tokenizer: expected --prompt-ids");
  }
  load();
  RemotePool pool([this](auto timeout) { return loader_.connect(timeout); },
                  loader_.remote().patience().timeout);
  SplitWork::Shared shared{loader_.model(), &*tokenizer_, loader_.retry(), pool};
  OwnTurns turns([&pool](const std::string& session) { pool.dismiss(session); });
  shared.answers = &answers_;
  shared.forecasts = forecasts_.get();
  shared.rescuer = &rescuer_;
  const std::shared_ptr<PlacedModel> first = std::move(split_);
  const auto make_room_in = [&turns](PlacedModel& split) {
    Batcher* const batcher = split.batcher();
    if (batcher != nullptr)
      batcher->on_pages_spent([&turns, batcher] { return turns.make_room(*batcher); });
  };
  make_room_in(*first);
  const bool follows = options_.auto_cut && first->place.all_on_cloud;
  if (follows) begin_arrival();
  if (!arrival_) shared.turns = &turns;
  const auto present = [&] {
    if (std::shared_ptr<PlacedModel> next = answers_.next()) return next;
    const std::optional<Landed> place = answers_.place();
    return place ? place->at : first;
  };
  const auto at_cut = [&, this](const std::string& text) -> std::shared_ptr<PlacedModel> {
    if (follows && text == "auto") {
      if (!arrival_) begin_arrival();
      return nullptr;
    }
    Options options = options_;
    options.auto_cut = false;
    options.all_on_cloud = text == "cloud";
    const auto cut = parse_u64(text, 0, static_cast<uint64_t>(loader_.config().layers));
    if (!cut && !options.all_on_cloud) {
      throw Error(ErrorKind::kInput, cat(":cut: expected 0..", loader_.config().layers,
                                         follows ? ", cloud or auto, got " : " or cloud, got ",
                                         text.empty() ? "nothing" : shown(text)));
    }
    if (arrival_) {
      rescuer_.comes_by(nullptr);
      arrival_.reset();
      answers_.go_on_at(std::nullopt);
    }
    options.cut = cut ? std::optional(static_cast<int>(*cut)) : std::nullopt;
    const Placement wanted = place(options, loader_.model());
    std::shared_ptr<PlacedModel> split = loader_.load(wanted, loader_.manifest(&wanted));
    make_room_in(*split);
    turns.stay_on(split->batcher());
    return split;
  };
  run_prompt_loop({options_, world_, interrupt_, lines_, shared, present, generate_options(),
                   at_cut, [this](std::string_view text) { notice_.wrote(text); }});
  rescuer_.comes_by(nullptr);
  arrival_.reset();
}

int run(const CommandLine& line, const World& world, Interrupt& interrupt) {
  if (line.asked == Flags::Asked::kHelp) {
    world.console.out(line.help);
    return 0;
  }
  if (line.asked == Flags::Asked::kVersion) {
    world.console.out(version_text("edge_client", SPLIT_VERSION));
    return 0;
  }
  const Options& options = line.options;
  if (options.list_devices) {
    for (const ListedDevice& device : list_devices()) {
      world.console.out(wrapped(device.text + "\n", world.console.columns));
    }
    return 0;
  }
  if (options.plan) {
    Run(options, world, interrupt).plan();
    return 0;
  }
  if (options.serve) {
    serve_until_interrupted(options, world, interrupt);
    return 0;
  }
  if (options.jsonl) {
    Run(options, world, interrupt).embed_each();
    return 0;
  }
  const bool told = options.prompt || options.prompt_file || options.prompt_ids;
  if (!told && !options.embed && ::isatty(world.input) == 1) {
    Run(options, world, interrupt).interactive();
    return 0;
  }
  const std::string prompt = read_prompt(options, world.input, interrupt);
  Run(options, world, interrupt).go(prompt);
  return 0;
}

}  // namespace

int edge_main(const std::vector<std::string>& arguments, const World& world, Interrupt& interrupt) {
  int code = 0;
  try {
    const std::span all(arguments);
    const std::string_view first = all.empty() ? "" : std::string_view(all[0]);
    code = first == "cache" ? cache_command(all.subspan(1), world)
           : first == "doctor"
               ? doctor_command(all.subspan(1), world, interrupt)
               : run(read_command_line(arguments, world.environment, true, world.console.columns),
                     world, interrupt);
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

}  // namespace split::edge
