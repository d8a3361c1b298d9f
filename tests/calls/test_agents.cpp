// Requests of the shape that agents make, written here: Codex's, opencode's and Qwen Code's. The
// first one is answered by a call of a tool, and the next one, which has the result, by words.
#include <gtest/gtest.h>

#include "goldens.h"

namespace split::test {
namespace {

const char* const kCommand = "cat weather.txt";

Ordered run_tool(const char* name, const char* argument) {
  return {{"type", "function"},
          {"name", name},
          {"description", "Runs a command, and returns what it prints."},
          {"parameters",
           {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
            {"type", "object"},
            {"properties",
             {{argument, {{"type", "string"}, {"description", "The command."}}},
              {"timeout",
               {{"type", "integer"},
                {"exclusiveMinimum", 0},
                {"maximum", 9007199254740991},
                {"description", "In milliseconds."}}}}},
            {"required", {argument}}}}};
}

Ordered nested(Ordered flat) {
  flat.erase("type");
  return {{"type", "function"}, {"function", flat}};
}

std::string call_of(const char* name, const char* argument) {
  return cat("<tool_call>\n{\"name\": \"", name, "\", \"arguments\": {\"", argument, "\": \"",
             kCommand, "\"}}\n</tool_call>");
}

// One model for each thing to say, behind a prompt that is as long as the request's.
class Agents : public testing::Test {
 protected:
  // The answer to `body` at `path`, streamed as agents want it, of a model that says so.
  http::Reply ask(const char* path, const Ordered& body, const std::string& says) {
    const std::string model = body["model"];
    write_saying(dir_.path / "blank" / model, family_, 1, "x");
    const Dict counted = Dict::parse(post(path, body, dir_.path / "blank" / model, false).body);
    const Dict& usage = counted["usage"];
    const size_t prompt =
        usage.value(usage.contains("input_tokens") ? "input_tokens" : "prompt_tokens", size_t{0});
    write_saying(dir_.path / "says" / model, family_, prompt, says);
    return post(path, body, dir_.path / "says" / model, true);
  }

 private:
  http::Reply post(const char* path, Ordered body, const std::filesystem::path& model,
                   bool stream) {
    cloud::TestCloud cloud({model.string()});
    EdgeServer edge({cat("--server=", cloud.here()), "--cut=1",
                     cat("--cache=", (dir_.path / "cache").string())});
    edge.ready();
    body["temperature"] = 0;  // agents leave it to the server
    if (!stream) body.erase("stream"), body.erase("stream_options");
    const http::Reply reply =
        http::Client(edge.url()).request("POST", path, body.dump(), "application/json");
    EXPECT_EQ(reply.status, 200) << reply.body;
    return reply;
  }

