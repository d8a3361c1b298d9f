#include "serve/openapi.h"

#include <algorithm>

#include "base/json.h"

namespace split::serve {
namespace {

Json schema_of(const http::RequestField& field) {
  Json schema = Json::object();
  if (!field.type.empty()) schema["type"] = field.type;
  if (field.type == "array") schema["items"] = Json::object();
  return schema;
}

Json parameter(const http::RequestField& field, std::string_view in) {
  Json json = {{"name", field.name},
               {"in", in},
               {"required", in == "path" || field.required},
               {"schema", schema_of(field)}};
  if (!field.about.empty()) json["description"] = field.about;
  return json;
}

Json parameters_of(const http::Route& route) {
  Json list = Json::array();
  for (size_t at = 0; (at = route.path.find('{', at)) != std::string_view::npos; ++at) {
    const size_t end = route.path.find('}', at);
    list.push_back(parameter({route.path.substr(at + 1, end - at - 1), "string", ""}, "path"));
  }
  for (const http::RequestField& field : route.query) list.push_back(parameter(field, "query"));
  return list;
}

Json body_of(const http::Route& route) {
  Json properties = Json::object(), required = Json::array(), choices = Json::array();
  for (const http::RequestField& field : route.body) {
    properties[std::string(field.name)] = schema_of(field);
    properties[std::string(field.name)]["description"] = field.about;
    if (field.required) required.push_back(field.name);
  }
  for (const std::string_view name : route.one_of) {
    choices.push_back({{"required", Json::array({name})}});
  }
  Json schema = {{"type", "object"}, {"properties", properties}, {"additionalProperties", false}};
  if (!required.empty()) schema["required"] = required;
  if (!choices.empty()) schema["oneOf"] = choices;
  Json content = {{std::string(route.body_type), {{"schema", schema}}}};
  for (const std::string_view type : route.other_body_types) {
    content[std::string(type)]["schema"] = {{"type", "string"}, {"format", "binary"}};
  }
  return {{"required", true}, {"content", content}};
}

Json responses_of(const http::Route& route) {
  const char* const schema = route.plain_errors   ? "#/components/schemas/PlainError"
                             : route.typed_errors ? "#/components/schemas/TypedError"
                                                  : "#/components/schemas/Error";
  const Json error = {{"application/json", {{"schema", {{"$ref", schema}}}}}};
  Json responses = Json::object();
  const auto add = [&](int status) {
    Json& json = responses[cat(status)];
    json["description"] = status < 400
                              ? "The request was done."
                              : "The request was refused or failed; error.message says why.";
    if (status >= 400) {
      json["content"] = error;
    } else if (!route.answers.empty()) {
      json["content"][std::string(route.answers)] = Json::object();
    }
  };
  for (const int status : kAnyStatuses) add(status);
  for (const int status : route.statuses) add(status);
  return responses;
}

Json error_schema() {
  const Json text = {{"type", "string"}}, perhaps = {{"type", "string"}, {"nullable", true}};
  return {{"type", "object"},
          {"required", Json::array({"error"})},
          {"properties",
           {{"error",
             {{"type", "object"},
              {"required", Json::array({"message", "type", "param", "code"})},
              {"properties",
               {{"message", text}, {"type", text}, {"param", perhaps}, {"code", text}}}}}}}};
}

Json plain_error_schema() {
  return {{"type", "object"},
          {"required", Json::array({"error"})},
          {"properties", {{"error", {{"type", "string"}}}}}};
}

Json typed_error_schema() {
  const Json text = {{"type", "string"}};
  return {{"type", "object"},
          {"required", Json::array({"type", "error"})},
          {"properties",
           {{"type", text},
            {"error", {{"type", "object"}, {"properties", {{"type", text}, {"message", text}}}}},
            {"request_id", text}}}};
}

// "put_v1_sessions_id"
std::string operation_id(const http::Route& route) {
  std::string id(route.method);
  for (const char c : route.path) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (plain) id += c;
    if (!plain && id.back() != '_') id += '_';
  }
  while (id.back() == '_') id.pop_back();
  if (route.path.size() > 1 && route.path.ends_with('/')) id += "_page";
  std::transform(id.begin(), id.end(), id.begin(), [](unsigned char c) { return std::tolower(c); });
  return id;
}

}  // namespace

std::string openapi_json(std::string_view title, std::string_view version,
                         std::span<const http::Route> routes) {
  Json paths = Json::object();
  for (const http::Route& route : routes) {
    std::string method(route.method);
    std::transform(method.begin(), method.end(), method.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    Json operation = {{"operationId", operation_id(route)},
                      {"summary", route.summary},
                      {"parameters", parameters_of(route)},
                      {"responses", responses_of(route)}};
    if (!route.body.empty()) operation["requestBody"] = body_of(route);
    paths[route.path][method] = std::move(operation);
  }
  return Json{{"openapi", "3.0.3"},
              {"info", {{"title", title}, {"version", version}}},
              {"paths", paths},
              {"components",
               {{"schemas",
                 {{"Error", error_schema()},
                  {"PlainError", plain_error_schema()},
                  {"TypedError", typed_error_schema()}}}}}}
             .dump({.indent = 1}) +
         "\n";
}

void add_routes(http::Router& router, std::string_view title, std::string_view version,
                std::vector<http::Route> routes, const std::vector<int>& refusals) {
  const auto text = std::make_shared<std::string>();
  routes.push_back(
      {.method = "GET",
       .path = "/openapi.json",
       .summary = "Returns this description.",
       .handler = [text](const http::Request&) { return http::Response::json(200, *text); }});
  for (http::Route& route : routes) {
    if (route.access == http::Access::kOpen) continue;
    route.statuses.insert(route.statuses.end(), refusals.begin(), refusals.end());
  }
  *text = openapi_json(title, version, routes);
  for (http::Route& route : routes) router.add(std::move(route));
}

}  // namespace split::serve
