// A tokenizer of Llama 3's size with made-up tokens: how long its file takes to be read, and how
// fast texts become tokens.
#pragma once

#include "bench/support/bench.h"

namespace split::bench {

// The file: `tokens` tokens of letters, each of later ones the merge of two before it. The same in
// every call.
std::string random_tokenizer_json(size_t tokens);

// Adds the rows of tokenizers.
void measure_tokenizers(const Options& options, Report& report);

}  // namespace split::bench
