// Readers of flag values that are more than a number, a word or a path. All throw Error(kInput),
// one line that names the flag.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "edge_client/options/options.h"

namespace split::edge {

constexpr const char* kDefaultAddress = "127.0.0.1:8081";

[[noreturn]] inline void refuse(const std::string& why) { throw Error(ErrorKind::kInput, why); }

// Calls `read`, and names the flag in its error.
template <typename Read>
auto of_flag(std::string_view flag, const Read& read) {
  try {
    return read();
  } catch (const Error& error) {
    throw Error(ErrorKind::kInput, cat(flag, ": ", error.what()));
  }
}

// "1,2,3".
std::vector<int32_t> ids_of(std::string_view text);
// "0:6,12:2": a first move at 0 is the beginning.
void read_moves(std::string_view text, Options& options);
// "auto", "off" or the most guesses.
DraftOptions drafts_of(std::string_view text);
// Reads HOST:PORT, [ADDRESS]:PORT or PORT of --serve.
void read_address(std::string_view text, Options& options);

}  // namespace split::edge
