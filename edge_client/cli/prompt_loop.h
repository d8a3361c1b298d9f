// edge_client at a terminal without a prompt: a line is a prompt, the text goes on behind it, until
// Ctrl-D; a line that begins with a colon is a command. Ctrl-C stops an answer.
#pragma once

#include "edge_client/cli/told_lines.h"
#include "edge_client/server/split_work.h"
#include "program/interrupt.h"
#include "program/world.h"

namespace split::edge {

// The parts that all answers share. All of them outlive the call.
struct PromptLoop {
  const Options& options;
  const World& world;
  Interrupt& interrupt;
  ToldLines& lines;  // are told above the line that is typed
  const SplitWork::Shared& shared;
  std::function<std::shared_ptr<PlacedModel>()> split;  // where the next answer begins
  GenerateOptions generate;  // but for the seed, which is drawn for each unless it is given
  // Loads the weights of another cut, as --cut names it; null for one that moves by itself, as
  // `split` says. Throws as Loader::load() does.
  std::function<std::shared_ptr<PlacedModel>(const std::string& cut)> place = {};
  // Called with each text that has gone to the terminal.
  std::function<void(std::string_view)> wrote = [](std::string_view) {};
};

// Returns when the user leaves. What goes wrong with one answer is said, and the next one is asked
// for.
void run_prompt_loop(const PromptLoop& loop);

}  // namespace split::edge
