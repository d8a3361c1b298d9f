// Makes a PlacedModel of the chosen model: this machine's device, its stages downloaded and loaded,
// and how their texts may move.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "edge_client/weights/placed_model.h"
#include "edge_client/weights/weight_store.h"

namespace split::edge {

// The steps in which weights come beside texts.
struct Growth {
  FetchPlan chosen;
  std::vector<GrowthStep> steps;
  std::vector<wire::BlobInfo> blobs() const;
};

// One thread at a time, where no other rule stands.
class TailBuilder {
 public:
  // Returns the ms that a device takes for a token of the chosen model, all here.
  using TokenTime = std::function<double(Device& device)>;

  // The choice outlives it. Downloads draw their progress on `progress`.
  explicit TailBuilder(ModelChoice& choice, ProgressTo progress = {}, TokenTime token_time = {})
      : choice_(choice),
        options_(choice.options()),
        request_(choice.request()),
        progress_(std::move(progress)),
        token_time_(std::move(token_time)) {}

  ModelChoice& choice() const { return choice_; }
  const WeightStore& weights() const { return weights_; }
  // PlacedModel::other_bits of all models that it makes.
  const std::shared_ptr<std::atomic<bool>>& other_bits() const { return other_bits_; }

  // With --cut auto, once, after select_id(): refuses values of --device, --cache and --format that
  // cannot work, as load() would, before a text begins without them.
  void expect_flags();
  // Returns the device, tested and fit for the profile, that the next load takes.
  Device& device();
  // Returns the format of rows on the wire: the requested one if the server supports it, else f32,
  // with a line.
  DType wire_of(const wire::ModelInfo& info);
  // Downloads what is missing and loads it. Throws Error(kIo, kIntegrity, kDevice) too.
  std::unique_ptr<PlacedModel> load(const Placement& place, const wire::ModelInfo& info,
                                    const OnBytes& on_bytes = {});
  // Loads the whole model from the cache, for texts that begin on `split`; null if the cache lacks
  // a part. Throws as load(). Any thread.
  std::shared_ptr<PlacedModel> load_from_cache(const PlacedModel& split) const;
  // Chooses as much of the model as fits into `max_weights` and the memory (place/begin.h).
  Growth coming(const wire::ModelInfo& info, uint64_t max_weights);
  // Begins to download these steps, of which there are some, beside texts, for a tail that is empty
  // until grow() takes them (weights/growth.h). Throws Error(kIo, kDevice).
  std::unique_ptr<PlacedModel> begin_growth(const wire::ModelInfo& info, const Growth& growth,
                                            const OnBytes& on_bytes);
  // Whether a text has the same bits here and there, by what the bits depend on (own_bits()), by
  // the format of rows on the wire, and by comparing the last block, if that is in the cache;
  // nullopt if it is not. Throws RemoteError.
  std::optional<bool> is_exact_here(const wire::ModelInfo& info, const std::string& bits);

 private:
  std::unique_ptr<Device> new_device() const;
  Profile profile() const;
  std::unique_ptr<PlacedModel> placed(const wire::ModelInfo& info);
  void load_tail(PlacedModel& split, std::unique_ptr<Device> device, const LoadOptions& load,
                 uint64_t kv) const;
  void begin_tail(PlacedModel& split, std::unique_ptr<Device> device,
                  const std::vector<wire::BlobInfo>& blobs, LoadOptions load, uint64_t kv,
                  LocalTail::Begins begins) const;
  void allow_moves(PlacedModel& split);
  void expect_base(const wire::ModelInfo& info) const;
  uint64_t kv_budget(const Placement& place) const;
  uint64_t granted_to_weights();

  ModelChoice& choice_;
  const EngineOptions& options_;
  const PlacementRequest& request_;
  const WeightStore weights_{choice_};
  const ProgressTo progress_;
  const TokenTime token_time_;
  const std::shared_ptr<std::atomic<bool>> other_bits_ = std::make_shared<std::atomic<bool>>(false);
  bool told_wire_ = false, expected_flags_ = false;
  std::unique_ptr<Device> device_;  // for the next load
  enum class Faster : uint8_t { kUnknown, kGpu, kCpu };
  mutable std::atomic<bool> joins_ = true;  // the last device takes the server's profile
  mutable std::atomic<Faster> faster_ = Faster::kUnknown;  // where that was measured
};

}  // namespace split::edge
