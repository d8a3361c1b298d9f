#include "edge_client/run.h"

#include <openssl/rand.h>

#include <algorithm>
#include <chrono>

#include "base/json.h"
#include "edge_client/cache_command.h"
#include "edge_client/cloud_completion.h"
#include "edge_client/local_tail.h"
#include "edge_client/options.h"
#include "edge_client/plan.h"
#include "edge_client/prompt.h"
#include "edge_client/receipt.h"
#include "edge_client/shard_cache.h"
#include "edge_client/split_forward.h"
#include "run/self_test.h"

namespace split::edge {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// Short enough to be typed again.
uint64_t drawn_seed() {
  uint32_t seed = 0;
  CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(&seed), sizeof seed) == 1);
  return seed;
}

int exit_code_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInput:
    case ErrorKind::kNotFound:
      return 2;
    case ErrorKind::kRemote:
    case ErrorKind::kBusy:
      return 3;
    case ErrorKind::kIo:
      return 4;
    case ErrorKind::kShape:
    case ErrorKind::kIntegrity:
      return 5;
    case ErrorKind::kDevice:
      return 6;
  }
  return 1;
}

// The steps of one run, in their order.
class Run {
 public:
  Run(const Options& options, const World& world, Interrupt& interrupt)
      : options_(options),
        world_(world),
        interrupt_(interrupt),
        remote_(options.server, std::chrono::seconds(options.timeout),
                {options.api_key, options.ca_cert}),
        hook_(interrupt, [this] { remote_.cancel(); }) {
    retry_.budget = std::chrono::seconds(options.retry_for);
  }

  void go(const std::string& prompt);
  void plan();

 private:
  template <typename Call>
  auto retried(const Call& call);
  std::string model_id();
  void meet_server();
  void read_manifest();
  std::string manifest_query() const;
  void read_tokenizer();
  void load_tail();
  void say_plan();
  void generate_text();
  void embed_text();
  bool put_text(std::string_view text, const ScoredToken* token);

  const Options& options_;
  const World& world_;
  Interrupt& interrupt_;
  Remote remote_;
  Interrupt::Hook hook_;
  RetryOptions retry_;

  wire::ModelInfo info_;
  std::unique_ptr<Model> model_;
  std::optional<Tokenizer> tokenizer_;
  std::vector<int32_t> prompt_;
  int cut_ = 0;
  TailRange range_;
  std::optional<LocalTail> tail_;
  Receipt receipt_;
  Clock::time_point start_ = Clock::now();
};

template <typename Call>
auto Run::retried(const Call& call) {
  Retry retry(retry_, interrupt_);
  for (;;) {
    try {
      return call();
    } catch (const RemoteError& error) {
      retry.failed(error);
    }
  }
}

std::string Run::model_id() {
  // Nothing was ever heard of this server: most likely it is not there, so nobody is kept waiting.
  const std::vector<std::string> ids = retried([&] {
    try {
      return remote_.models();
    } catch (const RemoteError& error) {
      if (error.status != 0 || interrupt_.signal() != 0) throw;
      throw Error(ErrorKind::kRemote, cat(error.what(), "; is cloud_server running there?"));
    }
  });
  if (ids.empty()) throw Error(ErrorKind::kRemote, "[server] it has no model");
  if (options_.model.empty()) return ids[0];
  if (std::ranges::find(ids, options_.model) != ids.end()) return options_.model;
  std::string all;
  for (const std::string& id : ids) all += cat(all.empty() ? "" : ", ", shown(id));
  throw Error(ErrorKind::kRemote, cat("[server] ", remote_.origin(), " has no model ",
                                      shown(options_.model), ", it has ", all.substr(0, 400)));
}

void Run::meet_server() {
  info_.id = model_id();
  const std::string config_json = retried([&] { return remote_.file(info_.id, "config.json"); });
  try {
    model_ = make_model(config_json);
  } catch (const Error& error) {
    throw Error(ErrorKind::kRemote,
                cat("[server] the model ", shown(info_.id), ": ", error.what()));
  }
  const ModelConfig& config = model_->config();
  cut_ = options_.cut.value_or(std::max(0, config.layers - 2));
  if (cut_ > config.layers) {
    throw Error(ErrorKind::kInput,
                cat("--cut: the model has ", config.layers, " blocks: expected 0..", config.layers,
                    " or cloud, got ", cut_));
  }
  range_.embed = cut_ == 0;
  range_.first = cut_;
  range_.last = config.layers + (options_.embed ? 1 : options_.head_on_cloud ? 0 : 2);
}

