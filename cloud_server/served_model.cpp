#include "cloud_server/served_model.h"

#include "run/forward.h"

namespace split::cloud {

ServedModel::ServedModel(const ModelOptions& options)
    : options_(options),
      checkpoint_(options.path),
      model_(make_model(checkpoint_.config_json())),
      tokenizer_(load_tokenizer(options.path)),
      device_(make_device({options.device, options.threads})) {
  if (tokenizer_ && tokenizer_->size() > config().vocab) {
    throw Error(ErrorKind::kInput, cat("[model] ", options.path.string(), ": the tokenizer has ",
                                       tokenizer_->size(), " tokens, the model ", config().vocab));
  }
  ShardOptions shard;
  shard.last = config().layers + 2;
  shard.profile = options.profile;
  shard.formats = profile_formats(options.profile);
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
