#include "edge_client/train/train_command.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/figures.h"
#include "base/file.h"
#include "base/json.h"
#include "base/resources/clock.h"
#include "base/resources/granted.h"
#include "device/about.h"
#include "edge_client/cli/run.h"
#include "edge_client/cloud/model_link.h"
#include "edge_client/options/command_line.h"
#include "edge_client/server/cloud_notice.h"
#include "edge_client/server/loader_output.h"
#include "edge_client/weights/local_tail.h"
#include "edge_client/weights/weight_blobs.h"
#include "edge_client/weights/weight_store.h"
#include "program/terminal.h"
#include "train/best.h"
#include "train/operations_check.h"
#include "train/tail_file.h"
#include "train/training_schedule.h"

namespace split::edge {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostText = 256 << 20;
constexpr size_t kTripBytes = 8 << 20;  // bytes of hidden states in one trip
constexpr int64_t kLength = 128;        // positions of a window
constexpr size_t kLeastWindows = 8;
constexpr std::chrono::seconds kSavedEach{30};

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorKind::kInput, why); }

std::string time_of(double minutes) {
  return minutes < 1 ? cat(std::lround(60 * minutes), " s") : cat(fixed(minutes, 1), " minutes");
}

std::string arrow(double before, double after) {
  return cat(fixed(before, 2), " -> ", fixed(after, 2));
}
// Quotes a word for a shell.
std::string word_of(std::string text) {
  if (text.find_first_of(" \t\n'\"\\$`!*?&;|<>()[]{}#~") == text.npos) return text;
  for (size_t at = 0; (at = text.find('\'', at)) != text.npos; at += 4)
    text.replace(at, 1, "'\\''");
  return cat("'", text, "'");
}

// A training run, from the text to the file.
class Training {
 public:
  Training(const TrainCommand& command, const World& world, Interrupt& interrupt)
      : command_(command),
        world_(world),
        interrupt_(interrupt),
        choice_(command.options, command.options.placement,
                notes_on(world.console, command.options.quiet), world.environment, interrupt),
        notice_(world.console, choice_.remote().origin(), command.options.quiet),
        runtime_(command.options.placement.device) {
    choice_.on_waiting([&](const RemoteError& error) { notice_.lost(error); },
                       [&](bool again) { notice_.found(again); });
  }

  int go() {
    keep_little_free_memory();  // weights and rows pass through memory
    expect_files();
    choice_.select_model();
    const ModelConfig& config = choice_.config();
    const int blocks = command_.blocks > 0 ? command_.blocks : std::min(2, config.layers);
    train::Tail tail(choice_.model(), {.first = config.layers - blocks, .lora = command_.lora});
    PlacementRequest request;
    request.cut = alone_ ? 0 : tail.shape().first;
    request.head = Head::kEdge;
    alone_ = request.cut == 0;  // only the embedding is frozen if all blocks are trained
    const Placement place = choice_.place(request);
    const wire::ModelInfo info = choice_.manifest(&place);
    cut_texts(info);
    name_course(info, tail);
    const train::Windows windows{static_cast<int64_t>(train::TrainingSchedule::kBatch),
                                 texts_.trained.length};
    say_what_leaves();
    expect_room(tail, windows);
    array::Store store;
    fetch(info, place, tail, store);
    add_states(store, tail, info);
    train::Best best(store, tail);
    train::Trainer trainer(runtime_, store, tail, windows, options_of(),
                           train::TrainingSchedule::kClip);
    if (!begin_or_go_on(trainer, store, best)) return 0;
    if (!run(trainer, store, best)) return 0;  // interrupted: the caller returns the code
    finish(trainer, store, tail, best, info);
    return 0;
  }

 private:
  fs::path out() const { return command_.out; }
  fs::path part() const { return command_.out + ".part"; }
  optim::Options options_of() const { return train::default_options(command_.lora > 0); }
  void say(const std::string& line) {
    close_line();
    if (!command_.options.quiet) world_.console.err(line + "\n");
  }

  void expect_files() const {
    if (fs::exists(out())) refuse(cat("--out: ", shown(command_.out), " is there already"));
    if (!fs::exists(part())) AtomicFile probe(part());  // checks that it can be written
  }

  std::vector<int32_t> ids_of(const std::string& file, const Tokenizer& tokenizer) const {
    return tokenizer.encode(read_file(file, kMostText), {.parse_special = false});
  }