  cloud::TemporaryDir dir_;
  const ToolCase family_ = tool_cases()[0];
};

TEST_F(Agents, CodexsFirstRequestIsACallAndTheNextOneWords) {
  const auto message = [](const char* role, const char* text) {
    return Ordered{{"type", "message"},
                   {"id", cat("msg_", text)},
                   {"role", role},
                   {"content", {{{"type", "input_text"}, {"text", text}}}}};
  };
  Ordered tool = run_tool("exec_command", "cmd"), spawn = run_tool("spawn_agent", "task");
  tool["strict"] = spawn["strict"] = false;
  Ordered body = {
      {"model", "codex"},
      {"stream", true},
      {"input",
       {message("developer", "You are a coding agent."), message("developer", "Skills: none."),
        message("user", "<environment_context/>"), message("user", "How is the weather?")}},
      {"tools",
       {tool,
        {{"type", "namespace"},
         {"name", "agents"},
         {"description", "Other agents."},
         {"tools", {spawn}}},
        {{"type", "web_search"}, {"external_web_access", false}}}},
      {"tool_choice", "auto"},
      {"parallel_tool_calls", true},
      {"reasoning", {{"summary", "auto"}}},
      {"store", false},
      {"include", {"reasoning.encrypted_content"}},
      {"prompt_cache_key", "01a226b0"},
      {"client_metadata", {{"x-codex-installation-id", "6d6739e6"}}}};
  // The items as Codex takes them: each when it is done.
  const auto items = [](const http::Reply& reply) {
    EXPECT_EQ(reply.headers.get("Split-Tools-Left-Out"), "namespace, web_search");
    Dict items = Dict::array();
    const std::vector<std::string> events = events_of(reply.body);
    for (const std::string& text : events) {
      const Dict event = Dict::parse(text);
      if (event["type"] == "response.output_item.done") items.push_back(event["item"]);
    }
    EXPECT_EQ(Dict::parse(events.back())["type"], "response.completed");
    return items;
  };
  const Dict first = items(ask("/v1/responses", body, call_of("exec_command", "cmd")));
  ASSERT_EQ(first.size(), 1u) << first;
  EXPECT_EQ(first[0]["type"], "function_call");
  EXPECT_EQ(first[0]["name"], "exec_command");
  EXPECT_EQ(Dict::parse(first[0]["arguments"].get<std::string>()), (Dict{{"cmd", kCommand}}));
  body["input"].push_back(Ordered::parse(first[0].dump()));
  body["input"].push_back({{"type", "function_call_output"},
                           {"id", "fco_01a226cc"},
                           {"call_id", first[0]["call_id"]},
                           {"output", "Process exited with code 0\nOutput:\nsunny\n"}});
  const Dict last = items(ask("/v1/responses", body, "It is sunny."));
  ASSERT_EQ(last.size(), 1u) << last;
  EXPECT_EQ(last[0]["content"][0]["text"], "It is sunny.");
}

// The two requests over a chat, of which `body` is the first.
class AgentsOfChats : public Agents {
 protected:
  void expect_call_and_words(Ordered body, const char* name, const Ordered& result) {
    constexpr const char* kPath = "/v1/chat/completions";
    const ChatAnswer first = joined(ask(kPath, body, call_of(name, "command")).body);
    EXPECT_EQ(first.finish, "tool_calls");
    ASSERT_EQ(first.calls.size(), 1u);
    EXPECT_EQ(first.calls[0]["name"], name);
    const std::string arguments = first.calls[0]["arguments"];
    EXPECT_EQ(Dict::parse(arguments), (Dict{{"command", kCommand}}));
    EXPECT_GT(first.usage["prompt_tokens"], 0);
    const Ordered function = {{"name", name}, {"arguments", arguments}};
    body["messages"].push_back(
        {{"role", "assistant"},
         {"content", ""},
         {"tool_calls",
          Ordered::array({{{"id", first.ids[0]}, {"type", "function"}, {"function", function}}})}});
    body["messages"].push_back(
        {{"role", "tool"}, {"tool_call_id", first.ids[0]}, {"content", result}});
    const ChatAnswer last = joined(ask(kPath, body, "It is sunny.").body);
    EXPECT_EQ(last.finish, "stop");
    EXPECT_EQ(last.content, "It is sunny.");
  }
};

TEST_F(AgentsOfChats, OpencodesFirstRequestIsACallAndTheNextOneWords) {
  Ordered body = {
      {"model", "opencode"},
      {"max_tokens", 64},
      {"messages",
       {{{"role", "system"}, {"content", "You are an interactive CLI tool."}},
        {{"role", "user"}, {"content", "How is the weather?"}}}},
      {"tools", {nested(run_tool("bash", "command")), nested(run_tool("read", "path"))}},
      {"tool_choice", "auto"},
      {"stream", true},
      {"stream_options", {{"include_usage", true}}}};
  expect_call_and_words(body, "bash", "sunny, 21 degrees\n");
  // Its request for a title, which has no tools.
  body.erase("tools"), body.erase("tool_choice");
  const ChatAnswer title = joined(ask("/v1/chat/completions", body, "The weather").body);
  EXPECT_EQ(title.content, "The weather");
}

TEST_F(AgentsOfChats, QwenCodesFirstRequestIsACallAndTheNextOneWords) {
  const auto text = [](const char* words) {
    return Ordered::array({{{"type", "text"}, {"text", words}}});
  };
  Ordered body = {{"model", "qwen"},
                  {"messages",
                   {{{"role", "system"}, {"content", "You are an interactive CLI agent."}},
                    {{"role", "user"}, {"content", text("We are setting up the context.")}},
                    {{"role", "assistant"}, {"content", "Got it. Thanks for the context!"}},
                    {{"role", "user"}, {"content", text("How is the weather?")}}}},
                  {"stream", true},
                  {"stream_options", {{"include_usage", true}}},
                  {"tools",
                   {nested(run_tool("tool_search", "query")),
                    nested(run_tool("run_shell_command", "command"))}},
                  {"max_tokens", 64}};
  expect_call_and_words(body, "run_shell_command", text("sunny, 21 degrees"));
}

}  // namespace
}  // namespace split::test
