// Holds a server's /openapi.json against what the server does: the same routes, the least request
// of each answered, required fields missed, unknown ones refused.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "http/client.h"
#include "serve/openapi.h"

namespace split::test {

inline std::string in_case(std::string text, int (*change)(int)) {
  for (char& c : text) c = static_cast<char>(change(static_cast<unsigned char>(c)));
  return text;
}

// True when one of these lists that it may answer so.
inline bool lists(std::span<const http::Route> routes, const std::string& method,
                  std::string_view path, int status) {
  return std::ranges::any_of(routes, [&](const http::Route& route) {
    const auto in = [&](const auto& list) {
      return std::find(std::begin(list), std::end(list), status) != std::end(list);
    };
    return route.method == (method == "HEAD" ? "GET" : method) && route.path == path &&
           (in(route.statuses) || in(serve::kAnyStatuses));
  });
}

// A receipt of the server's, for its audits.
inline nlohmann::json receipt_of(const http::Reply& completion) {
  return nlohmann::json::parse(completion.body).at("choices").at(0).at("receipt");
}
inline constexpr char kAsksReceipt[] = R"({"prompt":"a","max_tokens":1,"receipt":true})";

class OpenApiCheck {
 public:
  using Json = nlohmann::json;
  // Sends a request to a path with its braces filled.
  using Send = std::function<http::Reply(const std::string& method, const std::string& path,
                                         const std::string& body, const std::string& type)>;
  using PathOf = std::function<std::string(std::string)>;
  // `examples`: values of fields that the type alone does not give.
  OpenApiCheck(Json document, Send send, PathOf path_of, std::map<std::string, Json> examples = {})
      : document_(std::move(document)),
        send_(std::move(send)),
        path_of_(std::move(path_of)),
        examples_(std::move(examples)) {}

  void expect_routes(std::span<const http::Route> served) const {
    std::set<std::pair<std::string, std::string>> listed, there;
    std::set<std::string> ids;
    for_each([&](const std::string& method, const std::string& path, const Json& operation) {
      listed.emplace(in_case(method, std::toupper), path);
      EXPECT_TRUE(ids.insert(operation["operationId"]).second) << operation["operationId"];
      EXPECT_FALSE(operation["summary"].get<std::string>().empty()) << path;
    });
    for (const http::Route& route : served) there.emplace(route.method, route.path);
    EXPECT_EQ(listed, there);
    EXPECT_EQ(document_["openapi"], "3.0.3");
  }

  // Requests that delete come last.
  void expect_least_answered() const {
    for (const bool deletes : {false, true}) {
      for_each([&](const std::string& method, const std::string& path, const Json& operation) {
        if ((method == "delete") != deletes) return;
        const auto [type, schema] = body_of(operation);
        const http::Reply reply = send(method, path, type, least_body(schema));
        // The models of these tests rank nothing.
        if (path == "/v1/rerank") {
          EXPECT_NE(reply.body.find("\"no_rank\""), std::string::npos) << reply.body;
          return;
        }
        // One that only redirects, or says what was not built, has no good answer.
        bool good = false;
        for (const auto& [status, said] : operation["responses"].items()) {
          good = good || status.starts_with("2");
        }
        if (!good) return;
        EXPECT_LT(reply.status, 300) << method << " " << path << ": " << reply.body.substr(0, 300);
      });
    }
  }

  // Returns how many fields that were.
  size_t expect_required_refused() const {
    size_t fields = 0;
    for_each_body([&](const std::string& method, const std::string& path, const std::string& type,
                      const Json& schema) {
      for (const Json& field : schema.value("required", Json::array())) {
        Json body = least_body(schema);
        body.erase(field.get<std::string>());
        EXPECT_EQ(param_of(send(method, path, type, body)), field.get<std::string>()) << path;
        ++fields;
      }
      if (!schema.contains("oneOf")) return;
      EXPECT_EQ(send(method, path, type, Json::object()).status, 400) << path;
      ++fields;
    });
    return fields;
  }

  // Every field of a query is read, and no other is taken but by the paths `lax`. `least`: what
  // else a path's query needs, ending in "&". Returns how many fields those were.
  size_t expect_query_known_and_no_other(const std::map<std::string, std::string>& least,
                                         const std::set<std::string>& lax) const {
    size_t fields = 0;
    for_each([&](const std::string& method, const std::string& path, const Json& operation) {
      const auto at = least.find(path);
      const auto refused = [&](const std::string& name) {
        const std::string query = cat("?", at == least.end() ? "" : at->second, name, "=%21");
        return param_of(
            send_(in_case(method, std::toupper), path_of_(path) + query, "", file_type(operation)));
      };
      for (const Json& parameter : operation["parameters"]) {
        if (parameter["in"] != "query") continue;
        const std::string name = parameter["name"];
        EXPECT_EQ(refused(name), name) << path;
        if (!lax.contains(path)) {
          EXPECT_EQ(refused("no_such_field"), "no_such_field") << path;
        }
        ++fields;
      }
    });
    return fields;
  }

