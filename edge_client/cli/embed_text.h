// The output of --embed for one prompt: numbers with spaces between them, or one JSON object.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace split::edge {

// The final state of a text: its last row, and the mean over all.
std::string states_text(std::span<const float> rows, size_t channels, bool json);

// The text's embedding, as specified by the model's files.
std::string embedding_text(std::vector<float> embedding, size_t tokens, bool normalizes, bool json);

}  // namespace split::edge
