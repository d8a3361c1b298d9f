#include "serve/audit/answer_receipts.h"

namespace split::serve {

AnswerReceipts::AnswerReceipts(const TextModel& model, const TextRequest& request,
                               std::shared_ptr<MemoryShare> memory)
    : model_(model), memory_(std::move(memory)) {
  if (!request.receipt) return;
  if (model.audits == nullptr) wire::Fields::refuse("receipt", "texts of this route have none");
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
  const AnswerForm* const form = options.form == nullptr ? nullptr : &options.form->form();
  if (form != nullptr && (form->schema || form->calls())) receipt.form = *form;
  receipt.tokens.insert(receipt.tokens.end(), made.tokens.begin(), made.tokens.end());
  return model_.audits->receipt(model, std::move(receipt), *memory_);
}

}  // namespace split::serve
