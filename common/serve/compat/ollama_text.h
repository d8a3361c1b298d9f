// A text or a chat's answer in Ollama's format: lines of JSON.
#pragma once

#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include "base/resources/clock.h"
#include "serve/compat/response_adapter.h"

namespace split::serve {

inline std::string utc(std::time_t seconds) {
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

inline std::string now() { return utc(std::time(nullptr)); }

inline int64_t ns(Clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
}

// A generated text or a chat's answer.
class OllamaText : public ResponseAdapter {
 public:
  OllamaText(std::string model, bool chat) : model_(std::move(model)), chat_(chat) {}

  std::string whole(const Json& answer) override {
    take(answer);
    return last(text_of(answer), thought_of(answer)).dump() + "\n";
  }
  http::Events event(const Json& event) override {
    if (const Json* const error = event.find("error")) {
      return line({{"error", error->at("message")}});
    }
    const std::string text = text_of(event), thought = thought_of(event);
    take(event);
    if (text.empty() && thought.empty()) return {};
    if (!first_) first_ = Clock::now();
    Json json = said(text, thought);
    json["done"] = false;
    return line(json);
  }
  // Sends calls whole, before the end.
  http::Events end() override {
    http::Events out;
    if (!calls_.empty()) {
      Json json = said("");
      json["message"]["tool_calls"] = called();
      json["done"] = false;
      out = line(json);
      calls_.clear();
    }
    return out + line(last(""));
  }
  std::string_view type() const override { return "application/x-ndjson"; }

  // Answers an empty request: the model is loaded.
  std::string loaded() {
    Json json = said("");
    json["done"] = true;
    json["done_reason"] = "load";
    return json.dump() + "\n";
  }

 private:
  static http::Events line(const Json& json) { return {{json.dump(), {}, true}}; }

  Json said(const std::string& text, const std::string& thought = {}) const {
    Json json = {{"model", model_}, {"created_at", now()}};
    if (chat_) {
      json["message"] = {{"role", "assistant"}, {"content", text}};
      if (!thought.empty()) json["message"]["thinking"] = thought;
    } else {
      json["response"] = text;
    }
    return json;
  }

  void take(const Json& answer) {
    if (!model_.starts_with(answer["model"].text())) model_ = answer["model"].text();
    const std::string reason = finish_reason_of(answer);
    if (!reason.empty()) reason_ = reason == "tool_calls" ? "stop" : reason;
    for (ToldCall& one : calls_of(answer)) {
      if (!one.name.empty())
        calls_.push_back(std::move(one));
      else if (one.index < calls_.size())
        calls_[one.index].arguments += one.arguments;
    }
    const Json* const usage = answer.find("usage");
    if (usage == nullptr || usage->is_null()) return;
    usage_ = *usage;
    const Json* const cost = usage->find("splitcompute");
    if (first_ || cost == nullptr) return;
    const Json* const ms = cost->find("time_to_first_token_ms");
    if (ms == nullptr || !ms->is_number()) return;
    first_ = start_ + std::chrono::duration_cast<Clock::duration>(
                          std::chrono::duration<double, std::milli>(ms->get<double>()));
  }

  Json called() const {
    Json list = Json::array();
    for (const ToldCall& one : calls_) {
      list.push_back(
          {{"function", {{"name", one.name}, {"arguments", arguments_object(one.arguments)}}}});
    }
    return list;
  }

  Json last(const std::string& text, const std::string& thought = {}) const {
    const auto count = [&](const char* name) -> Json {
      const Json* const found = usage_.find(name);
      return found == nullptr ? Json(0) : *found;
    };
    const Clock::time_point end = Clock::now(), first = std::min(first_.value_or(end), end);
    Json json = said(text, thought);
    if (!calls_.empty()) json["message"]["tool_calls"] = called();
    json["done"] = true;
    json["done_reason"] = reason_;
    json["total_duration"] = ns(end - start_);
    json["load_duration"] = 0;
    json["prompt_eval_count"] = count("prompt_tokens");
    json["prompt_eval_duration"] = ns(first - start_);
    json["eval_count"] = count("completion_tokens");
    json["eval_duration"] = ns(end - first);
    return json;
  }

  std::string model_;  // the name asked for, perhaps with a tag, unless another one answers
  const bool chat_;
  const Clock::time_point start_ = Clock::now();
  std::optional<Clock::time_point> first_;
  std::string reason_ = "stop";
  std::vector<ToldCall> calls_;
  Json usage_ = Json::object();
};

}  // namespace split::serve