  void cut_texts(const wire::ModelInfo& info) {
    const std::optional<Tokenizer> tokenizer = choice_.tokenizer(info);
    if (!tokenizer) refuse("the model has no tokenizer, by which a text becomes ids");
    const std::vector<int32_t> ids = ids_of(command_.text, *tokenizer);
    count_ = ids.size();
    const auto length = std::min<int64_t>(kLength, choice_.config().max_positions);
    texts_ = train::text_windows(ids, tokenizer->before(), length);
    const size_t windows = texts_.trained.count() + texts_.unseen.count();
    if (windows < kLeastWindows || texts_.unseen.count() == 0) {
      refuse(cat("--text: expected ", kLeastWindows, " windows of ", length + 1, " tokens, got ",
                 windows, " of ", ids.size(), " tokens"));
    }
    if (!command_.known.empty()) {
      const std::vector<int32_t> known = ids_of(command_.known, *tokenizer);
      count_ += known.size();
      known_ = train::windows_of(known, tokenizer->before(), length);
      if (known_.count() == 0) {
        refuse(cat("--known: expected a window of ", length + 1, " tokens, got ", known.size()));
      }
    }
    for (const train::WindowSet* set : {&texts_.trained, &texts_.unseen, &known_}) {
      for (const int32_t id : set->ids) {
        if (id >= choice_.config().vocab) refuse(cat("the model has no row for token ", id));
      }
    }
    course_.seed = command_.seed;
    course_.windows = texts_.trained.count();
    course_.steps = command_.steps > 0 ? command_.steps
                                       : train::TrainingSchedule::default_steps(course_.windows);
  }

  // Names all inputs of the bits, so that a different run does not resume from this one's part.
  void name_course(const wire::ModelInfo& info, const train::Tail& tail) {
    said_.base = base_of(info);
    std::string ids;
    for (const train::WindowSet* set : {&texts_.trained, &texts_.unseen, &known_}) {
      ids += Sha256::hex_of(std::as_bytes(std::span(set->ids)));
    }
    said_.course = cat("blocks ", tail.model().config().layers - tail.shape().first, " lora ",
                       command_.lora, " steps ", course_.steps, " seed ", course_.seed, " cut ",
                       alone_ ? "0" : "cloud", " format ", formats_name(info), " text ", ids,
                       runtime_.gpu == nullptr ? "" : " on " + runtime_.name());
  }
  std::string formats_name(const wire::ModelInfo& info) const {
    std::string name;
    for (const StageBlobs& stage :
         stage_blobs(choice_.model(), info, StageRange(), weights_.formats(info))) {
      for (const wire::BlobInfo& blob : stage.blobs) name += blob.format;
    }
    return Sha256::hex_of(std::as_bytes(std::span(name))).substr(0, 8);
  }

  void say_what_leaves() {
    say(alone_ ? "nothing of the text leaves this machine"
               : cat("the text's ", count_, " token ids, which are the text, go to ",
                     choice_.remote().origin(), " once; nothing else leaves this machine"));
  }

  void expect_room(train::Tail& tail, const train::Windows& windows) {
    train::Needs needed = train::Trainer::needs(runtime_, tail, windows, options_of(),
                                                train::TrainingSchedule::kClip);
    needed.host += peak_memory();
    for (const optim::State& one : tail.trained()) {  // restores the best
      needed.host += static_cast<uint64_t>(element_count(one.dims).value_or(0)) * sizeof(float);
    }
    for (const train::WindowSet* set : {&texts_.trained, &texts_.unseen, &known_}) {
      needed.host += set->count() * static_cast<uint64_t>(set->length) *
                     static_cast<uint64_t>(choice_.config().channels) * sizeof(float);
    }
    if (alone_) needed.add(runtime_, tail.frozen_bytes());
    if (!alone_) needed.host += 3 * kTripBytes;  // a reply, its rows, and the allocator's reserve
    const uint64_t granted = granted_memory(), own = runtime_.own_memory();
    say(cat(
        "training takes ", human_bytes(needed.host),
        " of memory with the program's own; this machine grants ", human_bytes(granted),
        own > 0 ? cat("; and ", human_bytes(needed.gpu), " of the GPU's ", human_bytes(own)) : ""));
    const auto expect = [](uint64_t bytes, uint64_t there, const char* who) {
      if (bytes <= there) return;
      refuse(cat("expected memory for ", human_bytes(bytes), ", ", who, " ", human_bytes(there),
                 ": fewer --blocks or a shorter --text take less"));
    };
    expect(needed.host, granted, "this machine grants");
    expect(needed.gpu, own, "the GPU has");
  }

  void fetch(const wire::ModelInfo& info, const Placement& place, const train::Tail& tail,
             array::Store& store) {
    const auto blobs = weights_.blobs(info, place.range);
    LoadOptions load;
    load.retry = choice_.retry();
    load.progress = progress_on(world_.console, command_.options.quiet);
    WeightBlobs weights(choice_.model(), blobs, weights_.begin_load(info, blobs, load));
    train::add_weights(store, tail, alone_ ? -1 : tail.shape().first,
                       [&](const WeightDecl& decl) { return weights.floats(decl); });
    weights.load().finish();
    train::begin_lora(store, tail, command_.seed);
  }

