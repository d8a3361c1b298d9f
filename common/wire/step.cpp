#include "wire/step.h"

#include <algorithm>

#include "base/json.h"
#include "wire/fields.h"

namespace split::wire {
namespace {

constexpr uint64_t kMostPast = 1 << 30;

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

// Reads the wanted rows of a step, which may be none.
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

// Without "rows".
Wanted usual_wanted(Point to) { return to == Point::head() ? Wanted::kLast : Wanted::kAll; }

Phase parse_phase(std::string_view text) {
  const auto phase = phase_from_wire(text);
  if (!phase) {
    Fields::refuse("phase", "expected \"prompt\" or \"generate\", got " + shown(text));
  }
  return *phase;
}

Point parse_to(std::string_view text, int layers) {
  const auto to = Point::parse(text, layers);
  if (!to) Fields::refuse("to", cat("expected 0..", layers, ", \"norm\" or \"head\""));
  return *to;
}

// A number or a name, and nothing else.
Point read_to(Fields& fields, int layers) {
  const Json& to = fields.raw("to");
  const bool name = to.is_string() && (to == names::kNorm || to == names::kHead);
  const bool number = to.is_number_unsigned() && to.get<uint64_t>() <= INT32_MAX;
  return parse_to(name ? to.text() : number ? cat(to.get<uint64_t>()) : "", layers);
}

// Writes what read_to() reads.
Json json_of(Point to) { return to < Point::norm() ? Json(to.block()) : Json(to.name()); }

// The fields of a fill that are not those of every step.
void read_fill(Fields& fields, const ModelConfig& config, StepRequest& step) {
  for (const char* field : {"tokens", "phase"}) {
    if (fields.has(field)) Fields::refuse(field, "is none of a fill: the session knows its own");
  }
  step.count = static_cast<uint32_t>(fields.integer("count", 1, config.context));
}

ForwardRequest checked(ForwardRequest request) {
  const SequenceRows& rows = request.received.rows;
  if (request.top > 0 && rows.range.to != Point::head()) {
    Fields::refuse("top", "is for logits: \"to\" is \"head\"");
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

std::string step_json(const SequenceRows& rows, std::optional<Point> to) {
  Json json = {{"past", rows.past},
               {"phase", wire_name(rows.phase)},
               {"rows", wanted_name(rows.wanted)},
               {"tokens", rows.tokens}};
  if (to) json["to"] = json_of(*to);
  return json.dump();
}

std::string fill_json(uint32_t past, uint32_t count, Point to, const Wanted& wanted) {
  return Json{{"count", count},
              {"fill", true},
              {"past", past},
              {"rows", wanted_name(wanted)},
              {"to", json_of(to)}}
      .dump();
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
  }
  rows.wanted = parse_wanted(fields.text_or("rows", names::kAll));
  if (fields.has("to")) step.to = read_to(fields, config.layers);
  if (fields.has("can")) step.can = static_cast<int>(fields.integer("can", 0, config.layers));
  fields.finish();
  return step;
}

StepRequest parse_step(Query query, Bytes body, const ModelConfig& config) {
  check_query(query, {"past", "phase", "rows", "to"});
  StepRequest step;
  SequenceRows& rows = step.received.rows;
  // Never a default: a step without it would cut the session back to nothing.
  const auto past = parse_u64(value_of(query, "past").value_or(""), 0, kMostPast);
  if (!past) Fields::refuse("past", cat("expected a whole number in 0..", kMostPast));
  rows.past = static_cast<uint32_t>(*past);
  const std::string phase(wire_name(Phase::kPrompt)), all(names::kAll);
  rows.phase = parse_phase(value_of(query, "phase").value_or(phase));
  rows.wanted = parse_wanted(value_of(query, "rows").value_or(all));
  if (const auto to = value_of(query, "to")) step.to = parse_to(*to, config.layers);
  step.received.own(parse_hidden(body, config));
  return step;
}

std::string forward_json(const SequenceRows& rows) {
  return Json{
      {"rows", wanted_name(rows.wanted)}, {"to", json_of(rows.range.to)}, {"tokens", rows.tokens}}
      .dump();
}

std::string forward_query(const SequenceRows& rows) {
  const Point to = rows.range.to;
  return cat("from=", rows.range.from.block(), to == Point::head() ? "" : "&to=" + to.name(),
             "&rows=", wanted_name(rows.wanted));
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
  if (fields.has("tokens")) {
    request.received.own(
        fields.integers("tokens", 0, config.vocab - 1, static_cast<size_t>(config.context)));
    if (rows.count() == 0) Fields::refuse("tokens", "expected at least one");
  } else {
    request.received.own(encode(fields.text_or("prompt", ""), special));
  }
  if (fields.integer_or("from", 0, config.layers, 0) > 0) {
    Fields::refuse("from",
                   "over 0 only with `hidden`: send safetensors as application/octet-stream");
  }
  if (fields.has("to")) rows.range.to = read_to(fields, config.layers);
  rows.wanted = fields.has("rows") ? read_wanted(fields, config) : usual_wanted(rows.range.to);
  request.top = static_cast<int>(fields.integer_or("top", 1, config.vocab, 0));
  fields.finish();
  return checked(std::move(request));
}

ForwardRequest parse_forward(Query query, Bytes body, const ModelConfig& config) {
  ForwardRequest request;
  SequenceRows& rows = request.received.rows;
  check_query(query, {"from", "to", "rows", "top"});
  rows.range = parse_range(query, config.layers);
  rows.range.from = rows.range.from.block();  // hidden states at point 0, not tokens
  const auto wanted = value_of(query, "rows");
  rows.wanted = wanted ? parse_listed(*wanted) : usual_wanted(rows.range.to);
  if (const auto text = value_of(query, "top")) {
    const auto top = parse_u64(*text, 1, static_cast<uint64_t>(config.vocab));
    if (!top) Fields::refuse("top", cat("expected a whole number in 1..", config.vocab));
    request.top = static_cast<int>(*top);
  }
  request.received.own(parse_hidden(body, config));
  return checked(std::move(request));
}

StageRange parse_range(Query query, int layers) {
  StageRange range;
  if (const auto text = value_of(query, "from")) {
    const auto from = parse_u64(*text, 0, static_cast<uint64_t>(layers));
    if (!from) Fields::refuse("from", cat("expected 0..", layers));
    range.from = static_cast<int>(*from);
  }
  if (const auto text = value_of(query, "to")) range.to = parse_to(*text, layers);
  if (range.to < range.from) {
    Fields::refuse("to", cat("expected a point at or after ", range.from.block()));
  }
  return range;
}

std::string hidden_frame(const SequenceRows& rows) {
  return frame("hidden", rows.count(), rows.width, rows.hidden);
}

std::string_view result_name(Point to) { return to == Point::head() ? "logits" : "hidden"; }

}  // namespace split::wire
