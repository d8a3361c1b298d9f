// The receipts of an answer's texts, if they were asked for.
#pragma once

#include "serve/text_request.h"

namespace split::serve {

// Any thread. The model outlives it.
class AnswerReceipts {
 public:
  // `memory`: the request's. Throws Error(kInput) for a text that has none, and what the model
  // does.
  AnswerReceipts(const TextModel& model, const TextRequest& request,
                 std::shared_ptr<MemoryShare> memory);
  // The receipt of a text that has ended, JSON; null if none was asked for.
  Json of(const std::vector<int32_t>& prompt, const Generated& made,
          const GenerateOptions& options) const;

 private:
  const TextModel& model_;
  const std::shared_ptr<MemoryShare> memory_;
  std::string bits_;  // empty: none are made
};

}  // namespace split::serve
