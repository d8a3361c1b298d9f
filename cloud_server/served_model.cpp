#include "cloud_server/served_model.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/json.h"
#include "run/forward.h"

namespace split::cloud {
namespace {

// A tensor inside the model that GPT-2 does not have (an adapter, cross attention, a block too
// many) would be left out in silence; one beside it (a classifier's head) is nobody's loss.
void refuse_unknown_tensors(const Checkpoint& checkpoint, const Model& model) {
  std::set<std::string_view> known;
  for (const Blob& blob : model.blobs()) {
    for (const WeightDecl& decl : blob.weights) known.insert(decl.name);
  }
  for (const std::string& name : checkpoint.names()) {
    const bool inside =
        std::ranges::any_of(std::array{"h.", "wte.", "wpe.", "ln_f."},
                            [&](const char* prefix) { return name.starts_with(prefix); });
    if (inside && !known.contains(name)) {
      throw Error(ErrorKind::kInput,
                  cat("[model] ", checkpoint.path().string(), ": tensor ", shown(name),
                      " is no part of a GPT-2 of ", model.config().layers,
                      " blocks; adapters and changed architectures are not supported"));
    }
  }
}

}  // namespace

ServedModel::ServedModel(const ModelOptions& options)
    : options_(options),
      checkpoint_(options.path),
      model_(make_model(checkpoint_.config_json())),
      tokenizer_(load_tokenizer(
          checkpoint_.files(), [this](const char* name) { return checkpoint_.file(name); },
          options.path.string())),
      device_(make_device({options.device, options.threads})) {
  refuse_unknown_tensors(checkpoint_, *model_);
  if (tokenizer_ && tokenizer_->size() > config().vocab) {
    throw Error(ErrorKind::kInput, cat("[model] ", options.path.string(), ": the tokenizer has ",
                                       tokenizer_->size(), " tokens, the model ", config().vocab));
  }
  ShardOptions shard;
  shard.last = config().layers + 2;
  shard.profile = options.profile;
  shard.formats = profile_formats(options.profile);
  shard.kv = options.kv;
  shard.kv_bytes = options.kv_budget;
  shard_ = std::make_unique<Shard>(*device_, *model_, weights_of(checkpoint_, *model_), shard);
  batcher_ = std::make_unique<Batcher>(*shard_);
  weights_ =
      std::make_unique<WeightStore>(checkpoint_, *model_, options.formats, options.blob_cache);
}

void ServedModel::warm_up() {
  LocalForward forward(*batcher_);
  const std::vector<int32_t> tokens(static_cast<size_t>(std::min(config().context - 1, 9)), 0);
  if (tokens.empty()) return;
  forward.run(0, tokens, Phase::kPrompt, false);
  forward.run(static_cast<uint32_t>(tokens.size()), std::span(tokens).first(1), Phase::kGenerate,
              false);
}

}  // namespace split::cloud
