#include "edge_client/cli/audit/audit_command.h"

#include <algorithm>
#include <cmath>

#include "base/figures.h"
#include "base/resources/clock.h"
#include "edge_client/options/command_line.h"
#include "edge_client/options/values.h"
#include "edge_client/server/loader_output.h"
#include "edge_client/weights/exactness.h"
#include "edge_client/weights/local_tail.h"
#include "edge_client/weights/weight_store.h"
#include "http/client.h"
#include "run/self_test.h"
#include "serve/audit/audits.h"
#include "step/names.h"
#include "wire/audit.h"

namespace split::edge {
namespace {

constexpr uint64_t kMostAnswer = 64 << 20;  // bytes of the file with a receipt
constexpr uint64_t kMostAsked = 16 << 20;   // bytes of rows in one request

constexpr const char* kAuditSummary =
    "edge_client audit: was an answer computed by the model, and by all of it?\n"
    "  edge_client audit RECEIPT --rounds 4   compute four blocks of it again\n"
    "\n"
    "RECEIPT is a file: the answer to a request with \"receipt\": true, or the\n"
    "receipt in it. The exit code is 5 if the answer is not the model's.\n";

struct AuditOptions : Options {
  std::string receipt, weights;
  int rounds = 1;
};

// The receipt itself, or that of the first of an answer's texts that has one.
const Json& receipt_in(const Json& json) {
  if (const Json* const choices = json.find("choices"); choices != nullptr && choices->is_array()) {
    for (const Json& choice : *choices) {
      if (const Json* const receipt = choice.find("receipt")) return *receipt;
    }
  }
  const Json* const receipt = json.find("receipt");
  return receipt != nullptr ? *receipt : json;
}

serve::AuditReceipt read_receipt(const std::string& path) {
  const std::string text = read_file(path, kMostAnswer);
  try {
    const Json json = parse_json(text, 16, "it");
    const Json& receipt = receipt_in(json);
    MemoryShare any;
    return serve::parse_audit_receipt(receipt, any);
  } catch (const Error& error) {
    throw Error(ErrorKind::kInput, cat("[receipt] ", path, ": ", error.what()));
  }
}

uint64_t drawn_below(uint64_t count) {
  uint64_t value = 0;
  random_bytes(std::as_writable_bytes(std::span(&value, 1)));
  return value % count;
}

class Audit {
 public:
  Audit(const AuditOptions& options, const World& world, Interrupt& interrupt)
      : options_(options),
        world_(world),
        receipt_(read_receipt(options.receipt)),
        request_(options.placement),
        rows_from_(ServerAddress(options, world.environment)
                       .connect(std::chrono::seconds(options.timeout))),
        end_(interrupt, [this] { rows_from_->cancel(); }) {
    request_.model = receipt_.model;
    from_ = options;
    from_.server = options.weights;
    choice_.emplace(from_, request_, notes_on(world.console, options.quiet), world.environment,
                    interrupt);
  }

  void run() {
    meet();
    const int layers = choice_->config().layers;
    for (int round = 1; round <= options_.rounds; ++round) {
      const auto layer = static_cast<int>(drawn_below(static_cast<uint64_t>(layers)));
      const auto last = static_cast<uint32_t>(drawn_below(receipt_.tokens.size()));
      draw_ = {cat("draw ", round, ": block ", layer, ", rows 0 to ", last, ": equal"), 0};
      check_block(layer, last);
      check_ends(last);
      world_.console.out(cat(draw_.said, " (", fixed(draw_.ms, 1), " ms)\n"));
    }
    const double missed = std::pow(1 - 1.0 / layers, options_.rounds);
    world_.console.out(
        cat("the answer is the model's where it was looked at; a server that cheats "
            "in one of its ",
            layers, " blocks would have been found with a chance of ", fixed(100 * (1 - missed), 1),
            " %\n"));
  }

