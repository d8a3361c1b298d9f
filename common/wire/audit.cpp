#include "wire/audit.h"

#include <bit>

#include "base/resources/memory_budget.h"
#include "io/weight_file.h"
#include "wire/fields.h"
#include "wire/step.h"

namespace split::wire {
namespace {

constexpr char kRows[] = "rows", kProof[] = "proof";
constexpr int64_t kMostTokens = int64_t{1} << 24;
constexpr size_t kMostBiases = 1024;
constexpr size_t kDigestWords = sizeof(Sha256::Digest) / sizeof(int32_t);
// Numbers of the sampler by their names, with their ranges.
struct Option {
  const char* name;
  float SamplingOptions::*value;
  double low, high;
};
constexpr Option kOptions[] = {
    {"temperature", &SamplingOptions::temperature, 0, 100},
    {"top_p", &SamplingOptions::top_p, 0, 1},
    {"min_p", &SamplingOptions::min_p, 0, 1},
    {"repetition_penalty", &SamplingOptions::repetition_penalty, 0.01, 100},
    {"presence_penalty", &SamplingOptions::presence_penalty, -2, 2},
    {"frequency_penalty", &SamplingOptions::frequency_penalty, -2, 2}};

using Digest = Sha256::Digest;
using DigestSpan = std::span<const Digest>;

Digest node(const Digest& left, const Digest& right) {
  Sha256 sum;
  constexpr std::byte kNode{1};  // rows are of whole floats, so that no row is a node's 65 bytes
  sum.update({&kNode, 1});
  sum.update(left);
  sum.update(right);
  return sum.finish();
}

size_t left_of(size_t leaves) { return std::bit_floor(leaves - 1); }

Digest root_of(DigestSpan leaves) {
  if (leaves.size() == 1) return leaves[0];
  const size_t left = left_of(leaves.size());
  return node(root_of(leaves.first(left)), root_of(leaves.subspan(left)));
}

// Whether no leaf of [at, at + n) is one of [first, first + count).
bool is_beside(size_t at, size_t n, size_t first, size_t count) {
  return at + n <= first || at >= first + count;
}

void prove(DigestSpan leaves, size_t at, size_t first, size_t count, Digests& out) {
  if (is_beside(at, leaves.size(), first, count)) return out.push_back(root_of(leaves));
  if (leaves.size() == 1) return;
  const size_t left = left_of(leaves.size());
  prove(leaves.first(left), at, first, count, out);
  prove(leaves.subspan(left), at + left, first, count, out);
}

// Follows prove(): takes known leaves and the proof's digests as they come. Sets `cut` where these
// are too few.
struct Proven {
  size_t first;
  DigestSpan known, proof;
  bool cut = false;

  Digest root(size_t at, size_t leaves) {
    const bool beside = is_beside(at, leaves, first, known.size());
    if (beside || leaves == 1) {
      if (!beside) return known[at - first];
      cut = cut || proof.empty();
      if (cut) return {};
      const Digest next = proof[0];
      proof = proof.subspan(1);
      return next;
    }
    const size_t left = left_of(leaves);
    const Digest a = root(at, left);
    return node(a, root(at + left, leaves - left));
  }
};

}  // namespace

Json to_json(const AuditReceipt& receipt) {
  Json sampling = Json::object();
  for (const Option& one : kOptions) {
    sampling[one.name] = json_number(receipt.sampling.*one.value);
  }
  sampling["top_k"] = receipt.sampling.top_k;
  sampling["repeat_last_n"] = receipt.sampling.repeat_last_n;
  sampling["min_tokens"] = receipt.min_tokens;
  sampling["ignore_eos"] = receipt.ignore_end;
  Json ids = Json::array(), biases = Json::array();
  for (const LogitBias& one : receipt.sampling.logit_bias) {
    ids.push_back(one.id);
    biases.push_back(json_number(one.bias));
  }
  sampling["bias_ids"] = std::move(ids);
  sampling["biases"] = std::move(biases);
  return {{"model", receipt.model},
          {"manifest", receipt.manifest},
          {"bits", receipt.bits},
          {"tokens", receipt.tokens},
          {"prompt_tokens", receipt.prompt},
          {"seed", static_cast<int64_t>(receipt.sampling.seed)},
          {"sampling", std::move(sampling)},
          {"root", receipt.root}};
}

AuditReceipt parse_audit_receipt(const Json& json, MemoryShare* memory) {
  Fields fields(&json);
  AuditReceipt receipt;
  SamplingOptions& sampling = receipt.sampling;
  receipt.model = fields.text("model");
  receipt.bits = fields.text("bits");
  for (const auto& [name, text] :
       {std::pair{"manifest", &receipt.manifest}, {"root", &receipt.root}}) {
    *text = fields.text(name);
    if (!is_lower_hex(*text, 64)) Fields::refuse(name, "expected 64 hex digits");
  }
  if (memory != nullptr) memory->take(fields.raw("tokens").size() * sizeof(int32_t));
  receipt.tokens = fields.integers("tokens", 0, kMostTokens, kMaxStepTokens);
  receipt.prompt = static_cast<uint32_t>(
      fields.integer("prompt_tokens", 1, static_cast<int64_t>(receipt.tokens.size())));
  sampling.seed = static_cast<uint64_t>(fields.integer("seed", INT64_MIN, INT64_MAX));
  if (!fields.raw("sampling").is_object()) Fields::refuse("sampling", "expected an object");
  Fields parts(&fields.raw("sampling"));
  for (const Option& one : kOptions) {
    if (!parts.has(one.name)) Fields::refuse(one.name, "expected a number");
    sampling.*one.value = static_cast<float>(parts.number_or(one.name, one.low, one.high, 0));
  }
  sampling.top_k = static_cast<int>(parts.integer("top_k", 0, kMostTokens));
  sampling.repeat_last_n = static_cast<int>(parts.integer("repeat_last_n", -1, kMostTokens));
  receipt.min_tokens = static_cast<int>(parts.integer("min_tokens", 0, kMostTokens));
  receipt.ignore_end = parts.boolean_or("ignore_eos", false);
  const std::vector<int32_t> ids = parts.integers("bias_ids", 0, kMostTokens, kMostBiases);
  const Json& biases = parts.raw("biases");
  if (!biases.is_array() || biases.size() != ids.size()) {
    Fields::refuse("biases", cat("expected a list of ", ids.size(), " numbers"));
  }
  std::vector<LogitBias> added;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!biases[i].is_number()) Fields::refuse("biases", "expected numbers");
    added.push_back({ids[i], static_cast<float>(biases[i].get<double>())});
  }
  if (!added.empty()) sampling.logit_bias = std::move(added);
  parts.finish();
  fields.finish();
  sampling.validate();
  return receipt;
}

