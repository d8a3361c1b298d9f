// Embeddings in bulk: each line of a file or of stdin is a text, or a JSON object with a "text";
// each becomes a line {"index","tokens","embedding"}, in the same order. With an output file, the
// same command resumes after its last whole line.
#pragma once

#include <functional>

#include "edge_client/drive/split_embed.h"
#include "edge_client/options/command_line.h"
#include "program/interrupt.h"
#include "program/world.h"

namespace split::edge {

// Embeds texts in one trip.
using EmbedTexts = std::function<std::vector<float>(std::span<const std::vector<int32_t>> texts)>;

// Throws Error(kInput) with the number of a line without a text, Error(kIo), and what `embed`
// throws.
void embed_lines(const Options& options, const World& world, Interrupt& interrupt,
                 const Sentences& sentences, const Tokenizer* tokenizer, const EmbedTexts& embed);

}  // namespace split::edge
