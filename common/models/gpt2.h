// GPT-2: pre-norm blocks, learned positions, Conv1D weights [in, out]. Source: "Language Models are
// Unsupervised Multitask Learners" (2019); names and settings as in Hugging Face transformers'
// GPT2LMHeadModel.
#pragma once

#include "models/model.h"

namespace split {

std::unique_ptr<Model> make_gpt2(std::string_view config_json);

}  // namespace split