std::string manifest_hash(const ModelInfo& info) {
  Sha256 sum;
  const auto add = [&](std::string_view text) {
    sum.update(as_bytes_of(text));
    sum.update(as_bytes_of("\n"));
  };
  add(parse_json(info.config_json, 16, "[config.json]").dump());
  for (const StageInfo& stage : info.stages) {
    add(cat(stage.name, " ", stage.format));
    for (const BlobInfo& blob : stage.blobs) {
      if (blob.format == stage.format) add(cat(blob.name, " ", blob.sha256));
    }
  }
  return sum.finish_hex();
}

Digests row_digests(std::span<const float> rows, size_t width) {
  Digests digests;
  for (size_t at = 0; at < rows.size(); at += width) {
    Sha256 sum;
    sum.update(std::as_bytes(rows.subspan(at, width)));
    digests.push_back(sum.finish());
  }
  return digests;
}

std::string RowTree::root() const {
  Digests roots;
  for (const Digests& rows : points) roots.push_back(root_of(rows));
  return to_hex(root_of(roots));
}

Digests RowTree::proof(size_t point, size_t first, size_t count) const {
  Digests proof, roots;
  prove(points[point], 0, first, count, proof);
  for (const Digests& rows : points) roots.push_back(root_of(rows));
  prove(roots, 0, point, 1, proof);
  return proof;
}

std::string proven_root(size_t points, size_t rows, size_t point, size_t first, DigestSpan digests,
                        DigestSpan proof) {
  Proven of_rows{first, digests, proof};
  const Digest one = of_rows.root(0, rows);
  Proven of_points{point, {&one, 1}, of_rows.proof, of_rows.cut};
  const Digest root = of_points.root(0, points);
  return of_points.cut || !of_points.proof.empty() ? "" : to_hex(root);
}

std::string to_json(const AuditRequest& request) {
  return Json{{"receipt", to_json(request.receipt)},
              {"point", request.point},
              {"first", request.first},
              {"count", request.count}}
      .dump();
}

AuditRequest parse_audit_request(std::string_view json, MemoryShare* memory) {
  Fields fields(json, memory);
  AuditRequest request;
  if (!fields.raw("receipt").is_object()) Fields::refuse("receipt", "expected an object");
  request.receipt = parse_audit_receipt(fields.raw("receipt"), memory);
  const auto rows = static_cast<int64_t>(request.receipt.tokens.size());
  request.point = static_cast<int>(fields.integer("point", 0, kMostTokens));
  request.first = static_cast<uint32_t>(fields.integer("first", 0, rows - 1));
  request.count = static_cast<uint32_t>(fields.integer("count", 1, rows - request.first));
  fields.finish();
  return request;
}

std::string to_frame(const AuditedRows& rows, uint32_t width) {
  const auto count = static_cast<int64_t>(rows.rows.size() / width);
  const std::vector<NamedTensor> tensors{
      {kRows, {DType::kF32, {count, int64_t{width}}, std::as_bytes(std::span(rows.rows))}},
      {kProof,
       {DType::kI32,
        {static_cast<int64_t>(rows.proof.size()), int64_t{kDigestWords}},
        std::as_bytes(std::span(rows.proof))}}};
  return write_weight_file(tensors);
}

AuditedRows parse_audited_rows(Bytes frame, uint32_t count, uint32_t width) {
  AuditedRows audited;
  Matrix rows = parse_frame(frame, kRows, width, count);
  if (rows.rows != count) {
    throw Error(ErrorKind::kInput, cat("expected ", count, " rows, got ", rows.rows), kRows);
  }
  audited.rows = std::move(rows.values);
  const Safetensors file = Safetensors::parse(frame, "the body");
  const auto proof = file.tensors().find(kProof);
  if (proof == file.tensors().end() || proof->second.dtype != DType::kI32 ||
      proof->second.bytes.size() % sizeof(Digest) != 0) {
    throw Error(ErrorKind::kInput, "expected a tensor 'proof' of digests", kProof);
  }
  audited.proof.resize(proof->second.bytes.size() / sizeof(Digest));
  std::memcpy(audited.proof.data(), proof->second.bytes.data(), proof->second.bytes.size());
  return audited;
}

}  // namespace split::wire
