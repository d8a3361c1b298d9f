// Exchanges of the programs at an earlier revision (tests/golden/exchanges/record.py):
// new ones must answer it alike and understand it.
#pragma once

#include <nlohmann/json.hpp>
#include <regex>
#include <string>

#include "base/bytes.h"
#include "http/client.h"
#include "support/golden_values.h"
#include "wire/protocol.h"

namespace split::test {

using Json = nlohmann::json;

inline Json recorded(const std::string& name) {
  return Json::parse(read_file(source("tests/golden/exchanges/" + name + ".json"), 1 << 20));
}

// The body of a request or of an answer.
inline std::string recorded_body(const Json& said) {
  if (said.contains("hidden")) {
    const auto rows = said["hidden"][0].get<uint32_t>(),
               columns = said["hidden"][1].get<uint32_t>();
    std::vector<float> values(size_t{rows} * columns);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(static_cast<int>(i * 37 % 101) - 50) / 64;
    }
    return wire::frame("hidden", rows, columns, values);
  }
  if (!said.contains("body_hex")) return said.value("body", "");
  const std::string hex = said["body_hex"];
  std::string bytes;
  for (size_t at = 0; at < hex.size(); at += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(at, 2), nullptr, 16));
  }
  return bytes;
}

// Zeros for what differs from run to run, and nothing for what was not told when it was recorded.
inline std::string without_what_varies(std::string body) {
  static const std::pair<std::regex, const char*> kVaries[] = {
      {std::regex("\"id\":\"[0-9a-f]{32}\""), "\"id\":\"00000000000000000000000000000000\""},
      {std::regex("\"id\":\"cmpl-[^\"]*\""), "\"id\":\"\""},
      {std::regex("\"created\":[0-9]+"), "\"created\":0"},
      {std::regex("\"prompt_tokens_details\":\\{\"cached_tokens\":[0-9]+\\},"), ""},  // came later
      {std::regex("\"(queue|compute)_ms\":[-+.0-9e]+"), "\"$1_ms\":0"},
      // Members of a model's description, and of one in a list, that came later: those who do not
      // know them pass over them.
      {std::regex("\"splitcompute\",\"profile\":\"[^\"]*\""), "\"splitcompute\""},
      {std::regex("\"bits\":\"[^\"]*\","), ""},
      {std::regex("\"features\":\\[[^\\]]*\\],"), ""},
      {std::regex("\"phases_alike\":(true|false),"), ""},
      {std::regex("\"architecture\":\"[^\"]*\","), ""},
      {std::regex("\"chat\":(null|\\{[^}]*\\}),"), ""},
      {std::regex("\"context\":[0-9]+,"), ""},
      {std::regex("\"dimensions\":[0-9]+,"), ""},
      {std::regex("\"kind\":\"[^\"]*\","), ""},
      {std::regex("\"max_context\":[0-9]+,"), ""},
      // And of a session's.
      {std::regex("\"share_ms\":[-+.0-9e]+,"), ""},
      // Files that it lists now, too, and what it says of each beside its name.
      {std::regex("\\{\"bytes\":[0-9]+,\"name\":(\"[^\"]*\"),\"sha256\":\"[0-9a-f]{64}\"\\}"),
       "$1"},
      {std::regex(",\"(tokenizer_config|generation_config)\\.json\""), ""},
      {std::regex("\"pooling\":\\{[^}]*\\},"), ""},
      {std::regex("\"prompts\":\\[[^\\]]*\\],"), ""},
      {std::regex(",\"stops\":\\[[^\\]]*\\]"), ""},
  };
  for (const auto& [what, zeros] : kVaries) body = std::regex_replace(body, what, zeros);
  return body;
}

// Without an error's message, which is for people and may be put better.
inline Json without_message(const std::string& body) {
  Json json = Json::parse(body, nullptr, false);
  if (json.is_object() && json.contains("error")) json["error"].erase("message");
  return json;
}

}  // namespace split::test
