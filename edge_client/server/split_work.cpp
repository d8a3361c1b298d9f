#include "edge_client/server/split_work.h"

#include <csignal>

#include "base/log.h"
#include "base/plain_words.h"
#include "edge_client/drive/split_embed.h"
#include "wire/codes.h"

namespace split::edge {
namespace {

double ms_between(std::chrono::steady_clock::time_point start,
                  std::chrono::steady_clock::time_point end) {
  return std::chrono::duration<double, std::milli>(end - start).count();
}

// Its message is one tame line, and the reader is this machine's user.
[[noreturn]] void throw_as_answer(const RemoteError& error) {
  if (error.transient()) {
    const std::string message =
        cat(error.status == 0 ? "the cloud does not answer: " : "", plain_words(error.what()));
    throw http::HttpError(503, wire::codes::kCloudUnavailable, message, {}, {{"Retry-After", "1"}});
  }
  throw http::HttpError(502, wire::codes::kCloudError, error.what());
}

template <typename Call>
auto answered(const Call& call) {
  try {
    return call();
  } catch (const RemoteError& error) {
    throw_as_answer(error);
  }
}

}  // namespace

// One text or its states, while it is computed.
class SplitWork::Running {
 public:
  Running(SplitWork& work, std::shared_ptr<PlacedModel> split, size_t prompt_tokens)
      : work_(work), split_(std::move(split)), remote_(connect()), link_(remote_, options()) {
    if (OwnTurns* const turns = work.shared_.turns) {
      turns_.emplace(TurnsOf{*turns, work.owner_, split_->info.phases_alike, split_});
    }
    const auto beside = [this] { return std::make_unique<ModelLink>(connect(), options()); };
    if (Rescuer* const rescuer = work.shared_.rescuer; rescuer && split_->moves()) {
      moving_.emplace(rescuer->moving(split_, beside));
      remote_->on_silence(rescuer->is_lost(split_));
    } else if (split_->deepest) {
      moving_.emplace(Moving{move_options(*split_), beside});
    }
    const std::lock_guard lock(work_.mutex_);
    if (work_.running_.empty()) work_.since_ = Clock::now();
    work_.running_.push_back(this);
    ++work_.texts_;
    work_.prompt_tokens_ += prompt_tokens;
  }
  ~Running() {
    const bool answered = counts.trips > 0 && counts.moves.empty();
    if (answered && work_.shared_.rescuer != nullptr) work_.shared_.rescuer->cloud_answers();
    const std::lock_guard lock(work_.mutex_);
    std::erase(work_.running_, this);
    work_.ended_ += counts;
    if (work_.running_.empty()) work_.ms_ += ms_between(work_.since_, Clock::now());
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  SplitRun run() {
    return {link_,
            split_->place,
            split_->batcher(),
            work_.shared_.model,
            work_.shared_.tokenizer,
            work_.shared_.retry,
            work_.interrupt_,
            {cat(Hex{reinterpret_cast<uintptr_t>(&work_)}),
             [&interrupt = work_.interrupt_] { return interrupt.signal() != 0; }},
            moving_ ? &*moving_ : nullptr,
            nullptr,
            turns_ ? &*turns_ : nullptr};
  }
  // It has another token.
  void token() {
    const auto now = Clock::now();
    EdgeMetrics* const metrics = work_.shared_.metrics;
    if (metrics != nullptr) metrics->token(told_, counts, ms_between(last_, now) / 1e3, first_);
    first_ = false;
    last_ = now;
    tell_moves();
    const std::lock_guard lock(work_.mutex_);
    told_ = counts;
    ++work_.tokens_;
    work_.watch_.token(counts, ms_between(work_.since_, now));
    if (!work_.first_token_ms_) work_.first_token_ms_ = ms_between(work_.since_, now);
  }
  const SplitCounts& told() const { return told_; }

  SplitCounts counts;  // of the thread that computes

 private:
  void tell_moves() {
    const auto& tell = work_.shared_.tell;
    for (; tell && moves_told_ < counts.moves.size(); ++moves_told_) {
      const std::string words =
          rescue_words(counts.moves, moves_told_, work_.rescued_exactly(counts));
      if (!words.empty()) tell(words);
    }
  }
  std::shared_ptr<Remote> connect() {
    std::shared_ptr<Remote> remote = ended_by(work_.interrupt_, work_.shared_.pool.take());
    remote->set_manifest_query(split_->query);
    remote->set_trace(work_.trace_);
    return remote;
  }
  LinkOptions options() {
    const Shared& shared = work_.shared_;
    LinkOptions options =
        link_options(*split_, shared.model.config(), shared.retry, work_.interrupt_);
    options.goodbye = [&shared](const std::string& session) { shared.pool.dismiss(session); };
    if (shared.turns != nullptr) {
      options.give_up = [&shared] { return shared.turns->give_sessions(); };
    }
    return options;
  }

  SplitWork& work_;
  const std::shared_ptr<PlacedModel> split_;
  const std::shared_ptr<Remote> remote_;
  ModelLink link_;
  std::optional<Moving> moving_;
  std::optional<TurnsOf> turns_;
  SplitCounts told_;  // as of the last token
  Clock::time_point last_ = Clock::now();
  bool first_ = true;
  size_t moves_told_ = 0;
};

class SplitWork::RunningText : public serve::Text {
 public:
  RunningText(SplitWork& work, std::span<const int32_t> prompt, const GenerateOptions& options)
      : work_(work),
        one_(work, work.split_for(options), prompt.size()),
        text_(one_.run(), prompt, options, one_.counts) {
    if (work.shared_.answers != nullptr && text_.forward() != nullptr) {
      entry_.emplace(*work.shared_.answers, *text_.forward(), options.repeats());
    }
  }
  bool next(const OnText& on_text) override {
    const auto counted = [&](std::string_view text, const ScoredToken* token) {
      if (token != nullptr) one_.token();
      return on_text(text, token) && work_.interrupt_.signal() == 0;
    };
    return answered([&] { return text_.next(counted); });
  }
  Generated take() override {
    Generated made = text_.take();
    entry_.reset();
    // Rows of both sides are as good as new only where these give the same bits.
    if (one_.counts.moves.empty() || work_.rescued_exactly(one_.counts).value_or(false))
      text_.keep();
    return made;
  }