  // Adds the hidden states of all windows at the tail's first block: the cloud's, or computed here.
  void add_states(array::Store& store, train::Tail& tail, const wire::ModelInfo& info) {
    for (train::WindowSet* set : {&texts_.trained, &texts_.unseen, &known_}) {
      if (set->count() == 0) continue;
      alone_ ? train::add_hidden(runtime_, store, tail, *set) : ask_states(tail, info, *set);
    }
  }
  void ask_states(const train::Tail& tail, const wire::ModelInfo& info, train::WindowSet& set) {
    ModelLink link(
        choice_.remote(),
        {.info = info, .config = choice_.config(), .retry = choice_.retry(), .waiter = interrupt_});
    const auto length = static_cast<size_t>(set.length);
    const auto width = static_cast<size_t>(choice_.config().channels);
    set.hidden.reserve(set.count() * length * width);
    std::vector<uint32_t> lengths(set.count(), static_cast<uint32_t>(length));
    std::vector<int32_t> tokens;
    for (size_t i = 0; i < set.count(); ++i) {
      const auto from = set.ids.begin() + static_cast<std::ptrdiff_t>(i * (length + 1));
      tokens.insert(tokens.end(), from, from + static_cast<std::ptrdiff_t>(length));
    }
    TextRows all{.lengths = lengths, .tokens = tokens};
    all.range.to = tail.shape().first;
    Traffic traffic;
    for (size_t first = 0; first < lengths.size();) {
      const size_t n = texts_within(lengths, first, kTripBytes / (width * sizeof(float)));
      const Send asked{.call = Send::kTexts,
                       .traffic = &traffic,
                       .texts = all.slice(first, n),
                       .width = static_cast<uint32_t>(width)};
      const auto rows = retried(choice_.retry(), interrupt_, [&] { return link.ask(asked); });
      set.hidden.insert(set.hidden.end(), rows.begin(), rows.end());
      first += n;
    }
  }

  // Restores an interrupted run, or measures the loss before the first step.
  bool begin_or_go_on(train::Trainer& trainer, array::Store& store, train::Best& best) {
    if (fs::exists(part())) {
      const auto known = train::read_state(part(), nullptr);
      const auto at = [&](const char* key) {
        const auto found = known.find(key);
        return found == known.end() ? std::string() : found->second;
      };
      if (at("course") != said_.course || at("base") != said_.base) {
        refuse(cat(part().string(),
                   " is of another text, model or flags: expected these, or remove it"));
      }
      train::read_state(part(), &store);
      if (!best.plausible(course_.steps)) refuse(cat(part().string(), " is damaged: remove it"));
      say(cat("goes on behind step ", trainer.steps(), " of ", course_.steps));
      return true;
    }
    const double unseen = trainer.perplexity(texts_.unseen);
    best.begin(unseen, known_.count() > 0 ? trainer.perplexity(known_) : 0);
    return interrupt_.signal() == 0;
  }

  void save(const array::Store& store, int64_t steps) {
    train::write_state(part(), store, {{"course", said_.course}, {"base", said_.base}});
    kept_ = steps;
  }

