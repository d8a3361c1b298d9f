#include "edge_client/weights/model_choice.h"

#include <algorithm>
#include <utility>

#include "base/cache_dir.h"
#include "base/figures.h"
#include "base/json.h"
#include "edge_client/weights/placed_model.h"
#include "edge_client/weights/weight_store.h"
#include "wire/codes.h"

namespace split::edge {

namespace {

constexpr const char* kConfigFile = "config.json";
constexpr int kFileTries = 2;  // for a file that comes whole and wrong

}  // namespace

std::shared_ptr<Remote> ended_by(Interrupt& interrupt, std::shared_ptr<Remote> remote) {
  struct Hooked {
    std::shared_ptr<Remote> remote;
    Interrupt::Hook hook;
  };
  Remote* const raw = remote.get();
  auto held =
      std::shared_ptr<Hooked>(new Hooked{std::move(remote), {interrupt, [raw] { raw->cancel(); }}});
  return {std::move(held), raw};
}

std::string manifest_query(const Placement& place, const StageFormats& formats) {
  const Point at = place.range.from.is_tokens() ? Point(0) : place.range.from;
  return wire::model_query(formats.text(), place.cut.is_cloud() ? StageRange{at, at} : place.range);
}

CloudSessions sessions_of(const wire::ModelInfo& info) {
  return {.move = info.knows("to") && info.knows("fill"), .stream = info.knows("completions")};
}

ModelChoice::ModelChoice(const EngineOptions& options, const PlacementRequest& request, Note note,
                         const http::Environment& environment, Interrupt& interrupt)
    : request_(request),
      note_(std::move(note)),
      interrupt_(interrupt),
      server_(options, environment),
      remote_(server_.connect(std::chrono::seconds(options.timeout))) {
  hook_.emplace(interrupt, [this] { remote_->cancel(); });
  retry_.budget = std::chrono::seconds(options.retry_for);
}

bool ModelChoice::has_cache() const {
  return !options().cache.empty() || cache_dir(server_.environment());
}

ShardCache ModelChoice::cache() const {
  return ShardCache(cache_root(options().cache, server_.environment()));
}

// The key of a model that was seen to run here alone, if the options allow that.
std::optional<SeenModels::Key> ModelChoice::key_alone() const {
  const bool chosen = request_.auto_cut || tail_chooses_cut();
  if (options().needs_cloud ||
      !may_begin_alone(request_.cut, chosen, request_.head == Head::kCloud)) {
    return std::nullopt;
  }
  ModelConfig any;
  any.layers = 1;
  return SeenModels::Key{remote_->origin(), request_.model,
                         manifest_query(edge::place(request_.at(0), any), request_.formats)};
}

void ModelChoice::ask_begun(const std::function<void()>& ask) {
  if (!is_seen_alone()) return ask();
  const auto budget = retry_.budget;
  const std::shared_ptr<void> again(nullptr, [&](void*) {
    retry_.budget = budget;
    remote_->on_silence({});
  });
  retry_.budget = {};
  remote_->on_silence([this] { return !server_.responds(); });
  try {
    return ask();
  } catch (const RemoteError& error) {
    if (interrupt_.signal() != 0) throw;
    retry_.budget = budget;
    try {
      if (error.status == 0) recall(error, false);
    } catch (const Error&) {  // damaged: wait for the server
    }
  }
  ask();
}

bool ModelChoice::is_seen_alone() const {
  const std::optional<SeenModels::Key> key = key_alone();
  return key && seen_models().has(*key);
}

// Takes the model from the cache in place of a server that did not answer; false if that is
// impossible.
bool ModelChoice::recall(const RemoteError& error, bool aloud) {
  const std::optional<SeenModels::Key> key = key_alone();
  if (!key) return false;
  try {
    seen_ = seen_models().recall(*key);
  } catch (const Error& damage) {
    if (damage.kind() != ErrorKind::kIntegrity) throw;
    throw Error(ErrorKind::kRemote, cat(error.what(), "; ", damage.what()));
  }
  if (seen_ && aloud) {
    note(cat(remote_->origin(), " does not answer: ", shown(seen_->info.id),
             " is as last seen there, on ", utc_text(seen_->seconds)));
  }
  return seen_.has_value();
}

void ModelChoice::remember(const PlacedModel& split) const {
  if (!seen_ && split.place.alone()) remember(split.info, split.query);
}

void ModelChoice::remember(const wire::ModelInfo& info, const std::string& query) const {
  const int64_t now = std::chrono::duration_cast<std::chrono::seconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count();
  const SeenModel model{info, files_, now};
  try {
    seen_models().remember({remote_->origin(), info.id, query}, model);
    if (request_.model.empty()) seen_models().remember({remote_->origin(), "", query}, model);
  } catch (const Error& error) {  // full, or read-only
    if (error.kind() != ErrorKind::kIo) throw;
  }
}

std::string ModelChoice::wanted_id() {
  // Without any earlier contact: a server that was just started takes a moment, else there is most
  // likely none, so only a serving edge waits longer.
  constexpr std::chrono::milliseconds kStarting{2000};
  const auto began = std::chrono::steady_clock::now();
  const auto patience =
      options().waits_for_cloud ? retry_.budget : std::min(kStarting, retry_.budget);
  // A server that accepts the request and stays silent counts as waiting. Failures to connect are
  // left to the final error, unless the engine waits for its cloud.
  if (retry_.on_lost) retry_.on_lost(RemoteError("", 0, kFirstAsk));
  const int errors = std::uncaught_exceptions();
  const std::shared_ptr<void> answered(nullptr, [&](void*) {
    if (retry_.on_found) retry_.on_found(std::uncaught_exceptions() == errors);
  });
  constexpr int kDamagedAlways = 3;  // consecutive damaged requests
  int damaged = 0;
  RetryOptions start = retry_;
  bool told = false;
  start.on_lost = [&](const RemoteError& error) {
    told = (error.status != 0 || options().waits_for_cloud) && retry_.on_lost;
    if (told) retry_.on_lost(error);
  };
  start.on_found = [&](bool again) {
    if (std::exchange(told, false)) retry_.on_found(again);
  };
  const auto listed = edge::retried(start, interrupt_, [&] {
    try {
      return remote_->models();
    } catch (const RemoteError& error) {
      // Unless a proxy strips the path, the request means another resource.
      const bool below =
          remote_->origin().find('/', remote_->origin().find("//") + 2) != std::string::npos;
      if (error.code == wire::codes::kDamaged && below && ++damaged == kDamagedAlways) {
        throw Error(ErrorKind::kRemote, cat("[server] ", remote_->origin(),
                                            ": no server below this path; is the path right?"));
      }
      if (error.status == 404) {
        throw Error(ErrorKind::kRemote, cat(error.what(), "; is that a cloud_server?"));
      }
      if (error.status != 0 || interrupt_.signal() != 0) throw;
      // A peer without TLS, or without a good certificate: waiting does not help.
      if (error.code == kTlsCode) throw Error(ErrorKind::kRemote, error.what());
      if (recall(error, true)) {
        return std::vector<wire::ListedModel>{{seen_->info.id, seen_->info.profile}};
      }
      if (error.transient() && std::chrono::steady_clock::now() - began < patience) throw;
      throw Error(ErrorKind::kRemote, cat(error.what(), "; is cloud_server running there?"));
    }
  });
  if (listed.empty()) throw Error(ErrorKind::kRemote, "[server] the server serves no models");
  std::string all;
  for (const auto& model : listed) all += cat(all.empty() ? "" : ", ", shown(model.id));
  if (request_.model.empty() && options().any_model && listed.size() > 1) {
    throw Error(ErrorKind::kInput, cat("--any-model: expected --model beside it: the server has ",
                                       all.substr(0, 400)));
  }
  const auto wanted = request_.model.empty()
                          ? listed.begin()
                          : std::ranges::find(listed, request_.model, &wire::ListedModel::id);
  if (wanted != listed.end()) {
    request_.join(wanted->profile);
    return wanted->id;
  }
  throw Error(ErrorKind::kRemote,
              cat("[server] ", remote_->origin(), " has no model ", shown(request_.model),
                  ", it has ", all.substr(0, 400)),
              "model");
}

void ModelChoice::select_id() {
  if (id_.empty()) id_ = wanted_id();
}

std::unique_ptr<Remote> ModelChoice::hand_over() {
  std::unique_ptr<Remote> next = connect();
  hook_.reset();
  std::swap(next, remote_);
  hook_.emplace(interrupt_, [this] { remote_->cancel(); });
  return next;
}

void ModelChoice::select_model() {
  select_id();
  config_json_ =
      seen_ ? seen_->info.config_json : retried([&] { return remote_->file(id_, kConfigFile); });
  try {
    model_ = make_model(config_json_, options().context);
  } catch (const Error& error) {
    expect_own_config();
    throw Error(ErrorKind::kRemote, cat("[server] the model ", shown(id_), ": ", error.what()));
  }
  if (options().tail.empty()) return;
  if (config().encodes()) {
    throw Error(ErrorKind::kInput, "--tail: expected a model that writes text, got an encoder");
  }
  tail_ = std::make_shared<TailWeights>(options().tail, *model_, tensor_names(config_json_));
}

Placement ModelChoice::place(const PlacementRequest& request, const CloudSessions& sessions,
                             bool cloud_lost) {
  try {
    return edge::place(request, *model_, bounds(), sessions, cloud_lost);
  } catch (const Error&) {  // perhaps the model has other layers than its config said
    expect_own_config();
    throw;
  }
}

CutBounds ModelChoice::bounds() const {
  return bounds_of({.tail = tail_ ? std::optional(tail_->first()) : std::nullopt});
}

// Fetches config.json before the description with its hash, which saves waiting for one request.
void ModelChoice::expect_own_config() {
  if (seen_) return;
  remote_->set_manifest_query(wire::model_query(request_.formats.text(), {0, 0}));
  retried([&] { return described(*remote_); });
}

// Throws Error(kIntegrity) if the description is not of the config of model_.
void ModelChoice::expect_config(const wire::ModelInfo& info) const {
  if (seen_) return;
  std::string why = difference(info, kConfigFile, config_json_);
  if (why.empty() && parse_json(config_json_, 16, "[config.json]").dump() != info.config_json) {
    why = "another \"config\" in the model's description";
  }
  if (why.empty()) return;
  if (described_) throw model_changed(remote_->origin(), id_);
  refuse_file(kConfigFile, why);
}

// Says how a received file differs from its description; empty if it does not.
std::string ModelChoice::difference(const wire::ModelInfo& info, std::string_view name,
                                    std::string_view text) {
  const auto file = std::ranges::find(info.files, name, &wire::FileInfo::name);
  if (file == info.files.end()) return "the model's description does not name it";
  if (text.size() != file->bytes) {
    return cat("expected ", file->bytes, " bytes, got ", text.size());
  }
  const std::string sha256 = Sha256::hex_of(as_bytes_of(text));
  return sha256 == file->sha256 ? "" : cat("expected sha256 ", file->sha256, ", got ", sha256);
}

void ModelChoice::refuse_file(std::string_view name, std::string_view why) const {
  throw Error(ErrorKind::kIntegrity, cat("[server] ", remote_->origin(), ": file ", shown(name),
                                         " of the model ", shown(id_), ": ", why));
}

// Limits the context to the server's, and by default to what this machine has room for.
void ModelChoice::take_context(const wire::ModelInfo& info) const {
  if (info.row_parts != config().row_parts) {
    throw Error(ErrorKind::kRemote,
                cat("[server] the model ", shown(info.id), ": its rows have ",
                    info.row_parts.size(), " parts that this program takes for ",
                    config().row_parts.size(), " others; is it of another version?"));
  }
  const int most = info.context;
  if (most > 0 && most < config().context) {
    if (options().context) {
      throw Error(ErrorKind::kInput, cat("--context: the server has ", most,
                                         " positions of a text at most, got ", *options().context));
    }
    model_->lower_context(most);
  }
  if (options().context || config().encodes()) return;
  std::call_once(fitted_, [&] {
    TextRoom room = text_room(options(), request_, info);
    if (room.budget == 0) room.budget = default_kv_budget(*model_, request_.profile, {}, room);
    const std::string line = fit_context(*model_, request_.profile, {}, room);
    if (!line.empty()) note(line);
  });
}

// Waits for a server that is still making what is requested: it reports its progress.
wire::ModelInfo ModelChoice::manifest(const Placement* place) {
  if (seen_ && place != nullptr && place->alone()) {
    take_context(seen_->info);
    return seen_->info;
  }
  remote_->set_manifest_query(place == nullptr ? "?ready=true"
                                               : manifest_query(*place, request_.formats));
  wire::ModelInfo info = manifest(*remote_, interrupt_, retry_, true);
  described_ = true;
  return info;
}

std::string ModelChoice::whole_query() const {
  return wire::model_query(request_.formats.text(), StageRange());
}

wire::ModelInfo ModelChoice::whole_manifest(Remote& remote, Waiter& waiter, bool patient) const {
  remote.set_manifest_query(whole_query());
  RetryOptions retry = retry_;
  if (!patient) retry.budget = {};
  return manifest(remote, waiter, retry, false);
}

wire::ModelInfo ModelChoice::whole_manifest_now() {
  if (!model_) select_model();
  remote_->set_manifest_query(whole_query());
  return described(*remote_);
}

wire::ModelInfo ModelChoice::described(Remote& remote) const {
  wire::ModelInfo info = remote.model(id_);
  info.id = id_;
  expect_config(info);
  return info;
}

wire::ModelInfo ModelChoice::manifest(Remote& remote, Waiter& waiter, const RetryOptions& options,
                                      bool aloud) const {
  Retry retry(options, waiter);
  RetryOptions told = options;  // reported below
  told.on_lost = {};
  told.on_found = {};
  Retry preparing(told, waiter);
  std::string said;
  for (;;) {
    try {
      wire::ModelInfo info = described(remote);
      take_context(info);
      model_->add_stops(info.stops);
      return info;
    } catch (const RemoteError& error) {
      const bool prepares = error.retry_after && !error.said.empty();
      if (prepares && said != error.said) {
        said = error.said;
        preparing.succeeded();
        if (aloud) note(said);
      }
      (prepares ? preparing : retry).failed(error);
    }
  }
}

ModelChoice::Begin ModelChoice::begin() {
  Begin begin;
  begin.place = place(request_, {}, seen_.has_value());
  begin.info = manifest(&begin.place);
  if (tail_chooses_cut() && begin.place.cut > 0 && WeightStore(*this).whole_in_cache(begin.info)) {
    begin.place = place(request_, {}, true);
    begin.info = manifest(&begin.place);
  }
  if (!request_.auto_cut || !begin.place.cut.is_cloud()) return begin;
  const CloudSessions sessions = sessions_of(begin.info);
  begin.place = place(request_, sessions);
  if (begin.place.cut.is_cloud()) return begin;
  note(cat("--cut auto: ", words_of(bound_of(sessions, true)), ": texts stay at cut ",
           begin.place.cut.name()));
  begin.info = manifest(&begin.place);
  return begin;
}

// Names of the files that can be read: a record has what its run needed.
std::vector<std::string> ModelChoice::names_of(const wire::ModelInfo& info) const {
  std::vector<std::string> names;
  for (const wire::FileInfo& file : info.files) {
    if (!seen_ || seen_->files.contains(file.name)) names.push_back(file.name);
  }
  return names;
}

std::string ModelChoice::file(const wire::ModelInfo& info, const std::string& name) {
  for (int tries = kFileTries;; --tries) {
    std::string text =
        seen_ ? seen_->files[name] : retried([&] { return remote_->file(info.id, name); });
    const std::string why = difference(info, name, text);
    if (why.empty()) return files_[name] = std::move(text);
    if (tries == 1 || seen_) refuse_file(name, why);
  }
}

// Reads something from the server's files; a failure is their fault.
template <typename Read>
auto ModelChoice::read_files(const wire::ModelInfo& info, const Read& read) {
  try {
    return read(names_of(info), [&](const std::string& name) { return file(info, name); });
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInput) throw;
    throw Error(ErrorKind::kRemote, cat("[server] ", error.what()));
  }
}

std::optional<Tokenizer> ModelChoice::tokenizer(const wire::ModelInfo& info) {
  return read_files(info, [&](const auto& names, const auto& read) {
    return load_tokenizer(names, read, info.id);
  });
}

std::optional<ChatTemplate> ModelChoice::chat(const wire::ModelInfo& info) {
  return read_files(info, [&](const auto& names, const auto& read) {
    return ChatTemplate::of_files(names, read, options().chat_template);
  });
}

Sentences ModelChoice::sentences(const wire::ModelInfo& info) {
  return read_files(info, [&](const auto& names, const auto& read) {
    return Sentences::read(names, read, config());
  });
}

}  // namespace split::edge
