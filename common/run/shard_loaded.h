// What a Shard has on its device.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "run/shard.h"

namespace split {

struct Shard::Loaded {
  std::map<std::string, OwnedTensor> converted;  // gone after the buffers, which may read them
  std::map<std::string, std::unique_ptr<Buffer>> weights;
  std::vector<std::unique_ptr<Buffer>> caches;  // K and V of each layer
  std::unique_ptr<Buffer> hidden[2];            // point k is in hidden[k % 2]
  std::unique_ptr<Buffer> normed;
  std::unique_ptr<Buffer> logits, top;
  std::unique_ptr<Workspace> workspace;
  std::unique_ptr<Executable> embed, norm, head, topk;
  std::vector<std::unique_ptr<Executable>> blocks;  // of the layers from options.first on
  Limits limits;

  // Scratch of a step, sized once.
  std::vector<Executable*> programs;
  std::vector<int32_t> tokens, positions;
  std::vector<uint32_t> sequences, tables, out_rows;
  std::vector<KeyRange> seen;
  std::vector<float> in, out;
};

}  // namespace split
