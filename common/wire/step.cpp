#include "wire/step.h"

#include <algorithm>
#include <charconv>
#include <cinttypes>
#include <cstdio>

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

constexpr std::string_view kWanted[] = {names::kNone, names::kLast, names::kAll};  // by its kind

std::string_view wanted_name(const Wanted& wanted) {
  CHECK(wanted.kind != Wanted::kList);
  return kWanted[wanted.kind];
}

std::optional<Wanted> wanted_named(std::string_view text) {
  const auto* found = std::ranges::find(kWanted, text);
  if (found == std::end(kWanted)) return std::nullopt;
  return Wanted(static_cast<Wanted::Kind>(found - kWanted));
}

// Reads a list of rows: of numbers in JSON, as "0,5,7" in a query.
Wanted read_listed(Fields& fields, const ModelConfig& config, bool query) {
  if (!query && !fields.raw("rows").is_string()) {
    const auto rows = fields.integers("rows", 0, INT32_MAX, static_cast<size_t>(config.context));
    return Wanted({rows.begin(), rows.end()});
  }
  const std::string text = fields.text("rows");
  if (const auto wanted = wanted_named(text); wanted && *wanted != Wanted::kNone) return *wanted;
  std::vector<uint32_t> list;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const auto row = parse_u64(std::string_view(text).substr(at, end - at), 0, 1 << 30);
    if (!query || !row) Fields::refuse("rows", "expected \"all\", \"last\" or a list of rows");
    list.push_back(static_cast<uint32_t>(*row));
    at = end + 1;
  }
  return Wanted(std::move(list));
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

// Returns a query's members as they are in JSON.
Json::Object members_of(Query query, std::initializer_list<std::string_view> known) {
  check_query(query, known);
  Json::Object members;
  for (const auto& [name, text] : query) {
    Json value(text);
    if (name == "past" || name == "to" || name == "top") {
      if (const auto number = parse_u64(text, 0, UINT64_MAX)) value = *number;
    } else if (name == "normalize" && (text == "true" || text == "false")) {
      value = text == "true";
    }
    members.push_back({name, std::move(value)});
  }
  return members;
}

// Reads a value by its name. `expected` has the names, for a message.
template <typename Parse>
auto read_named(Fields& fields, std::string_view key, std::string_view otherwise,
                std::string_view expected, const Parse& parse) {
  const std::string text = fields.text_or(key, otherwise);
  const auto value = parse(text);
  if (!value) Fields::refuse(key, cat("expected ", expected, ", got ", shown(text)));
  return *value;
}

std::optional<uint64_t> parse_digest(std::string_view text) {
  uint64_t digest = 0;
  if (!is_lower_hex(text, 16)) return std::nullopt;
  std::from_chars(text.data(), text.data() + text.size(), digest, 16);
  return digest;
}

// Reads fields, or writes those that have not their default: each type's two forms side by side.
struct StepIo {
  Fields* in = nullptr;
  Json out = {};
  ReceivedRows* received = nullptr;  // where tokens are read to

  void operator()(const char* key, bool& value) {
    if (in != nullptr) value = in->boolean_or(key, false);
    if (in == nullptr && value) out[key] = true;
  }
  void operator()(const char* key, uint32_t& value, int64_t low, int64_t high) {
    if (in != nullptr) value = static_cast<uint32_t>(in->integer(key, low, high));
    if (in == nullptr) out[key] = value;
  }
  void operator()(const char* key, std::optional<int>& value, int64_t high) {
    if (in != nullptr && in->has(key)) value = static_cast<int>(in->integer(key, 0, high));
    if (in == nullptr && value) out[key] = *value;
  }
  void operator()(const char* key, std::optional<Point>& value, const ModelConfig& config) {
    if (in != nullptr && in->has(key)) value = read_to(*in, config);
    if (in == nullptr && value) out[key] = json_of(*value);
  }
  void operator()(const char* key, Phase& value) {
    if (in == nullptr) return void(out[key] = wire_name(value));
    value = read_named(*in, key, wire_name(Phase::kPrompt), "\"prompt\" or \"generate\"",
                       phase_from_wire);
  }
  void operator()(const char* key, Wanted& value) {
    if (in == nullptr) return void(out[key] = wanted_name(value));
    value = read_named(*in, key, names::kAll, "\"all\", \"last\" or \"none\"", wanted_named);
  }
  void operator()(const char* key, DType& value) {
    if (in != nullptr) value = read_named(*in, key, "f32", kRowFormats, row_format);
    if (in == nullptr && value != DType::kF32) out[key] = format_name(value);
  }
  void operator()(const char* key, std::optional<uint64_t>& value) {
    char hex[17];
    if (in != nullptr && in->has(key)) {
      value = read_named(*in, key, "", "16 hex digits (0-9, a-f)", parse_digest);
    } else if (in == nullptr && value) {
      std::snprintf(hex, sizeof hex, "%016" PRIx64, *value);
      out[key] = hex;
    }
  }
  void operator()(const char* key, std::span<const int32_t> tokens) {
    if (in == nullptr) out[key] = tokens;
    if (received != nullptr) received->own(in->integers(key, 0, INT32_MAX, kMaxStepTokens));
  }
  void none(const char* key, const char* why) {
    if (in != nullptr && in->has(key)) Fields::refuse(key, why);
  }
};