  // Returns false if it was interrupted.
  bool run(train::Trainer& trainer, array::Store& store, train::Best& best) {
    const int64_t begun = kept_ = trainer.steps();
    Clock::time_point saved = Clock::now(), timed = saved;
    for (int64_t step = begun; step < course_.steps; ++step) {
      if (interrupt_.signal() != 0) {
        save(store, step);
        say(cat(step, " of ", course_.steps, " steps are kept in ", part().string(),
                ": the same command goes on"));
        return false;
      }
      const float loss = stepped(trainer, best, step);
      if (!std::isfinite(loss)) {
        throw Error(ErrorKind::kIntegrity, cat("the loss of step ", step + 1, " is not finite"));
      }
      if (step == begun) timed = Clock::now();  // the first step touches all memory
      const double each = step > begun ? ms_since(timed) / static_cast<double>(step - begun) : 0;
      const double minutes = each * static_cast<double>(course_.steps - step - 1) / 60000;
      if (step == begun + 1) say(cat(course_.steps, " steps take about ", time_of(minutes)));
      draw(step, loss, best, step > begun ? cat(", ", time_of(minutes), " left") : "");
      if (Clock::now() - saved > kSavedEach) {
        save(store, step + 1);
        saved = Clock::now();
      }
    }
    close_line();
    return true;
  }
  // Runs a step. A lost device loses what was not saved.
  float stepped(train::Trainer& trainer, train::Best& best, int64_t step) {
    try {
      const float loss =
          trainer.step(texts_.trained, course_.windows_of_step(step), course_.factor(step));
      if (course_.ends_pass(step)) best.look(trainer.perplexity(texts_.unseen), step + 1);
      return loss;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kDevice) throw;
      say(kept_ > 0 ? cat(kept_, " of ", course_.steps, " steps are kept in ", part().string(),
                          ": the same command goes on")
                    : "no step was saved yet");
      throw;
    }
  }
  void draw(int64_t step, float loss, const train::Best& best, const std::string& left) {
    if (command_.options.quiet || !world_.console.err_is_terminal) return;
    open_ = true;
    world_.console.err(cat("\r\x1b[Kstep ", step + 1, " of ", course_.steps, ", loss ",
                           std::round(loss * 1000) / 1000, ", last fifth ",
                           arrow(best.before(), best.least()), left));
  }
  void close_line() {
    if (std::exchange(open_, false)) world_.console.err("\n");
  }

  void finish(train::Trainer& trainer, array::Store& store, const train::Tail& tail,
              train::Best& best, const wire::ModelInfo& info) {
    const std::string of_text = "perplexity of the text's last fifth ";
    const auto print = [&](const std::string& line) {
      world_.console.out(wrapped(line + "\n", world_.console.columns));
    };
    if (best.steps() == 0) {
      fs::remove(part());
      return print(cat(of_text, arrow(best.before(), trainer.perplexity(texts_.unseen)),
                       ": it got no better after any pass; nothing is written"));
    }
    save(store, course_.steps);
    best.restore();
    std::string known;
    if (known_.count() > 0) {
      known =
          cat("; of ", command_.known, " ", arrow(best.known_before(), trainer.perplexity(known_)));
    }
    write(store, tail, info);
    fs::remove(part());
    print(cat(of_text, arrow(best.before(), best.least()), ": better, as it was after ",
              best.steps(), " of ", course_.steps, " steps", known));
    const Options& options = command_.options;
    world_.console.out(
        cat(out().string(), " is written; this uses it:\nedge_client --server ",
            word_of(options.server), options.placement.model.empty() ? "" : " --model ",
            word_of(options.placement.model), " --serve --tail ", word_of(out().string()), "\n"));
  }

  void write(array::Store& store, const train::Tail& tail, const wire::ModelInfo& info) const {
    const auto prefixes = tensor_names(info.config_json).prefixes;
    const std::string prefix(prefixes.empty() ? "" : prefixes[0]);
    Safetensors::Metadata metadata{
        {"format", "pt"}, {"split_base", said_.base}, {"split_model", info.id}};
    if (command_.lora > 0) {
      metadata["lora_rank"] = std::to_string(command_.lora);
      metadata["lora_alpha"] = cat(static_cast<float>(command_.lora) * tail.shape().scale);
      const std::string text = train::adapter_config(tail, info.id);
      write_file(out().parent_path() / "adapter_config.json", std::as_bytes(std::span(text)));
    }
    train::write_tail(out(), tail, store, prefix, metadata);
  }

  const TrainCommand& command_;
  const World& world_;
  Interrupt& interrupt_;
  ModelChoice choice_;
  const WeightStore weights_{choice_};
  CloudNotice notice_;
  array::Runtime runtime_;
  size_t count_ = 0;  // number of ids sent
  train::TextWindows texts_;
  train::WindowSet known_;
  train::TrainingSchedule course_;
  // Saved beside the state: the identity of its run.
  struct Said {
    std::string course, base;
  } said_;
  bool alone_ = command_.options.placement.cut == 0;  // the frozen part runs here too
  bool open_ = false;                                 // a progress line is open
  int64_t kept_ = 0;                                  // steps saved
};

int train(const std::vector<std::string>& arguments, const World& world, Interrupt& interrupt) {
  if (arguments.size() == 2 && arguments[0] == "check") {
    array::Runtime runtime(DeviceOptions{arguments[1]});
    world.console.out(cat(train::check_operations(runtime),
                          " operations, forward and backward, give what the plain CPU's give\n"));
    return 0;
  }
  const TrainCommand command = read_train_command(arguments, world);
  if (command.asked == Flags::Asked::kHelp) {
    world.console.out(command.help);
    return 0;
  }
  if (command.asked == Flags::Asked::kVersion) {
    world.console.out(version_text("edge_client", SPLIT_VERSION));
    return 0;
  }
  return Training(command, world, interrupt).go();
}

}  // namespace

int train_main(const std::vector<std::string>& arguments, const World& world,
               Interrupt& interrupt) {
  return run_command(world, interrupt, [&] { return train(arguments, world, interrupt); });
}

}  // namespace split::edge
