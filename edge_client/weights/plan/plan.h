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

// A Markdown table: a line for each of the usual cuts, a column for each format that the server
// has, in decimal bytes. README.md holds the bundled model's.
std::string download_table(const Model& model, const wire::ModelInfo& info);

// By cut, what runs here. Throws Error(kInput) for a format that the server does not have.
using CutBlobs = std::vector<std::vector<wire::BlobInfo>>;
CutBlobs blobs_by_cut(const Model& model, const wire::ModelInfo& info, const StageFormats& formats);
// The bytes of each cut that the cache lacks.
std::vector<uint64_t> missing_of(const CutBlobs& blobs, const ShardCache& cache);

// The facts of a model that a plan needs before anything is measured: its shape, and the bytes that
// each cut needs here and lacks in the cache. Throws Error(kInput) for a format that the server
// does not have.
PlanInput plan_input(const Model& model, const wire::ModelInfo& info, const StageFormats& formats,
                     const ShardCache& cache);

PlanInput plan_shape(const Model& model);  // its shape alone, and no bytes
// The same manifest with blobs that the server has not made in these formats, as large as they will
// be within a few per cent, so that a plan has nothing made. They have no hash.
wire::ModelInfo with_blobs_to_come(const Model& model, wire::ModelInfo info,
                                   const StageFormats& formats);

}  // namespace split::edge
