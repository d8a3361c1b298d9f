// The goldens' answers as messages, as responses and to Ollama's clients: the same parts.
#include <gtest/gtest.h>

#include "goldens.h"

namespace split::test {
namespace {

using Ask = std::function<http::Reply(const char* path, const std::string& body)>;

Dict input_of(const std::string& arguments) { return Dict::parse(arguments, nullptr, false); }

// Messages

Ordered message_body(const GoldenCloud& golden, size_t i) {
  const ToolCase& one = golden.cases[i];
  Ordered body = {
      {"model", cat("case", i)},
      {"max_tokens", 1000},
      {"temperature", 0},
      {"messages", {{{"role", "user"}, {"content", {{{"type", "text"}, {"text", "hi"}}}}}}}};
  for (const auto& tool : one.json["tools"]) {
    const auto& function = tool["function"];
    body["tools"].push_back({{"name", function["name"]},
                             {"description", function["description"]},
                             {"input_schema", function["parameters"]}});
  }
  if (one.json.contains("tool_choice")) body["tool_choice"] = {{"type", one.json["tool_choice"]}};
  if (one.json.contains("parallel_tool_calls")) {
    body["tool_choice"] = {{"type", "auto"}, {"disable_parallel_tool_use", true}};
  }
  return body;
}

Dict parts_of_blocks(const Dict& message) {
  Dict parts = {{"content", ""}, {"reasoning_content", ""}, {"tool_calls", Dict::array()}};
  for (const Dict& block : message["content"]) {
    if (block["type"] == "text") {
      parts["content"] = parts["content"].get<std::string>() + block["text"].get<std::string>();
    } else if (block["type"] == "thinking") {
      parts["reasoning_content"] = block["thinking"];
    } else {
      EXPECT_TRUE(block["id"].get<std::string>().starts_with("toolu_"));
      parts["tool_calls"].push_back({{"name", block["name"]}, {"arguments", block["input"]}});
    }
  }
  const std::string content = parts["content"];
  if (content.starts_with(' ')) parts["content"] = content.substr(1);
  parts["finish_reason"] = message["stop_reason"] == "tool_use" ? "tool_calls" : "stop";
  return parts;
}

// A stream's events as the message that they make; their order is looked at.
Dict joined_message(const std::string& body) {
  Dict message, blocks = Dict::array();
  std::string last, partial;
  for (const std::string& text : events_of(body)) {
    const Dict event = Dict::parse(text);
    const std::string type = event["type"];
    if (type == "ping") continue;
    EXPECT_EQ(message.is_null(), type == "message_start");
    if (type == "message_start") {
      message = event["message"];
      EXPECT_EQ(message["stop_reason"], nullptr);
      EXPECT_GT(message["usage"]["input_tokens"].get<int>() +
                    message["usage"]["cache_read_input_tokens"].get<int>(),
                0);
    } else if (type == "content_block_start") {
      EXPECT_NE(last, "content_block_start");
      EXPECT_EQ(event["index"], blocks.size());
      blocks.push_back(event["content_block"]);
      partial.clear();
    } else if (type == "content_block_delta") {
      EXPECT_EQ(event["index"].get<size_t>() + 1, blocks.size());
      const Dict& delta = event["delta"];
      if (delta["type"] == "input_json_delta") {
        partial += delta["partial_json"].get<std::string>();
      } else {
        const char* name = delta["type"] == "text_delta" ? "text" : "thinking";
        blocks.back()[name] =
            blocks.back()[name].get<std::string>() + delta[name].get<std::string>();
      }
    } else if (type == "content_block_stop") {
      EXPECT_EQ(last, "content_block_delta") << "an empty block";
      if (blocks.back()["type"] == "tool_use") blocks.back()["input"] = input_of(partial);
    } else if (type == "message_delta") {
      message["stop_reason"] = event["delta"]["stop_reason"];
      EXPECT_TRUE(event["delta"].contains("stop_sequence"));
      message["usage"] = event["usage"];
    }
    last = type;
  }
  EXPECT_EQ(last, "message_stop");
  message["content"] = blocks;
  return message;
}

// A message's blocks without what differs from one answer to the next.
Dict without_ids(Dict blocks) {
  for (Dict& block : blocks) block.erase("id");
  return blocks;
}

void expect_messages(const GoldenCloud& golden, const Ask& ask, size_t i) {
  SCOPED_TRACE(golden.cases[i].name());
  Ordered body = message_body(golden, i);
  const http::Reply reply = ask("/v1/messages?beta=true", body.dump());
  ASSERT_EQ(reply.status, 200) << reply.body;
  const Dict whole = Dict::parse(reply.body);
  EXPECT_EQ(parts_of_blocks(whole), golden.expected(i));
  body["stream"] = true;
  const Dict stream = joined_message(ask("/v1/messages", body.dump()).body);
  EXPECT_EQ(parts_of_blocks(stream), golden.expected(i));
  EXPECT_EQ(without_ids(whole["content"]), without_ids(stream["content"]));  // their order, too
  body.erase("stream"), body.erase("max_tokens"), body.erase("temperature");
  const Dict count = Dict::parse(ask("/v1/messages/count_tokens", body.dump()).body);
  for (const Dict* one : {&whole, &stream}) {
    const Dict& usage = (*one)["usage"];
    EXPECT_EQ(count["input_tokens"].get<int>(),
              usage["input_tokens"].get<int>() + usage["cache_read_input_tokens"].get<int>());
    EXPECT_EQ(usage["output_tokens"], whole["usage"]["output_tokens"]);
  }
}

// Responses

void expect_responses(const GoldenCloud& golden, const Ask& ask, size_t i) {
  SCOPED_TRACE(golden.cases[i].name());
  const ToolCase& one = golden.cases[i];
  Ordered body = {{"model", cat("case", i)}, {"temperature", 0}, {"input", "hi"}};
  for (const char* key : {"tool_choice", "parallel_tool_calls"}) {
    if (one.json.contains(key)) body[key] = one.json[key];
  }
  for (const auto& tool : one.json["tools"]) {
    Ordered flat = {{"type", "function"}};
    for (const auto& [key, value] : tool["function"].items()) flat[key] = value;
    body["tools"].push_back(flat);
  }
  const auto parts = [&](const Dict& response) {
    Dict parts = {{"content", ""}, {"reasoning_content", ""}, {"tool_calls", Dict::array()}};
    for (const Dict& item : response["output"]) {
      if (item["type"] == "message") parts["content"] = item["content"][0]["text"];
      if (item["type"] == "reasoning") parts["reasoning_content"] = item["content"][0]["text"];
      if (item["type"] != "function_call") continue;
      EXPECT_FALSE(item["call_id"].get<std::string>().empty());
      parts["tool_calls"].push_back(
          {{"name", item["name"]}, {"arguments", input_of(item["arguments"])}});
    }
    const std::string content = parts["content"];
    if (content.starts_with(' ')) parts["content"] = content.substr(1);
    parts["finish_reason"] = golden.expected(i)["finish_reason"];
    return parts;
  };
  const http::Reply reply = ask("/v1/responses", body.dump());
  ASSERT_EQ(reply.status, 200) << reply.body;
  const Dict whole = Dict::parse(reply.body);
  EXPECT_EQ(parts(whole), golden.expected(i));
  EXPECT_EQ(whole["tools"].size(), body["tools"].size());
  body["stream"] = true;
  std::map<std::string, std::string> deltas;  // by item
  Dict last;
  for (const std::string& text : events_of(ask("/v1/responses", body.dump()).body)) {
    last = Dict::parse(text);
    if (last.contains("delta")) deltas[last["item_id"]] += last["delta"].get<std::string>();
  }
  EXPECT_EQ(last["type"], "response.completed");
  EXPECT_EQ(parts(last["response"]), golden.expected(i));
  for (const Dict& item : last["response"]["output"]) {
    const std::string all =
        item["type"] == "function_call" ? item["arguments"] : item["content"][0]["text"];
    EXPECT_EQ(deltas[item["id"]], all);
  }
}

// Ollama

void expect_ollama(const GoldenCloud& golden, const Ask& ask, size_t i) {
  SCOPED_TRACE(golden.cases[i].name());
  if (golden.cases[i].json.contains("tool_choice") ||
      golden.cases[i].json.contains("parallel_tool_calls")) {
    return;  // which it has no words for
  }
  Ordered body = {{"model", cat("case", i)},
                  {"messages", {{{"role", "user"}, {"content", "hi"}}}},
                  {"options", {{"temperature", 0}, {"repeat_penalty", 1}}},
                  {"tools", golden.cases[i].json["tools"]}};
  const http::Reply reply = ask("/api/chat", body.dump());
  ASSERT_EQ(reply.status, 200) << reply.body;
  Dict stream = {{"content", ""}, {"reasoning_content", ""}, {"tool_calls", Dict::array()}};
  const auto add = [&](Dict& parts, const Dict& message) {
    for (const auto& [from, to] :
         {std::pair("content", "content"), {"thinking", "reasoning_content"}}) {
      parts[to] = parts[to].get<std::string>() + message.value(from, "");
    }
    for (const Dict& one : message.value("tool_calls", Dict::array())) {
      parts["tool_calls"].push_back(one["function"]);
    }
  };
  std::istringstream lines(reply.body);
  bool done = false;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_FALSE(done);
    const Dict json = Dict::parse(line);
    done = json["done"];
    add(stream, json["message"]);
    EXPECT_EQ(json.value("done_reason", "stop"), "stop");
  }
  EXPECT_TRUE(done);
  body["stream"] = false;
  Dict whole = {{"content", ""}, {"reasoning_content", ""}, {"tool_calls", Dict::array()}};
  add(whole, Dict::parse(ask("/api/chat", body.dump()).body)["message"]);
  EXPECT_EQ(stream, whole);
  const std::string content = whole["content"];
  if (content.starts_with(' ')) whole["content"] = content.substr(1);
  whole["finish_reason"] = golden.expected(i)["finish_reason"];
  EXPECT_EQ(whole, golden.expected(i));
}

TEST(Families, TellWhatTheCloudSays) {
  GoldenCloud& golden = goldens();
  const Ask ask = [&](const char* path, const std::string& body) {
    return golden.cloud->ask().send("POST", path, body);
  };
  for (size_t i = 0; i < golden.cases.size(); ++i) expect_messages(golden, ask, i);
}

TEST(Families, TellWhatTheEdgeSays) {
  GoldenCloud& golden = goldens();
  for (size_t i = 0; i < golden.cases.size(); ++i) {
    EdgeServer edge(golden.edge(i, "1"));
    edge.ready();
    const Ask ask = [&](const char* path, const std::string& body) {
      return http::Client(edge.url()).request("POST", path, body, "application/json");
    };
    expect_messages(golden, ask, i);
    expect_responses(golden, ask, i);
    expect_ollama(golden, ask, i);
  }
}

class Messages : public testing::Test {
 protected:
  http::Reply ask(const Ordered& body, const char* path = "/v1/messages") {
    return golden.cloud->ask().send("POST", path, body.dump());
  }
  GoldenCloud& golden = goldens();
  Ordered body = message_body(golden, 0);
};

TEST_F(Messages, ThatMakeNoSenseAreRefusedInTheirShape) {
  const auto expect = [&](const std::function<void(Ordered&)>& change, const char* part) {
    Ordered changed = body;
    change(changed);
    const http::Reply reply = ask(changed);
    ASSERT_EQ(reply.status, 400) << changed;
    const Dict json = Dict::parse(reply.body);
    EXPECT_EQ(json["type"], "error");
    EXPECT_EQ(json["error"]["type"], "invalid_request_error");
    EXPECT_EQ(json["request_id"], *reply.headers.get("X-Request-Id"));
    const std::string message = json["error"]["message"];
    EXPECT_NE(message.find(part), message.npos) << message;
    EXPECT_EQ(message.find('\n'), message.npos);
  };
  const auto says = [](const Ordered& block, const char* role = "user") {
    return [=](Ordered& body) {
      body["messages"].push_back({{"role", role}, {"content", Ordered::array({block})}});
    };
  };
  expect([](Ordered& body) { body.erase("max_tokens"); }, "'max_tokens'");
  expect([](Ordered& body) { body.erase("messages"); }, "'messages'");
  expect([](Ordered& body) { body["messages"] = Ordered::array(); }, "'messages'");
  expect(says({{"type", "tool_result"}, {"content", "x"}}), "'tool_use_id'");
  expect(says({{"type", "image"}, {"source", 1}}), "'image'");
  expect(says({{"type", "document"}}), "'document'");
  expect(says({{"type", "tool_use"}, {"id", "a"}, {"name", "b"}}), "'tool_use'");
  expect([](Ordered& body) { body["tools"][0]["type"] = "web_search_20250305"; }, "web_search");
  expect([](Ordered& body) { body["mcp_servers"] = {1}; }, "'mcp_servers'");
  expect(
      [](Ordered& body) {
        body["tool_choice"] = {{"type", "tool"}, {"name", "nobody"}};
      },
      "nobody");
  expect([](Ordered& body) { body["tool_choice"] = {{"type", "some"}}; }, "'tool_choice'");
  expect([](Ordered& body) { body["tools"][0]["input_schema"] = 1; }, "'tools'");
  expect([](Ordered& body) { body["stop_sequences"] = 1; }, "'stop_sequences'");
  expect([](Ordered& body) { body["no_such_field"] = 1; }, "no_such_field");
  Ordered other = body;
  other["model"] = "nobody";
  const http::Reply none = ask(other);
  EXPECT_EQ(none.status, 404);
  EXPECT_EQ(Dict::parse(none.body)["error"]["type"], "not_found_error");
}

TEST_F(Messages, ABillingHeaderIsNoPrompt) {
  Ordered plain = body, billed = body;
  plain["system"] = "Be short.";
  billed["system"] = {
      {{"type", "text"}, {"text", "x-anthropic-billing-header: cc=1; cch=12345;"}},
      {{"type", "text"}, {"text", "Be short."}, {"cache_control", {{"type", "ephemeral"}}}}};
  for (Ordered* one : {&plain, &billed}) one->erase("max_tokens");
  const auto count = [&](const Ordered& asked) {
    return Dict::parse(ask(asked, "/v1/messages/count_tokens").body)["input_tokens"];
  };
  EXPECT_EQ(count(billed), count(plain));
  EXPECT_NE(count(billed), count(body));
}

TEST_F(Messages, AStopSequenceIsNamed) {
  size_t words = 0;
  while (golden.cases[words].name() != "qwen3: thought, then words") ++words;
  Ordered asked = message_body(golden, words);
  asked["stop_sequences"] = {"es"};
  const Dict answer = Dict::parse(ask(asked).body);
  EXPECT_EQ(answer["stop_reason"], "stop_sequence");
  EXPECT_EQ(answer["stop_sequence"], "es");
  EXPECT_EQ(answer["content"].back()["text"], "Y");
}

// Calls, results and thoughts go back in, results before the words beside them.
TEST_F(Messages, ATurnGoesBackIn) {
  body["messages"] = Ordered::parse(R"([
      {"role":"user","content":"one"},{"role":"user","content":"more"},
      {"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":""},
        {"type":"redacted_thinking","data":"x"},{"type":"text","text":"Look:"},
        {"type":"tool_use","id":"toolu_1","name":"lookup","input":{"word":"sea"}}]},
      {"role":"user","content":[{"type":"text","text":"and?"},
        {"type":"tool_result","tool_use_id":"toolu_1","content":[{"type":"text","text":"water"}]}]}])");
  body["system"] = "Be short.";
  body["max_tokens"] = 1;
  const http::Reply reply = ask(body);
  EXPECT_EQ(reply.status, 200) << reply.body;
}

