// Lists what a machine would download, by cut and format, from the server's own manifest.
#pragma once

#include <string>
#include <vector>

#include "edge_client/place/planner.h"
#include "edge_client/weights/blobs/shard_cache.h"
#include "models/formats.h"
#include "models/model.h"
#include "wire/protocol.h"

namespace split::edge {

// Returns a Markdown table: a row for each of the usual cuts, a column for each format that the
// server has, in decimal bytes. README.md holds the bundled model's.
std::string download_table(const Model& model, const wire::ModelInfo& info);

// The blobs that each cut needs here. Throws Error(kInput) for a format that the server does not
// have.
using CutBlobs = std::vector<std::vector<wire::BlobInfo>>;
CutBlobs blobs_by_cut(const Model& model, const wire::ModelInfo& info, const StageFormats& formats);
// Bytes of each cut that the cache lacks.
std::vector<uint64_t> missing_of(const CutBlobs& blobs, const ShardCache& cache);

// Returns the facts of a model that a plan needs before measurements: its shape, and the bytes that
// each cut needs here and lacks in the cache. Throws Error(kInput) for a format that the server
// does not have.
PlanInput plan_input(const Model& model, const wire::ModelInfo& info, const StageFormats& formats,
                     const ShardCache& cache);

PlanInput plan_shape(const Model& model);  // the model's shape, without bytes
// Adds the blobs that the server has not made in these formats, without hashes and with sizes right
// within a few per cent, so that a plan makes the server build nothing.
wire::ModelInfo with_blobs_to_come(const Model& model, wire::ModelInfo info,
                                   const StageFormats& formats);

}  // namespace split::edge
