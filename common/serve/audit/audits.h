// Receipts of answers and POST /v1/audit, once for both programs: the rows of an answer with a
// receipt are computed again, once, layer by layer, and kept while there is room; rows that are
// gone are computed once more, and a root that then differs is an error. Knows no device.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "http/route.h"
#include "run/text/text_loop.h"
#include "wire/audit.h"

namespace split::serve {

struct AuditReceipt {
  std::string model = {};
  std::string manifest = {};            // wire::manifest_hash()
  std::string bits = {};                // run/bits.h
  std::vector<int32_t> tokens = {};     // the prompt's, and the answer's
  size_t prompt = 0;                    // the number of the first
  GenerateOptions options = {};         // what draws tokens alone, but for:
  std::optional<AnswerForm> form = {};  // the answer's, if it holds draws
  std::string root = {};                // wire::RowTree's
};
Json to_json(const AuditReceipt& receipt);
// Throws Error(kInput) that names the member; `memory` pays for its lists.
AuditReceipt parse_audit_receipt(const Json& json, MemoryShare& memory);

// A model whose rows a program can give.
struct AuditedModel {
  std::string id, manifest, bits;
  const ModelConfig* config = nullptr;
  // Computes the rows of a whole text, of which the first `prompt` are a prompt's, at range.to:
  // from its tokens, or from its rows at range.from. Throws Error and HttpError.
  std::function<std::vector<float>(const SequenceRows& rows, uint32_t prompt)> run;
};
// Finds a model by id, which must not be empty. Throws HttpError 404 `model_not_found`, and 400 or
// Error(kInput) for one of which there are no receipts.
using FindAudited = std::function<AuditedModel(const std::string& id)>;

// Any thread.
class Audits {
 public:
  // Sets the most bytes that kept rows take; it goes for rows that come.
  void set_limit(uint64_t bytes) { bytes_ = bytes; }

  // Makes the receipt of a text, with its tokens and options. `memory` pays for its rows while they
  // are computed.
  Json receipt(const AuditedModel& model, AuditReceipt receipt, MemoryShare& memory);
  // Answers POST /v1/audit.
  http::Response answer(const http::Request& request, const FindAudited& find);

 private:
  struct Kept {
    std::string root;
    wire::RowTree tree;
    std::vector<std::vector<float>> rows;  // by point; empty: too many to keep
    uint64_t bytes = 0;
  };
  using KeptRows = std::shared_ptr<const Kept>;
  KeptRows compute(const AuditedModel& model, const AuditReceipt& receipt, MemoryShare& memory);
  KeptRows find(const std::string& root);
  void keep(KeptRows rows);

  std::atomic<uint64_t> bytes_ = 256 << 20;
  std::mutex mutex_;          // guards:
  std::list<KeptRows> kept_;  // the last used first
};

// The route.
http::Route audit_route(std::vector<int> statuses, http::Handler handler);

}  // namespace split::serve