 private:
  // Compares what the receipt says of the model and of its bits, before weights are read.
  void meet() {
    choice_->select_model();
    const ModelConfig& config = choice_->config();
    info_ = choice_->manifest(nullptr);
    if (config.encodes()) refuse(cat("[receipt] ", shown(receipt_.model), " writes no text"));
    if (const std::string own = wire::manifest_hash(info_); own != receipt_.manifest) {
      throw Error(ErrorKind::kIntegrity,
                  cat("the receipt is of another model than ", shown(receipt_.model), " at ",
                      choice_->remote().origin(), ": its manifest is ", receipt_.manifest,
                      ", that one's ", own));
    }
    if (receipt_.tokens.size() > static_cast<size_t>(config.context) ||
        std::ranges::any_of(receipt_.tokens, [&](int32_t id) { return id >= config.vocab; })) {
      refuse(cat("[receipt] expected at most ", config.context, " tokens below ", config.vocab));
    }
    if (receipt_.form) {
      tokenizer_ = choice_->tokenizer(info_);
      if (!tokenizer_) refuse("[receipt] it has a response_format, and the model no tokenizer");
      form_ = std::make_shared<const TextForm>(*receipt_.form, *tokenizer_,
                                               receipt_.options.ignore_end);
    }
    weights_.emplace(*choice_);
    profile_ = profile_from_name(info_.profile).value_or(Profile::kF32);
    formats_ = profile_formats(profile_);
    for (const wire::StageInfo& stage : info_.stages) {
      if (!is_quantised(dtype_from_format(stage.format).value_or(DType::kF32))) continue;
      (stage.name == names::kHead ? formats_.head : formats_.block).reset();
    }
    head_ = tail({config.layers, Point::head()}, LocalTail::Begins::kEmpty);
    const Shard& shard = head_->batcher().shard();
    const std::string bits = own_bits(shard, info_, shard.options().formats);
    if (bits == receipt_.bits) return;
    refuse(cat("the receipt's bits are '", receipt_.bits, "' and this machine's '", bits,
               "': expected a device or a profile that has the same"));
  }

  // Blobs are the manifest's own, whatever the cloud computed with: a shard rounds them as it did.
  std::unique_ptr<LocalTail> tail(const StageRange& range,
                                  LocalTail::Begins begins = LocalTail::Begins::kWhole) {
    std::unique_ptr<Device> device = make_tested_device(request_.device);
    expect_profile(*device, profile_);
    const auto blobs = blobs_of(choice_->model(), info_, range, StageFormats());
    LoadOptions load;
    load.retry = choice_->retry();
    load.progress = progress_on(world_.console, options_.quiet);
    return std::make_unique<LocalTail>(
        std::move(device), choice_->model(), range, formats_, profile_, blobs,
        weights_->begin_load(info_, blobs, std::move(load)), 0, request_.device.threads, begins);
  }

  // Rows of the answer, in whose place nobody can put others once there is a receipt.
  std::vector<float> rows(int point, uint32_t first, uint32_t count) {
    const auto width = static_cast<uint32_t>(choice_->config().row_width(point));
    const auto most =
        static_cast<uint32_t>(std::max<uint64_t>(1, kMostAsked / (width * sizeof(float))));
    const Json told = to_json(receipt_);
    std::vector<float> all;
    for (uint32_t at = first; at < first + count; at += most) {
      const uint32_t n = std::min(most, first + count - at);
      const wire::AuditedRows part = rows_from_->audit(
          {{"receipt", told}, {"point", point}, {"first", at}, {"count", n}}, n, width);
      const std::string root = wire::proven_root(
          static_cast<size_t>(choice_->config().layers) + 1, receipt_.tokens.size(),
          static_cast<size_t>(point), at, wire::row_digests(part.rows, width), part.proof);
      if (root != receipt_.root) {
        throw Error(
            ErrorKind::kIntegrity,
            cat("rows ", at, " to ", at + n - 1, " at point ", point, " of ", rows_from_->origin(),
                " do not lead to the receipt's root: they are not those of the answer"));
      }
      all.insert(all.end(), part.rows.begin(), part.rows.end());
    }
    return all;
  }

  std::vector<float> computed(LocalTail& tail, const SequenceRows& rows, bool generated = false) {
    const Timed timed(draw_.ms);
    const auto prompt = generated ? 0 : std::min<size_t>(receipt_.prompt, rows.count());
    return whole_text(tail.batcher(), {}, rows, static_cast<uint32_t>(prompt));
  }

  void expect_equal(std::span<const float> here, std::span<const float> there, size_t width,
                    std::string_view what) const {
    for (size_t at = 0; at < there.size(); at += width) {
      if (std::memcmp(&here[at], &there[at], width * sizeof(float)) == 0) continue;
      throw Error(ErrorKind::kIntegrity, cat(what, ", row ", at / width,
                                             ": the answer's bits are not those that the model's "
                                             "weights give"));
    }
  }

  void check_block(int layer, uint32_t last) {
    const std::vector<float> in = rows(layer, 0, last + 1), out = rows(layer + 1, 0, last + 1);
    const std::unique_ptr<LocalTail> block = tail({layer, layer + 1});
    const SequenceRows step{.range = {layer, layer + 1},
                            .hidden = in,
                            .width = static_cast<uint32_t>(in.size() / (last + 1)),
                            .wanted = Wanted::kAll};
    expect_equal(computed(*block, step), out, out.size() / (last + 1), cat("block ", layer));
  }