 private:
  SplitWork& work_;
  Running one_;
  SplitText text_;
  std::optional<Answers::Entry> entry_;
};

SplitWork::SplitWork(const Shared& shared, std::shared_ptr<PlacedModel> split, std::string owner)
    : shared_(shared), split_(std::move(split)), owner_(std::move(owner)), trace_(log_trace()) {}

SplitWork::~SplitWork() {
  if (ended_.steps == 0) return;
  learn();
  if (shared_.done) shared_.done(counted());
}

// Several texts that share their steps are not what one was foreseen to take.
bool SplitWork::foreseen() const {
  return shared_.forecasts != nullptr && texts_ == 1 && tokens_ > 0 && !split_->place.head_on_cloud;
}

void SplitWork::learn() {
  if (!foreseen()) return;
  const std::optional<double> error = shared_.forecasts->learn(counted(), watch_, drafts_);
  if (error && shared_.metrics != nullptr) shared_.metrics->foreseen(*error);
}

// One that somebody may expect again does not begin where the weights came to, if that changes
// bits.
std::shared_ptr<PlacedModel> SplitWork::split_for(const GenerateOptions& options) const {
  const bool other = split_->growing && split_->exact == false && options.repeats();
  return other ? std::make_shared<PlacedModel>(split_->at(Move::kCloud)) : split_;
}

std::unique_ptr<serve::Text> SplitWork::begin(std::span<const int32_t> prompt,
                                              const GenerateOptions& options) {
  GenerateOptions with = options;
  const bool head_here = split_->place.local() || split_->deepest;
  if (with.drafts.most == 0 && head_here && !split_->place.head_on_cloud) {
    with.drafts = shared_.drafts;
  }
  {
    const std::lock_guard lock(mutex_);
    drafts_ = with.drafts.most > 0;
  }
  return std::make_unique<RunningText>(*this, prompt, with);
}

std::vector<float> SplitWork::states(std::span<const int32_t> tokens) {
  Running one(*this, split_, tokens.size());
  return answered([&] { return final_states(one.run(), tokens, one.counts); });
}

serve::TextBackend::Embedded SplitWork::embed(Texts texts, const Sentences& sentences) {
  if (!sentences.meant()) return TextBackend::embed(texts, sentences);
  size_t tokens = 0;
  for (const auto& ids : texts) tokens += ids.size();
  Running one(*this, split_, tokens);
  EmbeddedTexts made =
      answered([&] { return embed_texts(one.run(), texts, sentences, one.counts); });
  return {std::move(made.values), made.trips};
}

// Whether texts with these moves are the cloud's.
std::optional<bool> SplitWork::rescued_exactly(const SplitCounts& counts) const {
  Receipt receipt;
  receipt.counts.moves = counts.moves;
  receipt.exact = exact();
  if (shared_.rescuer != nullptr) shared_.rescuer->describe(receipt);
  return receipt.exact;
}

std::optional<bool> SplitWork::exact() const {
  if (split_->exact || shared_.answers == nullptr) return split_->exact;
  return shared_.answers->exact();
}

void SplitWork::cancel() noexcept { interrupt_.raise(SIGTERM); }

Receipt SplitWork::counted() const {
  Receipt receipt;
  describe(receipt, *split_, shared_.model.config(), shared_.pool.origin());
  const std::lock_guard lock(mutex_);
  receipt.counts = ended_;
  for (const Running* one : running_) receipt.counts += one->told();
  // Wall-clock time, while concurrent texts each count their own.
  receipt.counts.ms = ms_ + (running_.empty() ? 0 : ms_between(since_, Clock::now()));
  receipt.prompt_tokens = prompt_tokens_;
  receipt.tokens = tokens_;
  receipt.first_token_ms = first_token_ms_.value_or(0);
  receipt.exact = exact();
  receipt.end_at_last_move();
  if (shared_.answers != nullptr) describe_place(receipt, *shared_.answers, shared_.model.config());
  if (shared_.rescuer != nullptr) shared_.rescuer->describe(receipt);
  if (foreseen()) shared_.forecasts->describe(receipt, watch_, drafts_);
  return receipt;
}

std::string SplitWork::receipt() const { return cost_json(counted()); }

std::string SplitWork::server_timing() const {
  const Receipt now = counted();
  std::string header;
  serve::add_timing(header, "cut", now.cut);
  serve::add_timing(header, "device", now.device);
  if (now.counts.steps == 0) return header;  // of a stream
  const Traffic& traffic = now.counts.traffic;
  if (traffic.stream_ms > 0) {
    const double both = traffic.stream_ms + traffic.cloud_ms + traffic.wire_ms;
    serve::add_timing(header, "cloud_and_line", both);
  } else {
    serve::add_timing(header, "cloud", traffic.cloud_ms);
    serve::add_timing(header, "wire", traffic.wire_ms);
  }
  serve::add_timing(header, "edge", now.counts.edge_ms);
  if (now.tokens > 0) serve::add_timing(header, "first_token", now.first_token_ms);
  serve::add_timing(header, "total", now.counts.ms);
  return header;
}

}  // namespace split::edge
