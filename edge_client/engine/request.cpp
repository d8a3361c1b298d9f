#include "edge_client/engine/request.h"

#include <csignal>

#include "base/log.h"

namespace split::edge {

// A text, or its states, while it is computed.
class EngineRequest::Running : public TextObserver {
 public:
  // Anything but a connection needs `split`, which may come later.
  Running(EngineRequest& work, std::shared_ptr<PlacedModel> split, size_t prompt_tokens)
      : work_(work) {
    if (split) run_on(std::move(split));
    const std::lock_guard lock(work_.mutex_);
    auto& all = work_.now_;
    if (all.going++ == 0) all.since = Clock::now();
    if (all.texts++ == 0) all.waited_before = work_.engine_.observer().waited_ms();
    work_.running_.push_back(this);
    work_.now_.prompt_tokens += prompt_tokens;
  }
  ~Running() override {
    if (counts.trips > 0 && counts.moves.empty()) work_.engine_.failover().cloud_answers();
    ended(false);
    const std::lock_guard lock(work_.mutex_);
    std::erase(work_.running_, this);
    work_.now_.ended += counts;
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  void run_on(std::shared_ptr<PlacedModel> split) {
    split_ = std::move(split);
    remote_.reset();  // a pending answer may not have been read to its end
    remote_ = connect();
    const LinkOptions links = options();
    link_.emplace(remote_, links);
    Engine& engine = work_.engine_;
    SessionCache* const sessions = engine.session_cache();
    if (sessions != nullptr && work_.owner_) {
      turns_.emplace(SessionCacheUse{*sessions, *work_.owner_, split_->info.phases_alike, split_});
    }
    // A text connects under its own lock. The engine takes a text's lock under its own, so this
    // must take none of the engine's.
    const auto beside = [this, links] { return std::make_unique<ModelLink>(connect(), links); };
    if (split_->moves()) {
      moving_.emplace(engine.failover().moving(split_, beside));
      moving_->options.stays = [&engine](const FasterCut& there, double token_ms) {
        engine.observer().stays(there, token_ms);
      };
      remote_->on_silence(engine.failover().is_lost(split_));
    }
  }
  SplitContext run(const EarlyText* opened = nullptr) {
    const LoadedModel& model = *work_.engine_.loaded();
    return {*link_,
            split_->place,
            split_->batcher(),
            model.model,
            model.tokens(),
            work_.engine_.retry(),
            work_.interrupt_,
            {cat(Hex{reinterpret_cast<uintptr_t>(&work_)}),
             [&interrupt = work_.interrupt_] { return interrupt.signal() != 0; }},
            moving_ ? &*moving_ : nullptr,
            opened,
            turns_ ? &*turns_ : nullptr,
            root_};
  }
  // Separates owners: rows are shared here within one owner, and on the cloud, which sees one key,
  // by a salt.
  void keep_apart(GenerateOptions& options) {
    if (!options.cache_prompt) turns_.reset();
    if (options.cache_prompt && work_.owner_) {
      root_ = PrefixRoot{*work_.owner_, options.cache_salt};
      if (turns_) turns_->owner = cat(*work_.owner_, "\n", options.cache_salt);
    }
    if (!split_->info.knows(wire::kCacheFeature)) {
      options.cache_prompt = true;
      options.cache_salt.clear();
    } else if (work_.owner_) {
      options.cache_salt =
          Sha256::hex_of(as_bytes_of(cat(*work_.owner_, "\n", options.cache_salt)));
    }
    cache_prompt_ = options.cache_prompt;
    cache_salt_ = options.cache_salt;
    remote_->set_sharing(cache_prompt_, cache_salt_);
  }
  // The connection of a text that begins by its words.
  Remote& opens_over() {
    remote_ = connect();
    remote_->on_silence(work_.engine_.is_lost());
    return *remote_;
  }
  void token() override {
    const auto now = Clock::now();
    work_.engine_.observer().token(told_, counts, ms_between(last_, now) / 1e3, first_);
    first_ = false;
    last_ = now;
    tell_moves();
    const std::lock_guard lock(work_.mutex_);
    told_ = counts;
    auto& all = work_.now_;
    const double waited = work_.engine_.observer().waited_ms() - all.waited_before;
    ++all.tokens;
    all.watch.token(counts, ms_between(all.since, now) - waited);
    if (all.first_token_ms) return;
    all.first_token_ms = ms_between(all.since, now);
    all.first = counts;
  }
  bool stops() const override { return work_.cancelled(); }
  // Closes the account of its time, now or at its last token.
  void ended(bool at_token) override {
    const std::lock_guard lock(work_.mutex_);
    if (std::exchange(ended_, true)) return;
    auto& all = work_.now_;
    if (--all.going == 0)
      all.ms += ms_between(all.since, at_token && !first_ ? last_ : Clock::now());
  }
  bool begun() const { return !first_; }
  const SplitCounts& told() const { return told_; }

  SplitCounts counts;  // written by the thread that computes

 private:
  void tell_moves() {
    for (; moves_told_ < counts.moves.size(); ++moves_told_) {
      work_.engine_.observer().moved(
          counts.moves[moves_told_],
          rescue_words(counts.moves, moves_told_, work_.moved_exactly(counts)));
    }
  }
  std::shared_ptr<Remote> connect() {
    std::shared_ptr<Remote> remote = ended_by(work_.interrupt_, work_.engine_.pool().take());
    if (split_) remote->set_manifest_query(split_->query);
    remote->set_trace(work_.trace_);
    remote->set_sharing(cache_prompt_, cache_salt_);
    return remote;
  }
  LinkOptions options() {
    Engine& engine = work_.engine_;
    LinkOptions options =
        link_options(*split_, engine.loaded()->model.config(), engine.retry(), work_.interrupt_);
    options.last = !work_.owner_;  // only a server's client asks for another text
    options.goodbye = [&engine](const std::string& session) { engine.pool().dismiss(session); };
    if (SessionCache* const sessions = engine.session_cache()) {
      options.give_up = [sessions] { return sessions->give_sessions(); };
    }
    return options;
  }

  EngineRequest& work_;
  bool cache_prompt_ = true;
  std::string cache_salt_;
  std::shared_ptr<PlacedModel> split_;
  std::shared_ptr<Remote> remote_;
  std::optional<ModelLink> link_;
  std::optional<Moving> moving_;
  std::optional<SessionCacheUse> turns_;
  std::optional<PrefixRoot> root_;
  SplitCounts told_;  // at the last token
  Clock::time_point last_ = Clock::now();
  bool first_ = true, ended_ = false;
  size_t moves_told_ = 0;
};

class EngineRequest::RunningText : public SplitText {
 public:
  RunningText(EngineRequest& work, const std::shared_ptr<Running>& one,
              std::span<const int32_t> prompt, GenerateOptions options,
              const EarlyText* opened = nullptr)
      : SplitText(context(one, options, opened), prompt, options, one->counts),
        work_(work),
        counts_(one->counts) {
    if (forward() != nullptr) entry_.emplace(work.engine_.answers(), *forward(), options.repeats());
  }
  Generated take() override {
    Generated made = SplitText::take();
    entry_.reset();
    // Moved rows are kept only if both sides give the same bits.
    if (counts_.moves.empty() || work_.moved_exactly(counts_).value_or(false)) keep();
    return made;
  }

