// Embeddings in bulk: each line of a file or of stdin is a text, or a JSON object with a "text";
// each becomes a line {"index","tokens","embedding"}, in the same order. With an output file, the
// same command resumes after its last whole line. Or all lines are ranked by a query.
#pragma once

#include <functional>

#include "edge_client/drive/split_embed.h"
#include "edge_client/options/command_line.h"
#include "program/interrupt.h"
#include "program/world.h"

namespace split::edge {

// Embeds texts, in one trip, or scores pairs; `seconds` as SequenceRows has them, or empty.
using EmbedTexts = std::function<std::vector<float>(std::span<const std::vector<int32_t>> texts,
                                                    std::span<const uint32_t> seconds)>;

// Throws Error(kInput) with the number of a line without a text, Error(kIo), and what `embed`
// throws.
void embed_lines(const Options& options, const World& world, Interrupt& interrupt,
                 const Sentences& sentences, const Tokenizer* tokenizer, const EmbedTexts& embed);
// Throws Error(kInput) where a reranker is to embed, or another model to rank.
void expect_use(const Options& options, const Sentences& sentences, const std::string& model);
// The best first: a table of scores, lines' numbers and texts, or lines {"index",
// "relevance_score","document"}. Throws likewise.
void rank_lines(const Options& options, const World& world, Interrupt& interrupt,
                const Sentences& sentences, const Tokenizer* tokenizer, const EmbedTexts& embed);

}  // namespace split::edge
