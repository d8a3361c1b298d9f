#include "wire/step.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/bytes.h"
#include "base/json.h"
#include "wire/fields.h"

namespace split::wire {
namespace {

constexpr uint64_t kMostPast = 1 << 30;
constexpr size_t kMaxTexts = 2048;  // texts of a request, OpenAI's limit

std::optional<std::string> value_of(Query query, std::string_view key) {
  const auto at = std::ranges::find(query, key, &Query::value_type::first);
  return at == query.end() ? std::nullopt : std::optional(at->second);
}

std::string_view wanted_name(const Wanted& wanted) {
  CHECK(wanted.kind != Wanted::kList);
  if (wanted == Wanted::kNone) return names::kNone;
  return wanted == Wanted::kLast ? names::kLast : names::kAll;
}

std::optional<Wanted> wanted_named(std::string_view text) {
  if (text == names::kAll) return Wanted::kAll;
  if (text == names::kLast) return Wanted::kLast;
  return std::nullopt;
}

// Reads a step's wanted rows, perhaps none.
Wanted parse_wanted(std::string_view text) {
  if (text == names::kNone) return Wanted::kNone;
  const auto wanted = wanted_named(text);
  if (!wanted) {
    Fields::refuse("rows", "expected \"all\", \"last\" or \"none\", got " + shown(text));
  }
  return *wanted;
}

[[noreturn]] void refuse_rows() {
  Fields::refuse("rows", "expected \"all\", \"last\" or a list of rows");
}

// "all", "last" or "0,5,7".
Wanted parse_listed(std::string_view text) {
  if (const auto wanted = wanted_named(text)) return *wanted;
  std::vector<uint32_t> list;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const auto row = parse_u64(text.substr(at, end - at), 0, 1 << 30);
    if (!row) refuse_rows();
    list.push_back(static_cast<uint32_t>(*row));
    at = end + 1;
  }
  return Wanted(std::move(list));
}

Wanted read_wanted(Fields& fields, const ModelConfig& config) {
  if (fields.raw("rows").is_string()) {
    const auto wanted = wanted_named(fields.text("rows"));
    if (!wanted) refuse_rows();
    return *wanted;
  }
  const auto rows = fields.integers("rows", 0, INT32_MAX, static_cast<size_t>(config.context));
  return Wanted({rows.begin(), rows.end()});
}

// The default of "rows".
Wanted usual_wanted(Point to) { return to == Point::head() ? Wanted::kLast : Wanted::kAll; }

Phase parse_phase(std::string_view text) {
  const auto phase = phase_from_wire(text);
  if (!phase) {
    Fields::refuse("phase", "expected \"prompt\" or \"generate\", got " + shown(text));
  }
  return *phase;
}

Point parse_to(std::string_view text, const ModelConfig& config) {
  const auto to = Point::parse(text, config.layers);
  if (!to) {
    Fields::refuse("to", cat("expected 0..", config.layers, ", \"norm\" or \"head\""));
  }
  // Without a final norm the state that leaves the last block is normed.
  return *to == Point::norm() ? Point::pooled(config.layers, config.has_norm()) : *to;
}

// Reads a number or a name.
Point read_to(Fields& fields, const ModelConfig& config) {
  const Json& to = fields.raw("to");
  const bool name = to.is_string() && (to == names::kNorm || to == names::kHead);
  const bool number = to.is_number_unsigned() && to.get<uint64_t>() <= INT32_MAX;
  return parse_to(name ? to.text() : number ? cat(to.get<uint64_t>()) : "", config);
}

// Writes the form that read_to() reads.
Json json_of(Point to) { return to < Point::norm() ? Json(to.block()) : Json(to.name()); }

void write_common(Json& json, DType wire, std::optional<uint64_t> digest) {
  if (wire != DType::kF32) json["wire"] = format_name(wire);
  if (!digest) return;
  std::array<std::byte, sizeof *digest> bytes{};
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(*digest >> (56 - 8 * i));
  }
  json["digest"] = to_hex(bytes);
}

uint64_t parse_digest(std::string_view text) {
  uint64_t digest = 0;
  if (!is_lower_hex(text, 16)) {
    Fields::refuse("digest", cat("expected 16 hex digits (0-9, a-f), got ", shown(text)));
  }
  std::from_chars(text.data(), text.data() + text.size(), digest, 16);
  return digest;
}

// Reads the fields that only a fill has.
void read_fill(Fields& fields, const ModelConfig& config, StepRequest& step) {
  for (const char* field : {"tokens", "phase"}) {
    if (fields.has(field)) Fields::refuse(field, "is none of a fill: the session knows its own");
  }
  step.count = static_cast<uint32_t>(fields.integer("count", 1, config.context));
}

