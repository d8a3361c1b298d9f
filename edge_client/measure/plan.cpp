#include "edge_client/measure/plan.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/figures.h"
#include "edge_client/weights/local_tail.h"

namespace split::edge {

namespace {

// Bytes of a text's states in the blocks from a cut on.
uint64_t state_bytes(const Model& model, int cut) {
  uint64_t bytes = 0;
  for (int layer = cut; layer < model.config().layers; ++layer) {
    if (model.state(layer).keeps()) bytes += model.state(layer).floats() * sizeof(float);
  }
  return bytes;
}

}  // namespace

std::string download_table(const Model& model, const wire::ModelInfo& info) {
  std::vector<std::string> formats;
  for (const wire::StageInfo& stage : info.stages) {
    for (const wire::BlobInfo& blob : stage.blobs) {
      if (std::ranges::find(formats, blob.format) == formats.end()) formats.push_back(blob.format);
    }
  }
  std::string table = "| | on this machine |", rule = "|---|---|";
  for (const std::string& format : formats) {
    table += cat(" ", format, " |");
    rule += "--:|";
  }
  table += "\n" + rule + "\n";
  const auto line = [&](const std::string& flags, const StageRange& range) {
    table += cat("| `", flags, "` | ", range.describe(model.config().layers), " |");
    for (const std::string& format : formats) {
      try {
        const bool own = std::ranges::all_of(
            info.stages, [&](const wire::StageInfo& stage) { return stage.format == format; });
        const StageFormats stages = own ? StageFormats{} : StageFormats::parse(format);
        table += cat(" ", human_bytes(bytes_of(blobs_of(model, info, range, stages))), " |");
      } catch (const Error&) {  // q4_0 without a q8_0 for the head, or a later format of ours
        table += " - |";
      }
    }
    table += "\n";
  };
  const int layers = model.config().layers, usual = default_cut(layers);
  const Point last = Point::last(layers, model.config().has_norm(), !model.config().encodes());
  for (const int cut : std::set<int>{0, layers / 2, usual, layers}) {
    line(cat("--cut ", cut), StageRange::from_block(cut, last));
  }
  if (!model.config().encodes()) {
    line(cat("--cut ", usual, " --head cloud"), StageRange::from_block(usual, layers));
  }
  line("--cut cloud", {layers, layers});
  const uint64_t states = state_bytes(model, 0);
  if (states > 0) {
    table += cat("\nEach text keeps ", human_bytes(states), " of states in all blocks of linear ",
                 "attention, on the machine that runs the block.\n");
  }
  for (const Blob& blob : model.blobs()) {
    if (!model.stays_on_disk(blob.name)) continue;
    table += cat("\n`", blob.name, "` is fetched at cut 0 alone, and stays on the disk.\n");
  }
  return table;
}

namespace {

double bytes_a_value(DType dtype) {
  return is_quantised(dtype)
             ? static_cast<double>(block_bytes(dtype)) / static_cast<double>(block_elements(dtype))
             : static_cast<double>(dtype_size(dtype));
}

}  // namespace

wire::ModelInfo with_blobs_to_come(const Model& model, wire::ModelInfo info,
                                   const StageFormats& formats) {
  for (wire::StageInfo& stage : info.stages) {
    const std::optional<DType> wanted = formats.of(stage.name);
    const std::optional<DType> own = dtype_from_format(stage.format);
    if (!wanted || !own) continue;
    const double ratio = bytes_a_value(*wanted) / bytes_a_value(*own);
    for (const std::string& name : model.stage(stage.name).blobs_as(*wanted)) {
      uint64_t of_name = 0, of_stage = 0;  // bytes in the checkpoint's own format
      bool made = false;
      for (const wire::BlobInfo& blob : stage.blobs) {
        made |= blob.name == name && blob.format == format_name(*wanted);
        if (blob.format != stage.format) continue;
        of_stage += blob.bytes;
        if (blob.name == name) of_name += blob.bytes;
      }
      if (made) continue;
      wire::BlobInfo blob;
      blob.name = name;
      blob.format = format_name(*wanted);
      blob.sha256 = cat("to come: ", name);
      blob.bytes =
          static_cast<uint64_t>(ratio * static_cast<double>(of_name > 0 ? of_name : of_stage));
      stage.blobs.push_back(blob);
    }
  }
  return info;
}

PlanInput plan_input(const Model& model, const wire::ModelInfo& info, const StageFormats& formats,
                     const ShardCache& cache) {
  PlanInput input = plan_shape(model);
  const CutBlobs blobs = blobs_by_cut(model, info, formats);
  std::ranges::transform(blobs, input.download_bytes.begin(), bytes_of);
  input.missing_bytes = missing_of(blobs, cache);
  return input;
}

PlanInput plan_shape(const Model& model) {
  PlanInput input;
  input.layers = model.config().layers;
  input.channels = model.config().channels;
  for (int cut = 0; cut <= input.layers; ++cut) {
    input.row_widths.push_back(model.config().row_width(cut));
    input.state_bytes.push_back(state_bytes(model, cut));
  }
  input.head_blocks = head_in_blocks(model);
  input.download_bytes.assign(static_cast<size_t>(input.layers) + 1, 0);
  input.missing_bytes = input.download_bytes;
  return input;
}

CutBlobs blobs_by_cut(const Model& model, const wire::ModelInfo& info,
                      const StageFormats& formats) {
  const int layers = model.config().layers;
  const Point last = Point::last(layers, model.config().has_norm(), !model.config().encodes());
  CutBlobs blobs;
  for (int cut = 0; cut <= layers; ++cut) {
    blobs.push_back(blobs_of(model, info, StageRange::from_block(cut, last), formats));
  }
  return blobs;
}

std::vector<uint64_t> missing_of(const CutBlobs& blobs, const ShardCache& cache) {
  std::map<std::string, bool> here;  // keyed by hash
  std::vector<uint64_t> missing;
  for (const std::vector<wire::BlobInfo>& of_cut : blobs) {
    uint64_t bytes = 0;
    for (const wire::BlobInfo& blob : of_cut) {
      const auto [at, is_new] = here.emplace(blob.sha256, false);
      if (is_new) at->second = file_status(cache.path_of(blob.sha256)).has_value();
      if (!at->second) bytes += blob.bytes;
    }
    missing.push_back(bytes);
  }
  return missing;
}

}  // namespace split::edge