// A server that is still making what is asked for says how far it is, which is no silence.
void Run::read_manifest() {
  Retry retry(retry_, interrupt_);
  std::string said;
  for (std::optional<wire::ModelInfo> info; !info;) {
    try {
      info = remote_.model(info_.id);
      info->id = info_.id;
      info_ = *info;
    } catch (const RemoteError& error) {
      if (error.retry_after && said != error.what()) {
        said = error.what();
        retry.succeeded();
        if (!options_.quiet) world_.console.err(cat(said, "\n"));
      }
      retry.failed(error);
    }
  }
}

// In the formats of the stages that this machine computes.
std::string Run::manifest_query() const {
  const int layers = model_->config().layers;
  const bool none = options_.all_on_cloud;
  const auto point = [&](int at) {
    return at == layers + 2 ? "head" : at == layers + 1 ? "norm" : cat(at);
  };
  return wire::model_query(options_.formats.text(),
                           !none && range_.embed ? std::nullopt : std::optional(cut_),
                           point(none ? cut_ : range_.last));
}

void Run::read_tokenizer() {
  const auto has = [&](std::string_view name) {
    return std::ranges::find(info_.files, name) != info_.files.end();
  };
  const auto read = [&](const char* name) {
    return retried([&] { return remote_.file(info_.id, name); });
  };
  try {
    if (has("vocab.json") && has("merges.txt")) {
      const std::string vocab = read("vocab.json"), merges = read("merges.txt");
      tokenizer_ = Tokenizer::from_vocab_merges(vocab, merges);
    } else if (has("tokenizer.json")) {
      tokenizer_ = Tokenizer::from_tokenizer_json(read("tokenizer.json"));
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInput) throw;
    throw Error(ErrorKind::kRemote, cat("[server] ", error.what()));
  }
}

void Run::load_tail() {
  if (options_.all_on_cloud || range_.empty(model_->config())) return;
  const std::vector<wire::BlobInfo> blobs = blobs_of(*model_, info_, range_, options_.formats);
  // Before the download: a device that is not there should not cost one.
  std::unique_ptr<Device> device = make_tested_device(options_.device);
  LoadOptions load;
  load.retry = retry_;
  load.cache_limit = options_.cache_limit;
  if (!options_.quiet) load.progress = {world_.console.err, world_.console.err_is_terminal};
  tail_.emplace(std::move(device), *model_, range_, options_.formats, blobs,
                std::make_unique<BlobLoad>(
                    ShardCache(cache_root(options_.cache, world_.environment)),
                    blob_origin(info_, remote_.origin(), remote_.timeout(), remote_.credentials()),
                    blobs, load, interrupt_));
  receipt_.fetched = tail_->finish();
  receipt_.device = tail_->device_name();
}

void Run::say_plan() {
  const ModelConfig& config = model_->config();
  Receipt& r = receipt_;
  r.model = info_.id;
  r.server = remote_.origin();
  r.profile = info_.profile;
  const bool all = options_.all_on_cloud;
  r.cut = all ? "cloud" : cat(cut_);
  r.edge_stages = all ? "nothing" : range_.describe(config);
  TailRange cloud{true, 0, all ? config.layers + (options_.embed ? 1 : 2) : cut_};
  r.cloud_stages = !all && cut_ == 0 ? "nothing" : cloud.describe(config);
  if (!all && !options_.embed && options_.head_on_cloud) {
    r.cloud_stages = cut_ == 0 ? "norm, head" : r.cloud_stages + ", norm, head";
  }
  r.load_ms = ms_since(start_);
  r.load_peak_bytes = peak_memory();
  if (options_.quiet || options_.json) return;
  world_.console.err(cat(r.model, ": ", r.cloud_stages, " on ", r.server, "; ", r.edge_stages,
                         r.device == "none" ? " here" : cat(" on ", r.device), "\n"));
}

bool Run::put_text(std::string_view text, const ScoredToken* token) {
  if (interrupt_.signal() != 0) return false;
  if (token != nullptr && receipt_.tokens++ == 0) receipt_.first_token_ms = ms_since(start_);
  return options_.json || text.empty() || world_.console.out(text);
}

