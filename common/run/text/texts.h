// Runs whole texts through a part of a model and keeps nothing of them.
#pragma once

#include "run/batcher.h"
#include "run/forward.h"
#include "step/texts.h"

namespace split {

// The wanted rows of all texts, one after the other: [wanted rows, width(range.to)]. They share
// steps with each other and with other jobs. Adds their cost. Throws the errors of Batcher::run().
std::vector<float> run_texts(Batcher& batcher, const TextRows& texts, const Requester& requester,
                             Forward::Spent& spent);

}  // namespace split