ForwardRequest checked(ForwardRequest request) {
  const SequenceRows& rows = request.received.rows;
  const bool logits = rows.range.to == Point::head();
  if (request.top > 0 && !logits) Fields::refuse("top", "is for logits: \"to\" is \"head\"");
  if (is_quantised(request.format) && (logits || request.pool)) {
    Fields::refuse("dtype", "q8_0 is for hidden states, not for logits or embeddings");
  }
  if (!request.lengths.empty() && (rows.wanted.kind == Wanted::kList || request.top > 0)) {
    Fields::refuse(request.top > 0 ? "top" : "rows", "is for one text, not for a list of them");
  }
  if (request.pool && rows.wanted.kind != Wanted::kAll) {
    Fields::refuse("rows", "expected \"all\": an embedding is made of all rows");
  }
  if (request.normalize && !request.pool) {
    Fields::refuse("normalize", "is for embeddings: \"to\" is \"pool\"");
  }
  const std::vector<uint32_t>& list = rows.wanted.list;
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i] >= rows.count() || (i > 0 && list[i] <= list[i - 1])) {
      Fields::refuse("rows", cat("expected ascending rows in 0..", rows.count() - 1));
    }
  }
  if (rows.wanted_count() == 0) Fields::refuse("rows", "expected at least one");
  return request;
}

DType parse_format(std::string_view field, std::string_view name) {
  const auto format = row_format(name);
  if (!format) Fields::refuse(field, cat("expected ", kRowFormats, ", got ", shown(name)));
  return *format;
}

// Returns the format of a result's rows: logits are f32.
DType hidden_format(Point to, DType wire) { return to == Point::head() ? DType::kF32 : wire; }

// The point at which rows are pooled.
Point pooled_at(const ModelConfig& config) {
  return Point::pooled(config.layers, config.has_norm());
}

Point last_point(const ModelConfig& config) {
  return Point::last(config.layers, config.has_norm(), !config.encodes());
}

// Reads a list of lists of ids.
void read_lists(const Json& lists, const ModelConfig& config, ForwardRequest& request) {
  if (lists.size() > kMaxTexts)
    Fields::refuse("tokens", cat("expected at most ", kMaxTexts, " texts"));
  std::vector<int32_t> all;
  for (const Json& list : lists) {
    const Json wrapped = {{"tokens", list}};
    Fields one(&wrapped);
    const auto ids =
        one.integers("tokens", 0, config.vocab - 1, static_cast<size_t>(config.context));
    if (ids.empty()) Fields::refuse("tokens", "expected at least one of each text");
    all.insert(all.end(), ids.begin(), ids.end());
    request.lengths.push_back(static_cast<uint32_t>(ids.size()));
  }
  if (all.size() > kMaxStepTokens) {
    Fields::refuse("tokens", cat("expected at most ", kMaxStepTokens, ", got ", all.size()));
  }
  request.received.own(std::move(all));
}

// Where the second texts of pairs begin, of a list of lists of ids.
void read_seconds(Fields& fields, ForwardRequest& request) {
  const auto seconds = fields.integers("seconds", 0, INT32_MAX, kMaxTexts);
  bool fits = seconds.size() == request.lengths.size();
  for (size_t i = 0; fits && i < seconds.size(); ++i) {
    fits = static_cast<uint32_t>(seconds[i]) < request.lengths[i];
  }
  if (!fits) Fields::refuse("seconds", "expected a row of each text in \"tokens\", or 0");
  request.seconds.assign(seconds.begin(), seconds.end());
}

void read_prompts(Fields& fields, const Encode& encode, bool special, ForwardRequest& request) {
  if (!fields.has("prompt") || !fields.raw("prompt").is_array()) {
    request.received.own(encode(fields.text_or("prompt", ""), special));
    return;
  }
  const std::vector<std::string> prompts = fields.texts("prompt", kMaxTexts);
  if (prompts.empty()) Fields::refuse("prompt", "expected at least one text");
  std::vector<int32_t> all;
  for (const std::string& prompt : prompts) {
    const std::vector<int32_t> ids = encode(prompt, special);
    all.insert(all.end(), ids.begin(), ids.end());
    request.lengths.push_back(static_cast<uint32_t>(ids.size()));
  }
  request.received.own(std::move(all));
}

Matrix parse_hidden(Bytes body, const ModelConfig& config) {
  return parse_frame(body, "hidden", static_cast<uint32_t>(config.channels),
                     static_cast<uint32_t>(config.context));
}

}  // namespace

void ReceivedRows::own(std::vector<int32_t> tokens) {
  tokens_ = std::move(tokens);
  rows.tokens = tokens_;
}

void ReceivedRows::own(Matrix hidden) {
  hidden_ = std::move(hidden.values);
  rows.hidden = hidden_;
  rows.width = hidden.columns;
}

