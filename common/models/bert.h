// BERT and its family: an encoder of post-norm blocks, whose rows see all rows of their text.
// RoBERTa, XLM-R and MPNet are rows of a table (bert.cpp). Names and settings follow Hugging Face
// transformers' BertModel and relatives; BertForMaskedLM and others give their encoder alone.
// Sources: "BERT: Pre-training of Deep Bidirectional Transformers" (2018), "MPNet" (2020).
#pragma once

#include "models/model.h"

namespace split {

std::unique_ptr<Model> make_bert(std::string_view config_json, std::optional<int> context);
// An example for each activation and each setting with kernels of its own.
std::vector<std::string> bert_examples();

// Tensors on top of an encoder (pooler, heads of a task), and the buffer of positions.
bool is_beside_bert(std::string_view name);
inline constexpr std::string_view kBertPrefixes[] = {"bert.", "roberta.", "mpnet.", "model."};
// Names in TensorFlow's checkpoints, bert-base-uncased for one.
inline constexpr TensorNames::Alias kBertAliases[] = {{".gamma", ".weight"}, {".beta", ".bias"}};
inline constexpr TensorNames kBertNames{.prefixes = kBertPrefixes,
                                        .aliases = kBertAliases,
                                        .ignored = is_beside_bert,
                                        .first = "embeddings.word_embeddings.weight"};

}  // namespace split
