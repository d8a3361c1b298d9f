#include "edge_client/measure/measure.h"
#include "base/resources/clock.h"
#include "base/sort.h"

#include <algorithm>
#include <array>

namespace split::edge {
namespace {

constexpr int kRoundTrips = 5;
constexpr size_t kSteps = 5;
constexpr uint64_t kTrialBytes = 256'000;

const wire::BlobInfo* largest_blob(const wire::ModelInfo& info) {
  const wire::BlobInfo* largest = nullptr;
  for (const wire::StageInfo& stage : info.stages) {
    for (const wire::BlobInfo& blob : stage.blobs) {
      if (largest == nullptr || blob.bytes > largest->bytes) largest = &blob;
    }
  }
  return largest;
}

}  // namespace

double measure_rtt(Remote& remote) {
  double shortest = 0;
  remote.ping();  // opens the connection
  for (int i = 0; i < kRoundTrips; ++i) {
    const auto start = Clock::now();
    remote.ping();
    const double ms = ms_since(start);
    shortest = i == 0 ? ms : std::min(shortest, ms);
  }
  return shortest;
}

std::optional<CloudLoad> measure_steps(Remote& remote, const wire::ModelInfo& info,
                                       const ModelConfig& config, Network& network) {
  std::optional<CloudLoad> load = remote.load(info.id);
  if (!load || !load->speed) return load;
  const std::array<int32_t, 1> token{};
  const SequenceRows row{.range = {.to = 1}, .tokens = token, .phase = Phase::kGenerate};
  std::array<double, kSteps> on_the_way{}, there{};
  for (size_t i = 0; i < kSteps; ++i) {
    Traffic traffic;
    remote.ask({Send::kForward, {}, row, &traffic},
               {.id = info.id,
                .channels = static_cast<uint32_t>(config.channels),
                .row_parts = config.row_parts});
    on_the_way[i] = traffic.wire_ms;
    there[i] = traffic.cloud_ms;
  }
  const auto median = [](std::array<double, kSteps> all) {
    sort_stably(all);
    return all[kSteps / 2];
  };
  network.step_ms = std::max(0.0, median(on_the_way) - network.rtt_ms);
  load->speed->step_ms = std::max(0.0, median(there) - load->speed->block_ms);
  return load;
}

void measure_cloud(Remote& remote, const wire::ModelInfo& info, const ModelConfig& config,
                   Forecasts& forecasts) {
  Network network{.rtt_ms = measure_rtt(remote)};
  const std::optional<CloudLoad> load = measure_steps(remote, info, config, network);
  forecasts.measured(network, {}, load);
}

Network measure_network(Remote& remote, const wire::ModelInfo& info) {
  Network network{.rtt_ms = measure_rtt(remote)};
  const wire::BlobInfo* const blob = largest_blob(info);
  if (blob == nullptr) return network;
  BlobClient client(blob_origin(info, remote.origin(), remote.patience(), remote.credentials()));
  const uint64_t count = std::min(blob->bytes, kTrialBytes);
  uint64_t got = 0;
  const auto fetch = [&](uint64_t bytes) {
    client.get(blob->sha256, 0, bytes, [&](uint64_t, Bytes part) {
      got += part.size();
      return got < bytes;
    });
  };
  fetch(1);  // opens the blobs' connection
  got = 0;
  const auto start = Clock::now();
  fetch(count);
  // A round trip passes before the first byte.
  const double ms = std::max(ms_since(start) - network.rtt_ms, 0.01);
  network.down_mbit = static_cast<double>(got) * 8e-3 / ms;
  return network;
}

}  // namespace split::edge
