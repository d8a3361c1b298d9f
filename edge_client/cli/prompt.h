// The prompt's bytes from their source.
#pragma once

#include <optional>
#include <string>

#include "base/file.h"
#include "edge_client/options/command_line.h"
#include "program/interrupt.h"

namespace split::edge {

// Reads --prompt, --prompt-file or the descriptor `input`; empty for --prompt-ids. Throws
// Error(kInput) if there is none, it cannot be read, it is absurdly long, or the program is
// interrupted while waiting for it.
std::string read_prompt(const Options& options, int input, Interrupt& interrupt);

// The lines of --prompt-file or of the descriptor, as they come, without a limit.
class PromptLines {
 public:
  // Throws Error(kInput) as read_prompt() does.
  PromptLines(const Options& options, int input, Interrupt& interrupt);
  // Reads the next line, without its end. Returns false at the end.
  bool next(std::string& line);
  // The part of the file read so far; nullopt if its size is unknown.
  std::optional<double> share() const;

 private:
  std::string name_ = "stdin";
  Fd file_, wake_;
  int input_;
  Interrupt::Hook hook_;
  std::string buffer_;
  size_t at_ = 0;
  bool ended_ = false;
  double size_ = 0, taken_ = 0;
};

}  // namespace split::edge