// All fields of a step, in the order in which their errors are told.
void step_fields(StepIo& io, const ModelConfig& config, SequenceRows& rows, StepFields& step) {
  io("fill", step.fill);
  io("past", rows.past, 0, kMostPast);
  if (step.fill) {
    for (const char* key : {"tokens", "phase"}) {
      io.none(key, "is none of a fill: the session knows its own");
    }
    io("count", step.count, 1, config.context);
  } else {
    io.none("count", "is for a fill");
    io("tokens", rows.tokens);
    io("phase", rows.phase);
    io("again", step.again);
  }
  io("rows", rows.wanted);
  io("to", step.to, config);
  io("can", step.can, config.layers);
  io("wire", step.wire);
  io("digest", step.digest);
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
    const auto ids = Fields::integers_of(list, "tokens", 0, config.vocab - 1,
                                         static_cast<size_t>(config.context));
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

// Reads which results are wanted, and how.
void read_results(Fields& fields, const ModelConfig& config, bool query, ForwardRequest& request) {
  SequenceRows& rows = request.received.rows;
  rows.wanted = fields.has("rows")               ? read_listed(fields, config, query)
                : rows.range.to == Point::head() ? Wanted::kLast
                                                 : Wanted::kAll;
  if (fields.has("normalize")) request.normalize = fields.boolean_or("normalize", true);
  StepIo{&fields}("dtype", request.format);
  request.top = static_cast<int>(fields.integer_or("top", 1, config.vocab, 0));
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

Matrix parse_hidden(Bytes body, const ModelConfig& config, Point from, uint32_t most) {
  return parse_frame(body, "hidden", static_cast<uint32_t>(config.row_width(from.block())), most);
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

std::string step_json(SequenceRows rows, StepFields fields) {
  static const ModelConfig kUnread;
  StepIo io;
  step_fields(io, kUnread, rows, fields);
  return io.out.dump();
}

StepRequest parse_step(std::string_view json, const ModelConfig& config, MemoryShare* memory) {
  Fields fields(json, memory);
  StepRequest step;
  StepIo io{&fields, {}, &step.received};
  step_fields(io, config, step.received.rows, step);
  fields.finish();
  return step;
}

std::string step_query(const SequenceRows& rows) {
  return cat("past=", rows.past, "&phase=", wire_name(rows.phase),
             "&rows=", wanted_name(rows.wanted));
}

StepRequest parse_step(Query query, Bytes body, const ModelConfig& config, Point from) {
  Json::Object members = members_of(query, {"past", "phase", "rows", "to", "wire"});
  // No default: a step without it would drop all rows of the session.
  if (!value_of(query, "past")) members.push_back({"past", ""});
  Fields fields(std::move(members));
  StepRequest step;
  StepIo io{&fields};
  step_fields(io, config, step.received.rows, step);
  step.received.own(parse_hidden(body, config, from, static_cast<uint32_t>(config.context)));
  return step;
}

std::string forward_json(const SequenceRows& rows, DType wire) {
  StepIo io{.out = {{"rows", wanted_name(rows.wanted)},
                    {"to", json_of(rows.range.to)},
                    {"tokens", rows.tokens}}};
  DType format = hidden_format(rows.range.to, wire);
  io("dtype", format);
  return io.out.dump();
}

std::string forward_query(const SequenceRows& rows, DType wire) {
  const Point to = rows.range.to;
  const DType format = hidden_format(to, wire);
  return cat("from=", rows.range.from.block(), to == Point::head() ? "" : "&to=" + to.name(),
             "&rows=", wanted_name(rows.wanted),
             format == DType::kF32 ? "" : cat("&dtype=", format_name(format)));
}

std::string forward_json(const TextRows& texts, bool pool, DType wire) {
  StepIo io{.out = {{"to", pool ? Json(kPool) : json_of(texts.range.to)}}};
  Json& lists = io.out["tokens"] = Json::array();
  for (const SequenceRows& rows : texts.split()) lists.push_back(rows.tokens);
  if (pool) io.out["normalize"] = false;
  if (!texts.seconds.empty()) io.out["seconds"] = texts.seconds;
  DType format = pool ? DType::kF32 : hidden_format(texts.range.to, wire);
  io("dtype", format);
  return io.out.dump();
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
  read_results(fields, config, false, request);
  fields.finish();
  return checked(std::move(request));
}

ForwardRequest parse_forward(Query query, Bytes body, const ModelConfig& config) {
  ForwardRequest request;
  SequenceRows& rows = request.received.rows;
  Fields fields(members_of(query, {"from", "to", "rows", "top", "dtype", "normalize"}));
  const auto to = value_of(query, "to");
  request.pool = to && *to == kPool;
  rows.range = parse_range(query, config, true);
  rows.range.from = rows.range.from.block();  // hidden states at point 0, not tokens
  read_results(fields, config, true, request);
  const auto context = static_cast<uint32_t>(config.context);
  Matrix hidden = parse_hidden(body, config, rows.range.from, kMaxStepTokens);
  request.lengths = parse_lengths(body, hidden.rows, context);
  if (request.lengths.empty() && hidden.rows > context) {
    hidden = parse_hidden(body, config, rows.range.from, context);  // throws
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