 private:
  static SplitContext context(const std::shared_ptr<Running>& one, GenerateOptions& options,
                              const EarlyText* opened) {
    one->keep_apart(options);
    SplitContext run = one->run(opened);
    run.observer = one.get();
    run.keeps = one;
    return run;
  }

  EngineRequest& work_;
  const SplitCounts& counts_;
  std::optional<RunningTexts::Entry> entry_;
};

// A text that the cloud begins by its words, before the model is loaded here.
class EngineRequest::OpenedText : public Text {
 public:
  OpenedText(EngineRequest& work, Json words, const GenerateOptions& options, bool waits)
      : work_(work),
        words_(std::move(words)),
        options_(options),
        waits_(waits),
        one_(std::make_shared<Running>(work, nullptr, 0)) {
    opened_.session = random_session_id();
  }
  bool next(const OnText& on_text) override {
    const OnText all = [&](std::string_view text, const ScoredToken* token) {
      if (at_start_) text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
      at_start_ &= text.empty();
      const size_t known = std::min(known_bytes_, text.size());
      known_bytes_ -= known;
      const bool news = known < text.size() || token != nullptr;
      return !news || on_text(TextPiece(text.substr(known)), token);
    };
    try {
      if (text_) return text_->next(all);
      if (begun_ || (waits_ && work_.engine_.settled())) {
        begun_ ? go_on() : begin_anew();
        return true;
      }
      begun_ = true;
      open(on_text);
      return waits_ ? !stopped_ : !ended();
    } catch (const RemoteError&) {
      if (!waits_ || one_->begun() || work_.cancelled()) throw;
    }
    begin_anew();
    return true;
  }
  Generated take() override {
    if (text_) return text_->take();
    Generated made;
    made.text = std::move(said_);
    made.finish_reason = opened_.finish_reason;
    for (const ScoredToken& token : opened_.tokens) made.tokens.push_back(token.id);
    if (options_.logprobs >= 0) made.scored = std::move(opened_.tokens);
    if (stopped_) made.finish_reason = FinishReason::kCancelled;
    return made;
  }
  std::span<const int32_t> prompt() const override { return opened_.prompt; }
  size_t cached() const override { return text_ ? text_->cached() : one_->counts.cached_rows; }