void Run::generate_text() {
  GenerateOptions options;
  options.max_tokens = options_.max_tokens;
  options.sampling.temperature = options_.temperature;
  options.sampling.top_k = options_.top_k;
  options.sampling.top_p = options_.top_p;
  options.sampling.repetition_penalty = options_.repetition_penalty;
  options.sampling.seed = receipt_.seed = options_.seed ? *options_.seed : drawn_seed();
  options.stop = options_.stop;
  options.ignore_end = options_.ignore_eos;
  options.logprobs = options_.logprobs.value_or(-1);
  const Tokenizer* const tokenizer = tokenizer_ ? &*tokenizer_ : nullptr;
  const auto on_text = [this](std::string_view text, const ScoredToken* token) {
    return put_text(text, token);
  };

  start_ = Clock::now();
  Generated generated;
  if (options_.all_on_cloud) {
    generated = complete_on_cloud(remote_, info_.id, tokenizer, prompt_, options, on_text, retry_,
                                  interrupt_, receipt_.counts);
    const size_t fed = prompt_.size() + std::max<size_t>(1, generated.tokens.size()) - 1;
    receipt_.counts.cloud_layer_rows = fed * static_cast<size_t>(model_->config().layers);
  } else {
    SplitForward forward(remote_, info_, *model_, cut_, tail_ ? &tail_->batcher() : nullptr, retry_,
                         interrupt_);
    generated = generate(forward, model_->config(), tokenizer, prompt_, options, on_text);
    receipt_.generate_ms = ms_since(start_);
    receipt_.counts = forward.counts();
    forward.close();
  }
  if (options_.all_on_cloud) receipt_.generate_ms = ms_since(start_);
  receipt_.prompt_tokens = prompt_.size();
  receipt_.tokens = generated.tokens.size();
  receipt_.finish_reason = generated.finish_reason;
  if (options_.json) {
    world_.console.out(to_json(receipt_, prompt_, generated, options_.logprobs.has_value()));
    return;
  }
  if (world_.console.out_is_terminal) world_.console.out("\n");
  if (!options_.quiet) world_.console.err(cat("\n", to_text(receipt_)));
}

// The final state of the text: its last row, and the mean over all.
void Run::embed_text() {
  const auto channels = static_cast<size_t>(model_->config().channels);
  std::vector<float> rows;
  if (options_.all_on_cloud) {
    rows = retried([&] {
             return remote_.norm(info_.id, prompt_, static_cast<uint32_t>(channels),
                                 receipt_.counts.traffic);
           }).values;
  } else {
    SplitForward forward(remote_, info_, *model_, cut_, &tail_->batcher(), retry_, interrupt_);
    rows = forward.norms(prompt_);
    forward.close();
  }
  const std::span last = std::span(rows).last(channels);
  std::string out;
  if (options_.json) {
    std::vector<float> mean(channels);
    for (size_t c = 0; c < channels; ++c) {
      double sum = 0;
      for (size_t at = c; at < rows.size(); at += channels) sum += rows[at];
      mean[c] = static_cast<float>(sum / static_cast<double>(prompt_.size()));
    }
    out = "{\"mean\":";
    wire::append_floats(out, mean);
    out += ",\"last\":";
    wire::append_floats(out, last);
    out += "}\n";
  } else {
    wire::append_floats(out, last);
    out = out.substr(1, out.size() - 2) + "\n";
    std::ranges::replace(out, ',', ' ');
  }
  world_.console.out(out);
}

void Run::plan() {
  meet_server();
  read_manifest();
  world_.console.out(download_table(*model_, info_));
}

void Run::go(const std::string& prompt) {
  meet_server();
  remote_.want(manifest_query());
  read_manifest();
  read_tokenizer();
  if (options_.prompt_ids) {
    prompt_ = *options_.prompt_ids;
    check_prompt(model_->config(), prompt_);
  } else {
    prompt_ = prompt_ids(model_->config(), tokenizer_ ? &*tokenizer_ : nullptr, prompt,
                         !options_.no_special);
  }
  load_tail();
  say_plan();
  options_.embed ? embed_text() : generate_text();
}

int run(const CommandLine& line, const World& world, Interrupt& interrupt) {
  if (line.asked == Flags::Asked::kHelp) {
    world.console.out(line.help);
    return 0;
  }
  if (line.asked == Flags::Asked::kVersion) {
    world.console.out("edge_client " SPLIT_VERSION "\n");
    return 0;
  }
  const Options& options = line.options;
  if (options.list_devices) {
    for (const std::string& device : list_devices()) world.console.out(device + "\n");
    return 0;
  }
  if (options.plan) {
    Run(options, world, interrupt).plan();
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
    code = !all.empty() && all[0] == "cache"
               ? cache_command(all.subspan(1), world)
               : run(read_command_line(arguments, world.environment), world, interrupt);
  } catch (const Error& error) {
    if (interrupt.signal() == 0) {
      world.console.err(cat("edge_client: ", error.what(), "\n"));
      return exit_code_of(error.kind());
    }
  }
  const int signal = interrupt.signal();
  if (signal == 0) return code;
  if (world.console.err_is_terminal) world.console.err("\n");
  return exit_code_of_signal(signal);
}

}  // namespace split::edge
