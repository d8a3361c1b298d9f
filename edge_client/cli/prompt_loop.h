// edge_client at a terminal without a prompt: each line is a prompt that the text continues, until
// Ctrl-D; a line that begins with a colon is a command. Ctrl-C stops an answer.
#pragma once

#include "edge_client/cli/told_lines.h"
#include "edge_client/engine/engine.h"
#include "edge_client/options/options.h"
#include "edge_client/server/cloud_notice.h"
#include "program/interrupt.h"
#include "program/world.h"

namespace split::edge {

// Returns when the user leaves. Reports an error of one answer, and goes on. `lines` are printed
// above the line being typed; `notice` learns of text on the terminal. `generate`: options for each
// answer; its seed is drawn unless given.
void run_prompt_loop(Engine& engine, const Options& options, const World& world,
                     Interrupt& interrupt, ToldLines& lines, CloudNotice& notice,
                     const GenerateOptions& generate);

}  // namespace split::edge
