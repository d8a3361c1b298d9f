#include "text/form/answer_form.h"

#include <algorithm>

#include "base/error.h"
#include "text/json/in_order.h"
#include "text/json/quoted.h"

namespace split {
namespace {

constexpr size_t kMostMarkBytes = 256;  // bytes of a mark in a template

[[noreturn]] void refuse_form(std::string_view what) {
  throw Error(ErrorKind::kInput, cat("'response_format': an answer_form: ", what),
              "response_format");
}

constexpr std::pair<const char*, AnswerForm::Choice> kFormChoices[] = {
    {"none", AnswerForm::Choice::kNone},
    {"auto", AnswerForm::Choice::kAuto},
    {"required", AnswerForm::Choice::kRequired}};

// The texts of a format, by their names in JSON.
struct NamedText {
  const char* name;
  std::string* text;
};
std::vector<NamedText> form_texts(AnswerFormat& format) {
  return {{"opens", &format.opens},
          {"middle", &format.middle},
          {"closes", &format.closes},
          {"separator", &format.separator},
          {"list_opens", &format.list.opens},
          {"list_closes", &format.list.closes},
          {"id_opens", &format.id.opens},
          {"id_closes", &format.id.closes},
          {"thought_opens", &format.thought.opens},
          {"thought_closes", &format.thought.closes}};
}
// The texts around tagged arguments.
std::vector<NamedText> tag_texts(AnswerFormat& format) {
  return {{"argument_opens", &format.argument.opens},
          {"argument_middle", &format.argument_middle},
          {"argument_closes", &format.argument.closes}};
}

const Json& form_member(const Json& json, const char* name) {
  const Json* const found = json.find(name);
  if (found == nullptr) refuse_form(cat("'", name, "' is missing"));
  return *found;
}

std::string form_text(const Json& json, const char* name, size_t most) {
  const Json& value = form_member(json, name);
  if (!value.is_string() || value.text().size() > most) {
    refuse_form(cat("'", name, "': expected text of at most ", most, " bytes"));
  }
  return value.text();
}

bool form_flag(const Json& json, const char* name) {
  const Json& value = form_member(json, name);
  if (!value.is_boolean()) refuse_form(cat("'", name, "': expected true or false"));
  return value.get<bool>();
}

// Removes parts of a schema that bound no text.
std::string lean(const std::string& schema) {
  if (schema.empty()) return schema;
  return schema_in_order(parse_json(schema, AnswerForm::kMostDepth, "a schema"));
}

}  // namespace

Json AnswerForm::to_json() const {
  Json json = Json::object();
  if (!format.thinks() && !calls()) {
    const bool any = !schema || schema->empty();
    json["type"] = any ? "json_object" : "json_schema";
    if (!any) json["json_schema"] = Json{{"schema", lean(*schema)}};
    return json;
  }
  json["type"] = "answer_form";
  AnswerFormat copy = format;
  for (const NamedText& one : form_texts(copy)) json[one.name] = std::move(*one.text);
  const bool tagged = format.calls == AnswerFormat::Calls::kTagged;
  json["tagged"] = tagged;
  if (tagged) {
    for (const NamedText& one : tag_texts(copy)) json[one.name] = std::move(*one.text);
  }
  if (!format.quote.empty()) json["quote"] = format.quote;
  json["one_call"] = format.one_call;
  json["inside"] = inside;
  json["parallel"] = parallel;
  json["choice"] =
      std::ranges::find(kFormChoices, choice, &std::pair<const char*, Choice>::second)->first;
  Json list = Json::array();
  for (const Tool& one : tools) {
    list.push_back({{"name", one.name}, {"parameters", lean(one.parameters)}});
  }
  json["tools"] = std::move(list);
  if (schema) json["schema"] = lean(*schema);
  return json;
}

AnswerForm AnswerForm::read(const Json& json) {
  AnswerForm form;
  for (const NamedText& one : form_texts(form.format))
    *one.text = form_text(json, one.name, kMostMarkBytes);
  form.format.calls =
      form_flag(json, "tagged") ? AnswerFormat::Calls::kTagged : AnswerFormat::Calls::kJson;
  if (form.format.calls == AnswerFormat::Calls::kTagged) {
    for (const NamedText& one : tag_texts(form.format))
      *one.text = form_text(json, one.name, kMostMarkBytes);
  } else if (json.contains("quote")) {
    form.format.calls = AnswerFormat::Calls::kQuoted;
    form.format.quote = form_text(json, "quote", kMostMarkBytes);
    if (!is_quote(form.format.quote)) refuse_form("'quote': expected a tag");
  }
  form.format.one_call = form_flag(json, "one_call");
  form.inside = form_flag(json, "inside");
  form.parallel = form_flag(json, "parallel");
  const std::string choice = form_text(json, "choice", kMostMarkBytes);
  const auto known =
      std::ranges::find_if(kFormChoices, [&](const auto& one) { return choice == one.first; });
  if (known == std::end(kFormChoices)) refuse_form("'choice': expected none, auto or required");
  form.choice = known->second;
  const Json& tools = form_member(json, "tools");
  if (!tools.is_array() || tools.size() > kMostTools) {
    refuse_form(cat("'tools': expected a list of at most ", kMostTools));
  }
  size_t bytes = 0;
  for (const Json& one : tools) {
    Tool tool{form_text(one, "name", kMostName), form_text(one, "parameters", kMostBytes)};
    bytes += tool.parameters.size();
    const bool again = std::ranges::find(form.tools, tool.name, &Tool::name) != form.tools.end();
    if (tool.name.empty() || again) refuse_form("'tools': expected names, each once");
    form.tools.push_back(std::move(tool));
  }
  if (bytes > kMostBytes) refuse_form(cat("'tools': expected at most ", kMostBytes, " bytes"));
  if (json.contains("schema")) form.schema = form_text(json, "schema", kMostBytes);
  const AnswerFormat& format = form.format;
  if (format.thought.opens.empty() != format.thought.closes.empty() ||
      (form.inside && !format.thinks())) {
    refuse_form("'thought_opens' and 'thought_closes': expected both or neither");
  }
  if (form.calls() && (form.tools.empty() || format.middle.empty() == format.quote.empty() ||
                       (format.opens.empty() && format.list.opens.empty()))) {
    refuse_form("expected tools, and texts around their calls");
  }
  if (form.calls() && format.calls == AnswerFormat::Calls::kTagged && !format.has_tags()) {
    refuse_form("'argument_closes': expected a tag");
  }
  return form;
}

}  // namespace split