std::string step_json(const SequenceRows& rows, std::optional<Point> to, std::optional<int> can,
                      DType wire, std::optional<uint64_t> digest, bool again) {
  Json json = {{"past", rows.past},
               {"phase", wire_name(rows.phase)},
               {"rows", wanted_name(rows.wanted)},
               {"tokens", rows.tokens}};
  if (to) json["to"] = json_of(*to);
  if (can) json["can"] = *can;
  if (again) json["again"] = true;
  write_common(json, wire, digest);
  return json.dump();
}

std::string fill_json(uint32_t past, uint32_t count, Point to, const Wanted& wanted, DType wire,
                      std::optional<uint64_t> digest) {
  Json json = {{"count", count},
               {"fill", true},
               {"past", past},
               {"rows", wanted_name(wanted)},
               {"to", json_of(to)}};
  write_common(json, wire, digest);
  return json.dump();
}

StepRequest parse_step(std::string_view json, const ModelConfig& config, MemoryShare* memory) {
  Fields fields(json, memory);
  StepRequest step;
  SequenceRows& rows = step.received.rows;
  step.fill = fields.boolean_or("fill", false);
  rows.past = static_cast<uint32_t>(fields.integer("past", 0, kMostPast));
  if (step.fill) {
    read_fill(fields, config, step);
  } else {
    if (fields.has("count")) Fields::refuse("count", "is for a fill");
    step.received.own(fields.integers("tokens", 0, INT32_MAX, kMaxStepTokens));
    rows.phase = parse_phase(fields.text_or("phase", wire_name(Phase::kPrompt)));
    step.again = fields.boolean_or("again", false);
  }
  rows.wanted = parse_wanted(fields.text_or("rows", names::kAll));
  if (fields.has("to")) step.to = read_to(fields, config);
  if (fields.has("can")) step.can = static_cast<int>(fields.integer("can", 0, config.layers));
  step.wire = parse_format("wire", fields.text_or("wire", "f32"));
  if (fields.has("digest")) step.digest = parse_digest(fields.text("digest"));
  fields.finish();
  return step;
}

StepRequest parse_step(Query query, Bytes body, const ModelConfig& config) {
  check_query(query, {"past", "phase", "rows", "to", "wire"});
  StepRequest step;
  SequenceRows& rows = step.received.rows;
  // No default: a step without it would drop all rows of the session.
  const auto past = parse_u64(value_of(query, "past").value_or(""), 0, kMostPast);
  if (!past) Fields::refuse("past", cat("expected a whole number in 0..", kMostPast));
  rows.past = static_cast<uint32_t>(*past);
  const std::string phase(wire_name(Phase::kPrompt)), all(names::kAll);
  rows.phase = parse_phase(value_of(query, "phase").value_or(phase));
  rows.wanted = parse_wanted(value_of(query, "rows").value_or(all));
  if (const auto to = value_of(query, "to")) step.to = parse_to(*to, config);
  step.wire = parse_format("wire", value_of(query, "wire").value_or("f32"));
  step.received.own(parse_hidden(body, config));
  return step;
}

std::string forward_json(const SequenceRows& rows, DType wire) {
  Json json = {
      {"rows", wanted_name(rows.wanted)}, {"to", json_of(rows.range.to)}, {"tokens", rows.tokens}};
  const DType format = hidden_format(rows.range.to, wire);
  if (format != DType::kF32) json["dtype"] = format_name(format);
  return json.dump();
}

std::string forward_query(const SequenceRows& rows, DType wire) {
  const Point to = rows.range.to;
  const DType format = hidden_format(to, wire);
  return cat("from=", rows.range.from.block(), to == Point::head() ? "" : "&to=" + to.name(),
             "&rows=", wanted_name(rows.wanted),
             format == DType::kF32 ? "" : cat("&dtype=", format_name(format)));
}

std::string forward_json(const TextRows& texts, bool pool, DType wire) {
  Json lists = Json::array();
  for (const SequenceRows& rows : texts.split()) lists.push_back(rows.tokens);
  Json json = {{"to", pool ? Json(kPool) : json_of(texts.range.to)}};
  if (pool) json["normalize"] = false;
  json["tokens"] = std::move(lists);
  if (!texts.seconds.empty()) json["seconds"] = texts.seconds;
  const DType format = pool ? DType::kF32 : hidden_format(texts.range.to, wire);
  if (format != DType::kF32) json["dtype"] = format_name(format);
  return json.dump();
}

