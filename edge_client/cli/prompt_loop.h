// edge_client at a terminal without a prompt: a line is a prompt, the text goes on behind it, until
// Ctrl-D; a line that begins with a colon is a command. Ctrl-C stops an answer.
#pragma once

#include "edge_client/cli/told_lines.h"
#include "edge_client/engine/engine.h"
#include "edge_client/options/options.h"
#include "edge_client/server/cloud_notice.h"
#include "program/interrupt.h"
#include "program/world.h"

namespace split::edge {

// Returns when the user leaves. What goes wrong with one answer is said, and the next one is asked
// for. `lines` are told above the line that is typed, `notice` hears of text that went to the
// terminal. `generate`: but for the seed, which is drawn for each unless it is given.
void run_prompt_loop(Engine& engine, const Options& options, const World& world,
                     Interrupt& interrupt, ToldLines& lines, CloudNotice& notice,
                     const GenerateOptions& generate);

}  // namespace split::edge
