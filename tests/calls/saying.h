// A model that says a given text, whatever it is asked (tests/golden/tools/README.md), and an
// answer of a chat as one value, whole and streamed.
#pragma once

#include <filesystem>
#include <random>

#include "calls/tool_cases.h"
#include "support/cloud_fixture.h"
#include "support/edge_server.h"

namespace split::test {

using Dict = nlohmann::json;

// The tokens of `says` behind a prompt of `prompt` tokens, and the end of turn behind them.
inline void write_saying(const std::filesystem::path& dir, const ToolCase& one, size_t prompt,
                         const std::string& says) {
  namespace fs = std::filesystem;
  constexpr int64_t kWidth = 64, kContext = 4096;
  const auto write = [&](const char* name, const std::string& text) {
    AtomicFile file(dir / name);
    file.append(as_bytes_of(text));
    file.commit();
  };
  fs::create_directories(dir);
  fs::copy(one.tokenizer_dir() / "tokenizer.json", dir / "tokenizer.json",
           fs::copy_options::overwrite_existing);
  write("tokenizer_config.json", R"({"bos_token":"<s>","eos_token":"</s>"})");
  if (one.text("template") != "none") write("chat_template.jinja", one.template_text());
  const auto tokenizer = load_tokenizer(dir);
  const int64_t vocab = tokenizer->size() + 1;  // the last one ends a turn
  std::vector<int32_t> ids = tokenizer->encode(says);
  ids.push_back(static_cast<int32_t>(vocab) - 1);
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> wte(static_cast<size_t>(vocab * kWidth)),
      wpe(static_cast<size_t>(kContext * kWidth));
  for (size_t row = 0; row < wte.size(); row += kWidth) {
    float sum = 0;
    for (size_t i = 0; i < kWidth; ++i) wte[row + i] = normal(random);
    for (size_t i = 0; i < kWidth; ++i) sum += wte[row + i] * wte[row + i];
    for (size_t i = 0; i < kWidth; ++i) wte[row + i] /= std::sqrt(sum);
  }
  for (size_t position = 0; position < kContext; ++position) {
    const size_t behind = position + 1 - std::min(prompt, position + 1);
    const int32_t id = ids[std::min(behind, ids.size() - 1)];
    for (size_t i = 0; i < kWidth; ++i) {
      wpe[position * kWidth + i] = 12 * wte[static_cast<size_t>(id) * kWidth + i];
    }
  }
  const std::vector<float> zeros(4 * kWidth * kWidth), tens(kWidth, 10);
  std::vector<NamedTensor> tensors;
  const auto add = [&](const char* name, std::vector<int64_t> dims, std::span<const float> values) {
    size_t count = 1;
    for (const int64_t d : dims) count *= static_cast<size_t>(d);
    tensors.push_back({name, {DType::kF32, std::move(dims), std::as_bytes(values.first(count))}});
  };
  add("wte.weight", {vocab, kWidth}, wte);
  add("wpe.weight", {kContext, kWidth}, wpe);
  for (const char* name :
       {"h.0.ln_1.weight", "h.0.ln_1.bias", "h.0.attn.c_proj.bias", "h.0.ln_2.weight",
        "h.0.ln_2.bias", "h.0.mlp.c_proj.bias", "ln_f.bias"}) {
    add(name, {kWidth}, zeros);
  }
  add("h.0.attn.c_attn.weight", {kWidth, 3 * kWidth}, zeros);
  add("h.0.attn.c_attn.bias", {3 * kWidth}, zeros);
  add("h.0.attn.c_proj.weight", {kWidth, kWidth}, zeros);
  add("h.0.mlp.c_fc.weight", {kWidth, 4 * kWidth}, zeros);
  add("h.0.mlp.c_fc.bias", {4 * kWidth}, zeros);
  add("h.0.mlp.c_proj.weight", {4 * kWidth, kWidth}, zeros);
  add("ln_f.weight", {kWidth}, tens);
  write("model.safetensors", write_safetensors(tensors));
  write("config.json", Dict{{"model_type", "gpt2"},
                            {"n_layer", 1},
                            {"n_head", 1},
                            {"n_embd", kWidth},
                            {"vocab_size", vocab},
                            {"n_positions", kContext},
                            {"n_ctx", kContext},
                            {"layer_norm_epsilon", 1e-5},
                            {"activation_function", "gelu_new"},
                            {"eos_token_id", vocab - 1}}
                           .dump());
  write("generation_config.json", Dict{{"eos_token_id", vocab - 1}}.dump());
}

// The first choice of a chat's answer, with calls' arguments as text and without ids.
struct ChatAnswer {
  std::string content, thought, finish;
  Dict calls = Dict::array();  // of {"name", "arguments"}
  std::vector<std::string> ids;
  Dict usage;

  Dict parts() const {
    Dict parsed = Dict::array();
    for (const Dict& one : calls) {
      parsed.push_back(
          {{"name", one["name"]},
           {"arguments", Dict::parse(one["arguments"].get<std::string>(), nullptr, false)}});
    }
    return {{"content", content},
            {"reasoning_content", thought},
            {"tool_calls", parsed},
            {"finish_reason", finish}};
  }
};

inline ChatAnswer whole_of(const Dict& json) {
  ChatAnswer answer;
  const Dict& choice = json["choices"][0];
  const Dict& message = choice["message"];
  answer.content = message["content"];
  answer.thought = message.value("reasoning_content", "");
  answer.finish = choice["finish_reason"];
  answer.usage = json["usage"];
  EXPECT_FALSE(message.contains("tool_calls") && message["tool_calls"].empty());
  for (const Dict& one : message.value("tool_calls", Dict::array())) {
    EXPECT_EQ(one["type"], "function");
    answer.ids.push_back(one["id"]);
    answer.calls.push_back(one["function"]);
  }
  return answer;
}

// A stream joined; each call's first delta says what it is, and later ones its arguments alone.
inline ChatAnswer joined(const std::string& body) {
  ChatAnswer answer;
  const std::vector<std::string> events = events_of(body);
  EXPECT_FALSE(events.empty());
  EXPECT_EQ(events.empty() ? "" : events.back(), "[DONE]") << body.substr(0, 500);
  for (const std::string& event : events) {
    if (event == "[DONE]") break;
    const Dict json = Dict::parse(event);
    if (json.contains("usage") && !json["usage"].is_null()) answer.usage = json["usage"];
    if (json["choices"].empty()) continue;
    const Dict& choice = json["choices"][0];
    const Dict& delta = choice["delta"];
    EXPECT_TRUE(answer.finish.empty()) << "behind the end: " << event;
    answer.content += delta.value("content", "");
    answer.thought += delta.value("reasoning_content", "");
    if (!choice["finish_reason"].is_null()) answer.finish = choice["finish_reason"];
    for (const Dict& one : delta.value("tool_calls", Dict::array())) {
      const size_t index = one["index"];
      if (one.contains("id")) {
        EXPECT_EQ(index, answer.calls.size());
        EXPECT_EQ(one["type"], "function");
        answer.ids.push_back(one["id"]);
        answer.calls.push_back(one["function"]);
      } else {
        EXPECT_EQ(index + 1, answer.calls.size());
        EXPECT_FALSE(one["function"].contains("name"));
        std::string& all = answer.calls.at(index)["arguments"].get_ref<std::string&>();
        all += one["function"]["arguments"].get<std::string>();
      }
    }
  }
  return answer;
}

}  // namespace split::test
