// edge_client --plan: what each cut would fetch and, with --measure, how fast it would be.
#pragma once

#include "edge_client/options/command_line.h"
#include "edge_client/weights/model_choice.h"
#include "program/world.h"

namespace split::edge {

// Throws as the loader does; Error(kInput) for --measure with an encoder.
void plan_command(const Options& options, const World& world, ModelChoice& choice);

}  // namespace split::edge