TEST(MessagesKeys, AreThoseOfEveryRoute) {
  GoldenCloud& golden = goldens();
  cloud::TemporaryDir dir;
  const std::string key = "sk-test-0123456789abcdef0123456789abcdef";
  cloud::TestCloud guarded({(golden.dir.path / "case0").string()}, 64 << 20, {}, Profile::kF32,
                           [&](cloud::Cloud& cloud, http::Server::Options&) {
                             AtomicFile file(dir.path / "keys");
                             file.append(as_bytes_of("me:" + key + "\n"));
                             file.commit();
                             cloud.keys = serve::ApiKeys::read((dir.path / "keys").string());
                           });
  const std::string body = message_body(golden, 0).dump();
  const auto status = [&](const http::Headers& headers, const char* path = "/v1/messages") {
    return guarded.ask().send("POST", path, body, "application/json", headers).status;
  };
  EXPECT_EQ(status({{"x-api-key", key}}), 200);
  EXPECT_EQ(status({{"Authorization", "Bearer " + key}}), 200);
  EXPECT_EQ(status({{"Authorization", "Bearer wrong"}, {"x-api-key", key}}), 401);
  EXPECT_EQ(status({{"x-api-key", "wrong"}}), 401);
  const http::Reply none = guarded.ask().send("POST", "/v1/messages", body);
  EXPECT_EQ(none.status, 401);
  EXPECT_EQ(Dict::parse(none.body)["error"]["type"], "authentication_error");
}

}  // namespace
}  // namespace split::test