  void expect_fields_known_and_no_other() const {
    for_each_body([&](const std::string& method, const std::string& path, const std::string& type,
                      const Json& schema) {
      if (type != "application/json") return;
      std::set<std::string> one_of;
      for (const Json& choice : schema.value("oneOf", Json::array())) {
        one_of.insert(choice["required"][0].get<std::string>());
      }
      for (const auto& [field, described] : schema["properties"].items()) {
        if (described.value("type", "") == "object") continue;
        Json body = least_body(schema);
        for (const std::string& other : one_of) {
          if (one_of.contains(field)) body.erase(other);
        }
        body[field] = {{"not", "this"}};
        EXPECT_EQ(param_of(send(method, path, type, body)), field) << path;
      }
      Json body = least_body(schema);
      body["no_such_field"] = 1;
      EXPECT_EQ(param_of(send(method, path, type, body)), "no_such_field") << path;
    });
  }

 private:
  template <typename Test>
  void for_each(const Test& test) const {
    for (const auto& [path, operations] : document_["paths"].items()) {
      for (const auto& [method, operation] : operations.items()) test(method, path, operation);
    }
  }
  // Calls test(method, path, type, schema) for each operation with a body.
  template <typename Test>
  void for_each_body(const Test& test) const {
    for_each([&](const std::string& method, const std::string& path, const Json& operation) {
      const auto [type, schema] = body_of(operation);
      // A model that ranks nothing says so before it reads a body.
      if (!schema.empty() && path != "/v1/rerank") test(method, path, type, schema);
    });
  }
  // An object's, which is all of an operation's bodies that can be made from its description.
  static std::pair<std::string, Json> body_of(const Json& operation) {
    if (operation.contains("requestBody")) {
      for (const auto& [type, content] : operation["requestBody"]["content"].items()) {
        const Json& schema = content["schema"];
        if (schema["type"] == "object") return {type, schema};
      }
    }
    return {"application/json", Json::object()};
  }
  // The fields of the query where the body is a file; else those of JSON.
  static std::string file_type(const Json& operation) {
    if (operation.contains("requestBody")) {
      for (const auto& [type, content] : operation["requestBody"]["content"].items()) {
        if (content["schema"].value("format", "") == "binary") return type;
      }
    }
    return "application/json";
  }
  Json example(const std::string& name, const Json& schema) const {
    const auto at = examples_.find(name);
    if (at != examples_.end()) return at->second;
    const std::string type = schema.value("type", "string");
    if (type == "integer" || type == "number") return 0;
    if (type == "array") return Json::array({1});
    if (type == "boolean") return false;
    return "a";
  }
  // The least that an operation takes.
  Json least_body(const Json& schema) const {
    Json body = Json::object();
    const auto add = [&](const std::string& name) {
      body[name] = example(name, schema["properties"][name]);
    };
    for (const Json& name : schema.value("required", Json::array())) add(name);
    if (schema.contains("oneOf")) add(schema["oneOf"][0]["required"][0]);
    return body;
  }
  http::Reply send(const std::string& method, const std::string& path, const std::string& type,
                   const Json& body) const {
    std::string text = method == "get" || method == "delete" ? "" : body.dump();
    if (type != "application/json") {
      text.clear();
      for (const auto& [name, value] : body.items()) {
        text += cat(text.empty() ? "" : "&", name, "=",
                    value.is_string() ? value.get<std::string>() : value.dump());
      }
    }
    return send_(in_case(method, std::toupper), path_of_(path), text, type);
  }
  // The `param` of a refusal.
  static std::string param_of(const http::Reply& reply) {
    EXPECT_EQ(reply.status, 400) << reply.body.substr(0, 300);
    const Json json = Json::parse(reply.body, nullptr, false);
    if (!json.is_object() || !json.contains("error")) return "no error";
    const Json& error = json["error"];
    if (error.is_string() || !error.contains("param")) {  // "'field': what"
      const std::string text = error.is_string() ? error : error.value("message", Json(""));
      const size_t end = text.find('\'', 1);
      return text.starts_with('\'') && end != text.npos ? text.substr(1, end - 1) : text;
    }
    const Json& param = json["error"]["param"];
    return param.is_string() ? param.get<std::string>() : "";
  }

  const Json document_;
  const Send send_;
  const PathOf path_of_;
  const std::map<std::string, Json> examples_;
};

}  // namespace split::test