 private:
  bool ended() const { return stopped_ || opened_.finish_reason != FinishReason::kNone; }
  // Begins on the cloud. Tokens from before a loss go on as any other text.
  void open(const OnText& on_text) {
    Engine& engine = work_.engine_;
    const auto put = [&](std::string_view text, const ScoredToken* token) {
      said_ += text;
      if (token != nullptr) one_->token();
      stopped_ = !on_text(TextPiece(text), token) || work_.cancelled();
      return !stopped_;
    };
    const auto ready = [&engine] { return engine.settled(); };
    // The server's features are unknown yet, and with them whether it keeps this edge's users
    // apart.
    GenerateOptions alone = options_;
    alone.cache_salt.clear();
    if (work_.owner_) alone.cache_prompt = false;
    try {
      open_on_cloud(one_->opens_over(), engine.opens(), words_, alone, ready, put, opened_,
                    one_->counts);
    } catch (const RemoteError& error) {
      if (work_.cancelled() || opened_.tokens.empty()) throw;
      opened_.lost = error.loses();
    }
    if (ended()) one_->ended(opened_.finish_reason == FinishReason::kLength);
    const std::lock_guard lock(work_.mutex_);
    work_.now_.prompt_tokens += opened_.prompt.size();
  }
  // Begins from the prompt's ids, once the model is here, a text of which nothing was given.
  void begin_anew() {
    Engine& engine = work_.engine_;
    waits_ = false;
    text_.reset();
    one_.reset();
    engine.observer().begins_anew();
    const LoadedModel& model = engine.await_loaded(work_.interrupt_);
    opened_.prompt = prompt_ids(model.model.config(), model.tokens(), words_.at("prompt").text(),
                                words_.at("special").get<bool>());
    text_ = work_.begin(opened_.prompt, options_);
  }
  // Goes on with the model, once it is here.
  void go_on() {
    Engine& engine = work_.engine_;
    const LoadedModel& model = engine.await_loaded(work_.interrupt_);
    const ModelConfig& config = model.model.config();
    check_prompt(config, opened_.prompt);
    if (options_.max_tokens < 0) {
      options_.max_tokens = config.context - static_cast<int>(opened_.prompt.size());
    }
    const bool bare = words_.contains("messages") && !model.chat;
    if (bare) options_.min_tokens = std::max(options_.min_tokens, 1);  // as any such chat
    const std::shared_ptr<PlacedModel> there = engine.opened_on();
    const std::shared_ptr<PlacedModel> split = there ? there : engine.present();
    at_start_ = bare;
    known_bytes_ = opened_.text_bytes;
    one_->run_on(split);
    work_.is_on(split);
    text_ = std::make_unique<RunningText>(work_, one_, opened_.prompt, work_.with_drafts(options_),
                                          there ? &opened_ : nullptr);
  }

