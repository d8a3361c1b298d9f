#include "serve/audit/audits.h"

#include <algorithm>

#include "serve/text_request.h"
#include "wire/codes.h"
#include "wire/fields.h"
#include "wire/sampling.h"
#include "wire/step.h"

namespace split::serve {
namespace {

using wire::Fields;

constexpr uint64_t kMostAnswer = 64 << 20;  // bytes of rows

size_t width_of(const AuditedModel& model, int point) {
  return static_cast<size_t>(model.config->row_width(point));
}

}  // namespace

Json to_json(const AuditReceipt& receipt) {
  Json sampling = Json::object();
  wire::write_sampling(receipt.options.sampling, sampling);
  sampling["min_tokens"] = receipt.options.min_tokens;
  sampling["ignore_eos"] = receipt.options.ignore_end;
  Json json = {{"model", receipt.model},
               {"manifest", receipt.manifest},
               {"bits", receipt.bits},
               {"tokens", receipt.tokens},
               {"prompt_tokens", receipt.prompt},
               {"sampling", std::move(sampling)},
               {"root", receipt.root}};
  if (receipt.form) json[kFormatName] = receipt.form->to_json();
  return json;
}

AuditReceipt parse_audit_receipt(const Json& json, MemoryShare& memory) {
  if (!json.is_object()) Fields::refuse("receipt", "expected an object");
  Fields fields(&json);
  AuditReceipt receipt;
  receipt.model = fields.text("model");
  receipt.bits = fields.text("bits");
  for (const auto& [name, text] :
       {std::pair{"manifest", &receipt.manifest}, {"root", &receipt.root}}) {
    *text = fields.text(name);
    if (!is_lower_hex(*text, 64)) Fields::refuse(name, "expected 64 hex digits");
  }
  receipt.tokens = fields.integers("tokens", 0, INT32_MAX, wire::kMaxStepTokens);
  receipt.prompt = static_cast<size_t>(
      fields.integer("prompt_tokens", 1, static_cast<int64_t>(receipt.tokens.size())));
  if (!fields.raw("sampling").is_object()) Fields::refuse("sampling", "expected an object");
  Fields sampling(&fields.raw("sampling"));
  if (!sampling.has("seed")) Fields::refuse("seed", "is missing");
  TextRequest request;
  read_common(sampling, request, memory);
  receipt.options = request.options;
  sampling.finish();
  if (fields.has(kFormatName)) {
    const Json& form = fields.raw(kFormatName);
    if (!form.is_object()) Fields::refuse(kFormatName, "expected an object");
    read_format(form, memory, receipt.form.emplace(), true);
  }
  fields.finish();
  return receipt;
}

Json Audits::receipt(const AuditedModel& model, AuditReceipt receipt, MemoryShare& memory) {
  receipt.model = model.id;
  receipt.manifest = model.manifest;
  receipt.bits = model.bits;
  receipt.root = compute(model, receipt, memory)->root;
  return to_json(receipt);
}

// Computes a text's rows from point to point.
Audits::KeptRows Audits::compute(const AuditedModel& model, const AuditReceipt& receipt,
                                 MemoryShare& memory) {
  const std::span<const int32_t> tokens = receipt.tokens;
  const int layers = model.config->layers;
  uint64_t all = 0, most = 0;
  for (int point = 0; point <= layers; ++point) {
    all += tokens.size() * width_of(model, point) * sizeof(float);
    most = std::max<uint64_t>(most, tokens.size() * width_of(model, point) * sizeof(float));
  }
  const uint64_t digests =
      static_cast<uint64_t>(layers + 1) * tokens.size() * sizeof(Sha256::Digest);
  const bool keeps = all + digests <= bytes_;
  memory.take((keeps ? all : 2 * most) + digests);
  const auto made = std::make_shared<Kept>();
  std::vector<float> rows;
  for (int point = 0; point <= layers; ++point) {
    SequenceRows step{.range = {.to = point}, .tokens = tokens, .wanted = Wanted::kAll};
    if (point > 1) {  // a session takes no hidden states in front of the first block
      step.range.from = point - 1;
      step.tokens = {};
      step.hidden = keeps ? made->rows.back() : rows;
      step.width = static_cast<uint32_t>(width_of(model, point - 1));
    }
    std::vector<float> next = model.run(step, static_cast<uint32_t>(receipt.prompt));
    made->tree.points.push_back(wire::row_digests(next, width_of(model, point)));
    keeps ? made->rows.push_back(std::move(next)) : void(rows = std::move(next));
  }
  made->root = made->tree.root();
  made->bytes = digests + (keeps ? all : 0);
  keep(made);
  return made;
}

Audits::KeptRows Audits::find(const std::string& root) {
  const std::lock_guard lock(mutex_);
  const auto at = std::ranges::find(kept_, root, [](const KeptRows& one) { return one->root; });
  if (at == kept_.end()) return nullptr;
  kept_.splice(kept_.begin(), kept_, at);
  return kept_.front();
}

void Audits::keep(KeptRows rows) {
  const std::lock_guard lock(mutex_);
  std::erase_if(kept_, [&](const KeptRows& one) { return one->root == rows->root; });
  kept_.push_front(std::move(rows));
  uint64_t bytes = 0;
  std::erase_if(kept_, [&](const KeptRows& one) { return (bytes += one->bytes) > bytes_; });
}

http::Response Audits::answer(const http::Request& request, const FindAudited& find_model) {
  MemoryShare& memory = *request.memory;
  Fields fields(request.body, &memory);
  const AuditReceipt receipt = parse_audit_receipt(fields.raw("receipt"), memory);
  const auto number = [&](const char* name, int64_t low, size_t most) {
    return static_cast<size_t>(fields.integer(name, low, static_cast<int64_t>(most)));
  };
  const size_t first = number("first", 0, receipt.tokens.size() - 1);
  const size_t count = number("count", 1, receipt.tokens.size() - first);
  const size_t point = number("point", 0, INT32_MAX);
  fields.finish();
  const AuditedModel model = find_model(receipt.model);
  const ModelConfig& config = *model.config;
  if (receipt.manifest != model.manifest) {
    throw http::HttpError(
        409, wire::codes::kModelMismatch,
        cat("the receipt is of another model than ", shown(model.id), ": its manifest is ",
            receipt.manifest, ", this one's ", model.manifest),
        "receipt");
  }
  if (point > static_cast<size_t>(config.layers)) {
    Fields::refuse("point", cat("expected 0..", config.layers, ", got ", point));
  }
  if (receipt.tokens.size() > static_cast<size_t>(config.context) ||
      std::ranges::any_of(receipt.tokens, [&](int32_t id) { return id >= config.vocab; })) {
    Fields::refuse("receipt",
                   cat("expected at most ", config.context, " tokens below ", config.vocab));
  }
  const size_t width = width_of(model, static_cast<int>(point));
  const uint64_t bytes = count * width * sizeof(float);
  if (bytes > kMostAnswer) {
    Fields::refuse("count", cat("expected rows of at most ", kMostAnswer >> 20, " MiB"));
  }
  memory.take(2 * bytes);
  KeptRows kept = find(receipt.root);
  if (kept == nullptr) kept = compute(model, receipt, memory);
  const size_t rows = kept->tree.points[0].size();
  if (kept->root != receipt.root || rows != receipt.tokens.size()) {
    throw http::HttpError(410, wire::codes::kRowsGone,
                          cat("the rows of this receipt are not kept, and computed again they are "
                              "others: the receipt's bits are '",
                              receipt.bits, "', here they are '", model.bits, "'"),
                          "receipt");
  }
  std::vector<float> again;
  if (kept->rows.empty()) {
    const std::span<const int32_t> tokens = std::span(receipt.tokens).first(first + count);
    memory.take(tokens.size() * width * sizeof(float));
    const size_t prompt = std::min(receipt.prompt, tokens.size());
    const SequenceRows rows{
        .range = {.to = static_cast<int>(point)}, .tokens = tokens, .wanted = Wanted::kAll};
    again = model.run(rows, static_cast<uint32_t>(prompt));
  }
  const std::span<const float> from =
      (kept->rows.empty() ? std::span<const float>(again)
                          : std::span<const float>(kept->rows[point]))
          .subspan(first * width, count * width);
  http::Response response;
  response.content_type = wire::kTensorType;
  response.headers.set("Cache-Control", "no-store");
  response.body =
      wire::to_frame({{from.begin(), from.end()}, kept->tree.proof(point, first, count)},
                     static_cast<uint32_t>(width));
  return response;
}

http::Route audit_route(std::vector<int> statuses, http::Handler handler) {
  statuses.insert(statuses.end(), {409, 410});
  return {.method = "POST",
          .path = wire::kAuditPath,
          .summary = "Returns hidden rows of an answer with a receipt, and their Merkle path.",
          .answers = wire::kTensorType,
          .statuses = std::move(statuses),
          .body = {{"receipt", "object", "The receipt, as the answer has it.", true},
                   {"point", "integer",
                    "Where the rows are: 0 leaves the embedding, k enters block k.", true},
                   {"first", "integer", "The position of the first row.", true},
                   {"count", "integer", "The number of rows.", true}},
          .handler = std::move(handler)};
}

}  // namespace split::serve
