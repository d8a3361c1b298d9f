#include "serve/audit/answer_receipts.h"

namespace split::serve {

AnswerReceipts::AnswerReceipts(const TextModel& model, const TextRequest& request,
                               std::shared_ptr<MemoryShare> memory)
    : model_(model), memory_(std::move(memory)) {
  if (!request.receipt) return;
  const auto refuse = [](const char* why) { wire::Fields::refuse("receipt", why); };
  if (model.audits == nullptr) refuse("texts of this route have none");
  const auto& form = request.options.form;
  if (form != nullptr && (form->form().schema || form->form().calls())) {
    refuse("expected no tools or response_format beside it, whose rules a receipt does not tell");
  }
  bits_ = model.audited().bits;
}

Json AnswerReceipts::of(const std::vector<int32_t>& prompt, const Generated& made,
                        const GenerateOptions& options) const {
  if (bits_.empty()) return nullptr;
  const AuditedModel model = model_.audited();
  if (model.bits != bits_) {
    throw Error(ErrorKind::kBusy, "the device was lost: the answer's bits are of two kinds");
  }
  AuditReceipt receipt{.tokens = prompt, .prompt = prompt.size(), .options = options};
  receipt.tokens.insert(receipt.tokens.end(), made.tokens.begin(), made.tokens.end());
  return model_.audits->receipt(model, std::move(receipt), *memory_);
}

}  // namespace split::serve
