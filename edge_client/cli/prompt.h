// The prompt's bytes, from where the user said they are.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "edge_client/options/command_line.h"
#include "program/interrupt.h"

namespace split::edge {

// From --prompt, --prompt-file or the descriptor `input`; nothing for --prompt-ids. Throws
// Error(kInput) when there is none, it cannot be read, it is absurdly long, or it is waited for and
// the program is interrupted.
std::string read_prompt(const Options& options, int input, Interrupt& interrupt);

// The lines of --prompt-file or of the descriptor, as they come; however many.
class PromptLines {
 public:
  // Throws Error(kInput) as read_prompt() does.
  PromptLines(const Options& options, int input, Interrupt& interrupt);
  // The next one, without its end. False behind the last one.
  bool next(std::string& line);
  // How much of the file was read, where its size is known.
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