  EngineRequest& work_;
  const Json words_;
  GenerateOptions options_;
  bool waits_;
  std::shared_ptr<Running> one_;  // null once it began anew
  std::unique_ptr<Text> text_;    // once the model is here
  EarlyText opened_;
  std::string said_;
  size_t known_bytes_ = 0;  // bytes of the text to come that the reader has
  bool begun_ = false, stopped_ = false;
  bool at_start_ = false;  // the text's first spaces are skipped
};

EngineRequest::EngineRequest(Engine& engine, std::shared_ptr<PlacedModel> split,
                             std::optional<std::string> owner)
    : engine_(engine),
      owner_(std::move(owner)),
      trace_(log_trace()),
      split_(split ? std::move(split) : engine.present()) {}

EngineRequest::~EngineRequest() {
  if (now_.ended.steps == 0) return;
  const Receipt receipt = counted();
  std::optional<double> error;
  if (foreseen(split_.get())) error = engine_.forecasts()->learn(receipt, now_.watch, now_.drafts);
  engine_.count_growth();
  engine_.observer().ended(receipt, error);
}

// A request that began by words has none until the engine has one.
std::shared_ptr<PlacedModel> EngineRequest::split() const {
  const std::lock_guard lock(mutex_);
  return split_;
}

void EngineRequest::is_on(const std::shared_ptr<PlacedModel>& split) {
  const std::lock_guard lock(mutex_);
  if (!split_) split_ = split;
}

// Whether the forecast was for this: several texts in shared steps take a different time.
bool EngineRequest::foreseen(const PlacedModel* split) const {
  return split != nullptr && engine_.forecasts() != nullptr && now_.texts == 1 && now_.tokens > 0 &&
         !split->place.head_on_cloud;
}

// Returns where a text begins.
std::shared_ptr<PlacedModel> EngineRequest::split_for(const GenerateOptions& options) const {
  std::shared_ptr<PlacedModel> split = this->split();
  const bool apart = begins_apart(split->growing, split->is_exact(), options.repeats());
  return apart ? std::make_shared<PlacedModel>(split->at(Cut::cloud())) : split;
}

GenerateOptions EngineRequest::with_drafts(const GenerateOptions& options) {
  GenerateOptions with = options;
  const std::shared_ptr<PlacedModel> split = this->split();
  const bool head_here = split->place.local() || split->deepest;
  if (with.drafts.most == 0 && head_here && !split->place.head_on_cloud) {
    with.drafts = engine_.drafts();
    with.drafts.drawn = options.sampling.temperature > 0;
  }
  const std::lock_guard lock(mutex_);
  now_.drafts = with.drafts.most > 0;
  return with;
}

std::unique_ptr<Text> EngineRequest::begin(std::span<const int32_t> prompt,
                                           const GenerateOptions& options) {
  if (!split()) is_on(engine_.present());  // not loaded when the request was made
  const GenerateOptions with = with_drafts(options);
  const auto one = std::make_shared<Running>(*this, split_for(with), prompt.size());
  return std::make_unique<RunningText>(*this, one, prompt, with);
}

std::unique_ptr<Text> EngineRequest::begin_words(Json words, const GenerateOptions& options,
                                                 bool waits) {
  return std::make_unique<OpenedText>(*this, std::move(words), options, waits);
}

std::vector<float> EngineRequest::states(std::span<const int32_t> tokens) {
  Running one(*this, split(), tokens.size());
  return final_states(one.run(), tokens, one.counts);
}

std::vector<float> EngineRequest::rows(const SequenceRows& rows, uint32_t prompt) {
  Running one(*this, split(), 0);
  return rows_between(one.run(), rows, prompt, one.counts);
}

EmbeddedTexts EngineRequest::embed(std::span<const std::vector<int32_t>> texts,
                                   const Sentences& sentences, std::span<const uint32_t> seconds) {
  size_t tokens = 0;
  for (const auto& ids : texts) tokens += ids.size();
  Running one(*this, split(), tokens);
  return embed_texts(one.run(), texts, sentences, one.counts, seconds);
}

// Whether texts with these moves have the cloud's bits.
std::optional<bool> EngineRequest::moved_exactly(const SplitCounts& counts) const {
  Receipt receipt;
  receipt.counts.moves = counts.moves;
  receipt.exact = exact(split().get());
  engine_.failover().describe(receipt);
  return receipt.exact;
}

std::optional<bool> EngineRequest::exact(const PlacedModel* split) const {
  const std::optional<bool> known = split == nullptr ? std::nullopt : split->is_exact();
  return known ? known : engine_.answers().exact();
}

void EngineRequest::cancel() noexcept { interrupt_.raise(SIGTERM); }

Receipt EngineRequest::counted() const {
  Receipt receipt;
  const std::lock_guard lock(mutex_);
  const LoadedModel* const model = engine_.loaded();
  if (split_ && model != nullptr) {
    describe(receipt, *split_, model->model.config(), engine_.pool().origin());
  } else {
    receipt.server = engine_.pool().origin();
    receipt.cut = Cut::cloud();
  }
  receipt.counts = now_.ended;
  for (const Running* one : running_) receipt.counts += one->told();
  // Wall-clock time; concurrent texts each count their own.
  receipt.counts.ms = now_.ms + (now_.going == 0 ? 0 : ms_between(now_.since, Clock::now()));
  receipt.prompt_tokens = now_.prompt_tokens;
  receipt.tokens = now_.tokens;
  receipt.first_token_ms = now_.first_token_ms.value_or(0);
  receipt.first = now_.first;
  receipt.exact = exact(split_.get());
  receipt.end_at_last_move();
  if (model != nullptr) describe_place(receipt, engine_.answers(), model->model.config());
  engine_.failover().describe(receipt);
  if (foreseen(split_.get())) engine_.forecasts()->describe(receipt, now_.watch, now_.drafts);
  return receipt;
}

}  // namespace split::edge
