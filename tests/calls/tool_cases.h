// The golden answers with calls of tools (tests/golden/tools), each with the template and the
// tokenizer of its family.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/resources/memory_budget.h"
#include "serve/calls/tools.h"
#include "text/form/text_form.h"

namespace split::test {

inline std::filesystem::path golden_dir() {
  return std::filesystem::path(SPLIT_SOURCE_DIR) / "tests/golden";
}

struct ToolCase {
  nlohmann::ordered_json json;

  std::string name() const { return text("template") + ": " + text("name"); }
  std::string text(const char* key) const { return json.at(key).get<std::string>(); }
  // Whether calls write texts by themselves, without their bounds.
  bool has_free_texts() const {
    return text("template").starts_with("tagged") || text("template") == "quoted";
  }
  std::string template_text() const {
    const auto dir = golden_dir() / (has_free_texts() ? "tools" : "models/chat");
    return read_file(dir / (text("template") + ".jinja"), 1 << 20);
  }
  ChatTemplate chat_template() const {
    return ChatTemplate(template_text(), {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  }
  // The folder of its tokenizer.json.
  std::filesystem::path tokenizer_dir() const {
    static const std::map<std::string, std::string> kOf = {
        {"qwen2", "bpe-qwen2"},     {"qwen3", "bpe-qwen2"},        {"llama3", "bpe-llama3"},
        {"mistral", "spm-mistral"}, {"gemma", "spm-gemma"},        {"zephyr", "spm-llama2"},
        {"tagged", "bpe-qwen2"},    {"tagged_thinks", "bpe-qwen2"}};
    if (text("template") == "quoted") return golden_dir() / "tools/quoted";
    return golden_dir() / "models/tokenizers" / kOf.at(text("template"));
  }
  // The request's form.
  AnswerForm form(const AnswerFormat& format) const {
    nlohmann::ordered_json body = {{"tools", json.at("tools")}};
    for (const char* key : {"tool_choice", "parallel_tool_calls"}) {
      if (json.contains(key)) body[key] = json[key];
    }
    wire::Fields fields(body.dump());
    MemoryShare memory;
    AnswerForm form;
    form.format = format;
    form.inside = text("template") == "tagged_thinks";
    serve::read_tools(fields, form, memory);
    return form;
  }
};

inline std::vector<ToolCase> tool_cases() {
  std::vector<ToolCase> cases;
  for (const char* name : {"tools/cases.json", "tools/tagged.json", "tools/quoted.json"}) {
    const std::string file = read_file(golden_dir() / name, 1 << 20);
    for (const auto& one : nlohmann::ordered_json::parse(file)) cases.push_back({one});
  }
  return cases;
}

// An answer's parts, as the golden has them.
struct SaidParts {
  std::string content, thought;
  std::vector<std::pair<std::string, std::string>> calls;

  void add(const TextForm::Pieces& pieces) {
    for (const TextForm::Piece& one : pieces) {
      if (one.part == TextPiece::kWords) content += one.bytes;
      if (one.part == TextPiece::kThought) thought += one.bytes;
      if (one.part == TextPiece::kName) calls.emplace_back(one.bytes, "");
      if (one.part == TextPiece::kArguments) calls.at(one.call).second += one.bytes;
    }
  }
  nlohmann::json json() const {
    nlohmann::json list = nlohmann::json::array();
    for (const auto& [name, arguments] : calls) {
      list.push_back({{"name", name}, {"arguments", nlohmann::json::parse(arguments)}});
    }
    return {{"content", content}, {"reasoning_content", thought}, {"tool_calls", list}};
  }
};

}  // namespace split::test
