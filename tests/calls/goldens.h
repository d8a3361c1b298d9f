// Models that say the golden answers, on a cloud that all tests of a program share.
#pragma once

#include "saying.h"

namespace split::test {

using Ordered = nlohmann::ordered_json;  // a schema's members have an order

inline Ordered request_of(const ToolCase& one) {
  Ordered body = {{"messages", {{{"role", "user"}, {"content", "hi"}}}}, {"temperature", 0}};
  for (const char* key : {"tools", "tool_choice", "parallel_tool_calls"}) {
    if (one.json.contains(key)) body[key] = one.json[key];
  }
  return body;
}

// Models that say the goldens' texts, a cloud that has them all, and their cases.
class GoldenCloud {
 public:
  GoldenCloud() {
    std::map<std::string, std::string> paths;
    for (const ToolCase& one : cases) {
      const std::string family = one.text("template");
      if (paths.contains(family)) continue;
      paths[family] = (dir.path / family).string();
      write_saying(paths[family], one, 1, "x");
    }
    std::vector<std::string> all;
    for (const auto& [family, path] : paths) all.push_back(path);
    cloud::TestCloud blank(all);
    std::vector<std::string> saying;
    for (size_t i = 0; i < cases.size(); ++i) {
      Ordered body = request_of(cases[i]);
      body["model"] = cases[i].text("template");
      body["max_tokens"] = 1;
      const Dict answer = cloud::json_of(blank.ask().post("/v1/chat/completions", body));
      prompts.push_back(answer["usage"]["prompt_tokens"]);
      saying.push_back((dir.path / cat("case", i)).string());
      write_saying(saying.back(), cases[i], prompts.back(), cases[i].text("says"));
    }
    cloud.emplace(saying);
  }
  Ordered request(size_t i) const {
    Ordered body = request_of(cases[i]);
    body["model"] = cat("case", i);
    return body;
  }
  // The parts that a client is to be told.
  Dict expected(size_t i) const {
    const auto& json = cases[i].json;
    return {{"content", json["content"]},
            {"reasoning_content", json["reasoning_content"]},
            {"tool_calls", json["tool_calls"]},
            {"finish_reason", json["finish_reason"]}};
  }

  // The arguments of an edge that runs one.
  std::vector<std::string> edge(size_t i, const char* cut) const {
    return {cat("--server=", cloud->here()), cat("--model=case", i), cat("--cut=", cut),
            cat("--cache=", (dir.path / "cache").string())};
  }

  const std::vector<ToolCase> cases = tool_cases();
  cloud::TemporaryDir dir;
  std::vector<size_t> prompts;
  std::optional<cloud::TestCloud> cloud;
};

inline GoldenCloud& goldens() {
  static ForAllTests<GoldenCloud> all;
  return all.get();
}

}  // namespace split::test