  // Checks the embedding at the drawn position, and the token that was drawn there.
  void check_ends(uint32_t position) {
    const int layers = choice_->config().layers;
    const std::span<const int32_t> all(receipt_.tokens);
    const std::span<const int32_t> before = all.first(position + 1);
    if (!embedding_) embedding_ = tail({Point::tokens(), 0});
    const std::vector<float> there = rows(0, position, 1);
    const std::vector<float> here =
        computed(*embedding_, {.range = {.to = 0}, .tokens = before, .wanted = Wanted::kAll});
    expect_equal(std::span(here).last(there.size()), there, there.size(),
                 cat("the embedding of position ", position));
    if (position + 1 < receipt_.prompt || position + 1 == all.size()) return;
    head_->grow(layers);
    const std::vector<float> state = rows(layers, position, 1);
    const std::vector<float> logits = computed(*head_,
                                               {.range = {layers, Point::head()},
                                                .hidden = state,
                                                .width = static_cast<uint32_t>(state.size()),
                                                .wanted = Wanted::kAll},
                                               position >= receipt_.prompt);
    const std::vector<int32_t> drawn = drawn_behind(before, logits);
    if (drawn.empty() || drawn[0] != all[before.size()]) {
      throw Error(ErrorKind::kIntegrity,
                  cat("token ", before.size(), ": the answer has ", all[before.size()],
                      ", the seed draws ", drawn.empty() ? "the end" : cat(drawn[0])));
    }
    draw_.said += cat("; token ", before.size(), " is the seed's");
  }

  // The token that these logits, the seed and the answer's form give; empty for the end.
  std::vector<int32_t> drawn_behind(std::span<const int32_t> before,
                                    std::span<const float> logits) const {
    GenerateOptions options = receipt_.options;
    options.max_tokens = 1;
    options.generated = before.size() - receipt_.prompt;
    options.form = form_;
    try {
      TextLoop loop(choice_->config(), form_ ? &*tokenizer_ : nullptr, before, options);
      if (!loop.ended()) loop.logits(logits, {});
      return loop.take().tokens;
    } catch (const Error& error) {  // the form takes no such token
      if (error.kind() != ErrorKind::kInput) throw;
      throw Error(ErrorKind::kIntegrity, cat("before token ", before.size(), ": ", error.what()));
    }
  }

  // The finding of a draw, and the milliseconds that this machine computed for it.
  struct Draw {
    std::string said;
    double ms = 0;
  };

  const AuditOptions& options_;
  const World& world_;
  const serve::AuditReceipt receipt_;
  PlacementRequest request_;
  EngineOptions from_;  // names the weights' server
  const std::unique_ptr<Remote> rows_from_;
  const Interrupt::Hook end_;
  std::optional<ModelChoice> choice_;
  wire::ModelInfo info_;
  std::optional<Tokenizer> tokenizer_;    // set with form_
  std::shared_ptr<const TextForm> form_;  // the answer's; null: words
  Profile profile_ = Profile::kF32;       // the cloud's
  StageFormats formats_;                  // what that rounds blobs to
  std::optional<WeightStore> weights_;
  std::unique_ptr<LocalTail> head_, embedding_;
  Draw draw_;
};

}  // namespace

int audit_command(std::span<const std::string> arguments, const World& world,
                  Interrupt& interrupt) {
  AuditOptions options;
  std::vector<std::string> files;
  Flags flags(kAuditSummary);
  flags.fit(world.console.columns);
  options.connector = world.connector;
  add_server_flags(flags, options);
  flags.group("The audit");
  flags.text("weights", "URL", "the cloud_server with the model, if --server is an edge (--server)",
             &options.weights);
  flags.number("rounds", "K", "how many blocks to draw, each with a position (1)", &options.rounds,
               1, 100000);
  flags.rest("RECEIPT", &files);
  flags.group("This machine");
  flags.text("device", "NAME", device_names(), &options.placement.device.device, device_words());
  flags.number("threads", "N", "threads of the cpu device (0: one per processor)",
               &options.placement.device.threads, 0u, 1024u);
  flags.text("cache", "DIR", "where weights are kept (default: $XDG_CACHE_HOME/splitcompute)",
             &options.cache);
  flags.toggle("quiet", "print no progress", &options.quiet);
  const Flags::Asked asked = flags.parse({arguments.begin(), arguments.end()}, world.environment);
  if (asked != Flags::Asked::kNothing) {
    world.console.out(flags.help());
    return 0;
  }
  if (files.size() != 1) refuse("audit: expected one file with a receipt");
  options.receipt = files[0];
  check_device_name(options.placement.device.device);
  read_server(options);
  options.weights = options.weights.empty()
                        ? options.server
                        : of_flag("--weights", [&] { return http::server_url(options.weights); });
  Audit(options, world, interrupt).run();
  return 0;
}

}  // namespace split::edge