TextRows ForwardRequest::texts(uint32_t& one) const {
  const SequenceRows& rows = received.rows;
  one = rows.count();
  return {.range = rows.range,
          .lengths = lengths.empty() ? std::span<const uint32_t>(&one, 1) : lengths,
          .tokens = rows.tokens,
          .hidden = rows.hidden,
          .width = rows.width,
          .wanted = rows.wanted,
          .seconds = seconds};
}

ForwardRequest parse_forward(std::string_view json, const ModelConfig& config, const Encode& encode,
                             MemoryShare* memory) {
  Fields fields(json, memory);
  ForwardRequest request;
  SequenceRows& rows = request.received.rows;
  const bool special = fields.boolean_or("special", true);
  if (fields.has("prompt") && fields.has("tokens")) {
    Fields::refuse("prompt", "expected one of \"prompt\" and \"tokens\", got both");
  }
  if (fields.has("tokens") && fields.raw("tokens").is_array() && !fields.raw("tokens").empty() &&
      fields.raw("tokens")[0].is_array()) {
    read_lists(fields.raw("tokens"), config, request);
  } else if (fields.has("tokens")) {
    request.received.own(
        fields.integers("tokens", 0, config.vocab - 1, static_cast<size_t>(config.context)));
    if (rows.count() == 0) Fields::refuse("tokens", "expected at least one");
  } else {
    read_prompts(fields, encode, special, request);
  }
  if (fields.integer_or("from", 0, config.layers, 0) > 0) {
    Fields::refuse("from",
                   "over 0 only with `hidden`: send safetensors as application/octet-stream");
  }
  if (fields.has("seconds")) read_seconds(fields, request);
  request.pool = fields.has("to") && fields.raw("to") == kPool;
  rows.range.to = request.pool        ? pooled_at(config)
                  : !fields.has("to") ? last_point(config)
                                      : read_to(fields, config);
  rows.wanted = fields.has("rows") ? read_wanted(fields, config) : usual_wanted(rows.range.to);
  if (fields.has("normalize")) request.normalize = fields.boolean_or("normalize", true);
  request.format = parse_format("dtype", fields.text_or("dtype", "f32"));
  request.top = static_cast<int>(fields.integer_or("top", 1, config.vocab, 0));
  fields.finish();
  return checked(std::move(request));
}

ForwardRequest parse_forward(Query query, Bytes body, const ModelConfig& config) {
  ForwardRequest request;
  SequenceRows& rows = request.received.rows;
  check_query(query, {"from", "to", "rows", "top", "dtype", "normalize"});
  const auto to = value_of(query, "to");
  request.pool = to && *to == kPool;
  rows.range = parse_range(query, config, true);
  rows.range.from = rows.range.from.block();  // hidden states at point 0, not tokens
  const auto wanted = value_of(query, "rows");
  rows.wanted = wanted ? parse_listed(*wanted) : usual_wanted(rows.range.to);
  if (const auto text = value_of(query, "top")) {
    const auto top = parse_u64(*text, 1, static_cast<uint64_t>(config.vocab));
    if (!top) Fields::refuse("top", cat("expected a whole number in 1..", config.vocab));
    request.top = static_cast<int>(*top);
  }
  request.format = parse_format("dtype", value_of(query, "dtype").value_or("f32"));
  if (const auto text = value_of(query, "normalize")) {
    if (*text != "true" && *text != "false") Fields::refuse("normalize", "expected true or false");
    request.normalize = *text == "true";
  }
  Matrix hidden =
      parse_frame(body, "hidden", static_cast<uint32_t>(config.channels), kMaxStepTokens);
  request.lengths = parse_lengths(body, hidden.rows, static_cast<uint32_t>(config.context));
  if (request.lengths.empty() && hidden.rows > static_cast<uint32_t>(config.context)) {
    hidden = parse_hidden(body, config);  // throws
  }
  request.received.own(std::move(hidden));
  return checked(std::move(request));
}

StageRange parse_range(Query query, const ModelConfig& config, bool pools) {
  const int layers = config.layers;
  StageRange range{.to = last_point(config)};
  if (const auto text = value_of(query, "from")) {
    const auto from = parse_u64(*text, 0, static_cast<uint64_t>(layers));
    if (!from) Fields::refuse("from", cat("expected 0..", layers));
    range.from = static_cast<int>(*from);
  }
  const auto to = value_of(query, "to");
  if (to) range.to = pools && *to == kPool ? pooled_at(config) : parse_to(*to, config);
  if (range.to < range.from) {
    Fields::refuse("to", cat("expected a point at or after ", range.from.block()));
  }
  return range;
}

std::string hidden_frame(const SequenceRows& rows, DType wire) {
  return frame("hidden", rows.count(), rows.width, rows.hidden, {.format = wire, .field = "wire"});
}

std::string_view result_name(Point to) { return to == Point::head() ? "logits" : "hidden"; }

}  // namespace split::wire
