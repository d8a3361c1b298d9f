// Calls of tools over the routes of both programs, on models that say given texts.
#include <gtest/gtest.h>

#include "goldens.h"

namespace split::test {
namespace {

// Tokenizers that put a space in front of a text give one with it here.
Dict parts(ChatAnswer answer) {
  if (answer.content.starts_with(' ')) answer.content.erase(0, 1);
  return answer.parts();
}

// The answer whole and streamed, at any temperature; ids are nine letters and digits, each once.
void expect_case(const GoldenCloud& golden, size_t i,
                 const std::function<http::Reply(const std::string&)>& ask) {
  SCOPED_TRACE(golden.cases[i].name());
  std::set<std::string> ids;
  for (const double temperature : {0.0, 1.0}) {
    Ordered body = golden.request(i);
    body["temperature"] = temperature;
    const http::Reply reply = ask(body.dump());
    ASSERT_EQ(reply.status, 200) << reply.body;
    const ChatAnswer whole = whole_of(Dict::parse(reply.body));
    EXPECT_EQ(parts(whole), golden.expected(i));
    body["stream"] = true;
    body["stream_options"] = {{"include_usage", true}};
    const ChatAnswer stream = joined(ask(body.dump()).body);
    EXPECT_EQ(parts(stream), golden.expected(i));
    EXPECT_EQ(stream.calls, whole.calls);  // byte for byte
    EXPECT_EQ(stream.usage["prompt_tokens"], golden.prompts[i]);
    EXPECT_EQ(stream.usage["completion_tokens"], whole.usage["completion_tokens"]);
    for (const ChatAnswer* one : {&whole, &stream}) {
      for (const std::string& id : one->ids) {
        EXPECT_EQ(id.size(), 9u);
        EXPECT_TRUE(ids.insert(id).second);
      }
    }
  }
}

TEST(Calls, AreToldByTheCloud) {
  GoldenCloud& golden = goldens();
  for (size_t i = 0; i < golden.cases.size(); ++i) {
    expect_case(golden, i, [&](const std::string& body) {
      return golden.cloud->ask().send("POST", "/v1/chat/completions", body);
    });
  }
}

// At every cut of the one block, and as the cloud's own stream.
TEST(Calls, AreToldByTheEdgeAtEveryCut) {
  GoldenCloud& golden = goldens();
  for (size_t i = 0; i < golden.cases.size(); ++i) {
    for (const char* cut : {"0", "1", "cloud"}) {
      SCOPED_TRACE(cut);
      EdgeServer edge(golden.edge(i, cut));
      const std::string said = edge.until("ready\n");
      ASSERT_NE(said.find("ready\n"), said.npos) << said;
      expect_case(golden, i, [&](const std::string& body) {
        return http::Client(edge.url())
            .request("POST", "/v1/chat/completions", body, "application/json");
      });
    }
  }
}

// The index of a golden by its name.
size_t case_of(const GoldenCloud& golden, const std::string& name) {
  for (size_t i = 0; i < golden.cases.size(); ++i) {
    if (golden.cases[i].name() == name) return i;
  }
  ADD_FAILURE() << "no golden " << name;
  return 0;
}

class Asked : public testing::Test {
 protected:
  ChatAnswer whole(Ordered body) {
    body.erase("stream");
    const http::Reply reply = golden.cloud->ask().send("POST", "/v1/chat/completions", body.dump());
    EXPECT_EQ(reply.status, 200) << reply.body;
    return whole_of(Dict::parse(reply.body));
  }
  ChatAnswer stream(Ordered body) {
    body["stream"] = true;
    body["stream_options"] = {{"include_usage", true}};
    return joined(golden.cloud->ask().send("POST", "/v1/chat/completions", body.dump()).body);
  }
  GoldenCloud& golden = goldens();
  const size_t one_call = case_of(golden, "qwen2: one call");
  const size_t thought = case_of(golden, "qwen3: thought, then words");
  const size_t two_calls = case_of(golden, "qwen2: only one is allowed");
};

TEST_F(Asked, ACallThatHasToComeIsThatOfItsTools) {
  Ordered body = golden.request(one_call);
  const Ordered named = {{"type", "function"}, {"function", {{"name", "lookup"}}}};
  for (const Ordered& choice :
       {Ordered("required"), named,
        Ordered{{"type", "allowed_tools"},
                {"allowed_tools", {{"mode", "required"}, {"tools", {named}}}}}}) {
    body["tool_choice"] = choice;
    EXPECT_EQ(whole(body).parts(), golden.expected(one_call)) << choice;
  }
  // Another tool than the model would call: whatever it makes of that, no other is called.
  body["tool_choice"] = {{"type", "function"}, {"function", {{"name", "sum"}}}};
  body["max_tokens"] = 40;
  const ChatAnswer other = whole(body);
  ASSERT_EQ(other.calls.size(), 1u);
  EXPECT_EQ(other.calls[0]["name"], "sum");
  body["tool_choice"] = {{"type", "allowed_tools"},
                         {"allowed_tools", {{"mode", "auto"}, {"tools", {named}}}}};
  body.erase("max_tokens");
  EXPECT_EQ(whole(body).parts(), golden.expected(one_call));
}

// The model would call twice, and does where it must call any; a function that is named is called
// once, also where several calls are allowed.
TEST_F(Asked, ANamedFunctionIsCalledOnce) {
  Ordered body = golden.request(two_calls);
  body.erase("parallel_tool_calls");
  body["tool_choice"] = "required";
  EXPECT_EQ(whole(body).calls.size(), 2u);
  body["tool_choice"] = {{"type", "function"}, {"function", {{"name", "ping"}}}};
  for (const bool parallel : {true, false}) {
    body["parallel_tool_calls"] = parallel;
    EXPECT_EQ(whole(body).calls.size(), 1u);
    EXPECT_EQ(stream(body).calls.size(), 1u);
    EXPECT_EQ(whole(body).finish, "tool_calls");
  }
}

// Where the answer is cut in its second call, nothing of how calls are written is words.
TEST_F(Asked, ACallThatIsCutLeaksNothingIntoTheWords) {
  Ordered body = golden.request(two_calls);
  body.erase("parallel_tool_calls");
  body["tool_choice"] = "required";
  const size_t tokens = whole(body).usage["completion_tokens"];
  std::set<size_t> calls;
  for (size_t n = 1; n < tokens; ++n) {
    body["max_tokens"] = n;
    const ChatAnswer cut = whole(body), streamed = stream(body);
    EXPECT_EQ(cut.content, "") << n;
    EXPECT_EQ(streamed.content, "") << n;
    EXPECT_EQ(streamed.calls, cut.calls) << n;
    calls.insert(cut.calls.size());
  }
  EXPECT_EQ(calls, (std::set<size_t>{0, 1, 2}));
}

TEST_F(Asked, EachOfManyAnswersHasCallsOfItsOwn) {
  Ordered body = golden.request(one_call);
  body["n"] = 3;
  const http::Reply reply = golden.cloud->ask().send("POST", "/v1/chat/completions", body.dump());
  ASSERT_EQ(reply.status, 200) << reply.body;
  std::set<std::string> ids;
  const Dict answer = Dict::parse(reply.body);
  for (const Dict& choice : answer["choices"]) {
    ASSERT_EQ(choice["message"]["tool_calls"].size(), 1u);
    ids.insert(choice["message"]["tool_calls"][0]["id"].get<std::string>());
  }
  EXPECT_EQ(ids.size(), 3u);
}

// Where a call is cut it is told as far as it came, and the reason is the length.
TEST_F(Asked, ACutCallIsToldAsFarAsItCame) {
  Ordered body = golden.request(one_call);
  const std::string all = whole(body).calls[0]["arguments"];
  const size_t tokens = whole(body).usage["completion_tokens"];
  bool begun = false;
  for (size_t n = 1; n < tokens; ++n) {
    body["max_tokens"] = n;
    const ChatAnswer cut = whole(body), streamed = stream(body);
    EXPECT_EQ(cut.finish, "length") << n;
    EXPECT_EQ(streamed.finish, "length") << n;
    EXPECT_EQ(streamed.calls, cut.calls) << n;
    EXPECT_EQ(streamed.content, cut.content) << n;
    if (cut.calls.empty()) {
      EXPECT_FALSE(begun);
      EXPECT_TRUE(golden.cases[one_call].text("says").starts_with(cut.content)) << n;
      continue;
    }
    begun = true;
    EXPECT_EQ(cut.content, "");
    EXPECT_TRUE(all.starts_with(cut.calls[0]["arguments"].get<std::string>())) << n;
  }
  EXPECT_TRUE(begun);
}

TEST_F(Asked, StopsEndWordsAlone) {
  Ordered body = golden.request(one_call);
  body["stop"] = {"lookup", "sea", "<tool"};
  EXPECT_EQ(whole(body).parts(), golden.expected(one_call));
  EXPECT_EQ(stream(body).parts(), golden.expected(one_call));
  body = golden.request(thought);
  body["stop"] = {"short", "think"};
  EXPECT_EQ(whole(body).parts(), golden.expected(thought));
  body["stop"] = {"es"};
  const http::Reply reply = golden.cloud->ask().send("POST", "/v1/chat/completions", body.dump());
  const Dict choice = Dict::parse(reply.body)["choices"][0];
  EXPECT_EQ(choice["message"]["content"], "Y");
  EXPECT_EQ(choice["message"]["reasoning_content"], "short");
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["stop_reason"], "es");
}

TEST_F(Asked, AThoughtIsCountedAndStaysOneWhereItIsCut) {
  Ordered body = golden.request(thought);
  const ChatAnswer all = whole(body);
  const size_t reasoning = all.usage["completion_tokens_details"]["reasoning_tokens"];
  EXPECT_GT(reasoning, 2u);
  EXPECT_LT(reasoning, all.usage["completion_tokens"].get<size_t>());
  body["max_tokens"] = reasoning - 1;
  const ChatAnswer cut = stream(body);
  EXPECT_EQ(cut.content, "");
  EXPECT_FALSE(cut.thought.empty());
  EXPECT_EQ(cut.finish, "length");
  // JSON is demanded of what comes behind the thought.
  body = golden.request(thought);
  body["tool_choice"] = "none";
  body["response_format"] = {{"type", "json_object"}};
  body["max_tokens"] = 60;
  const ChatAnswer json = whole(body);
  EXPECT_EQ(json.thought, "short");
  EXPECT_TRUE(json.content.starts_with("{")) << json.content;
}

TEST_F(Asked, ThatMakesNoSenseIsRefusedInOneLine) {
  const auto tool = [](const Ordered& name) {
    return Ordered{{"type", "function"}, {"function", {{"name", name}}}};
  };
  const auto expect = [&](const Ordered& fields, const char* param) {
    Ordered body = golden.request(one_call);
    for (const auto& [key, value] : fields.items()) body[key] = value;
    cloud::expect_error(golden.cloud->ask().send("POST", "/v1/chat/completions", body.dump()), 400,
                        "invalid_request", param, fields.dump().substr(0, 200));
  };
  Ordered many = Ordered::array();
  for (int i = 0; i < 129; ++i) many.push_back(tool(cat("t", i)));
  expect({{"tools", many}}, "tools");
  expect({{"tools", {tool("a"), tool("a")}}}, "tools");
  expect({{"tools", {tool("")}}}, "tools");
  expect({{"tools", {tool(std::string(129, 'a'))}}}, "tools");
  expect({{"tools", {tool(1)}}}, "tools");
  expect({{"tools", 1}}, "tools");
  expect({{"tools", {1}}}, "tools");
  Ordered listed = tool("a");
  listed["function"]["parameters"] = Ordered::array();
  expect({{"tools", {listed}}}, "tools");
  expect({{"tools", {{{"type", "web_search"}}}}}, "tools");
  expect({{"tools", Ordered::array()}, {"tool_choice", "required"}}, "tool_choice");
  expect({{"tool_choice", tool("nobody")}}, "tool_choice");
  expect({{"tool_choice", "maybe"}}, "tool_choice");
  expect({{"tool_choice", {{"type", "custom"}}}}, "tool_choice");
  expect({{"tool_choice",
           {{"type", "allowed_tools"},
            {"allowed_tools", {{"mode", "auto"}, {"tools", {tool("nobody")}}}}}}},
         "tool_choice");
  expect({{"functions", {{{"name", "f"}}}}}, "functions");
  expect({{"function_call", {{"name", "f"}}}}, "function_call");
  expect({{"parallel_tool_calls", 1}}, "parallel_tool_calls");
  Ordered big = tool("big");
  big["function"]["description"] = std::string(1 << 20, 'x');
  expect({{"tools", {big}}}, "tools");
}

// Schemas that no grammar holds are loosened, with their tool's name, and nested ones are read.
TEST_F(Asked, SchemasOfAnyKindAreTaken) {
  Ordered deep = {{"type", "string"}};
  for (int i = 0; i < 20; ++i) deep = {{"type", "object"}, {"properties", {{"in", deep}}}};
  Ordered body = golden.request(one_call);
  const auto tool = [](const char* name, const Ordered& parameters) {
    return Ordered{{"type", "function"},
                   {"function", {{"name", name}, {"strict", true}, {"parameters", parameters}}}};
  };
  body["tools"].push_back(tool("deep", deep));
  body["tools"].push_back(tool("circle", {{"$defs", {{"a", {{"$ref", "#/$defs/a"}}}}},
                                          {"properties", {{"x", {{"$ref", "#/$defs/a"}}}}}}));
  body["tools"].push_back(tool("list", Ordered::parse(R"({"properties":{"x":{"type":"array",
      "maxItems":18446744073709551616},"y":{"type":"string","pattern":"^(?=a).","format":"uri"},
      "z":{"type":7},"w":{"oneOf":[{"type":"string"},{"minLength":2}]}}})")));
  body["tools"].push_back(tool("no object", {{"type", "string"}}));
  const http::Reply reply = golden.cloud->ask().send("POST", "/v1/chat/completions", body.dump());
  ASSERT_EQ(reply.status, 200) << reply.body;
  const auto header = reply.headers.get("Split-Schema-Loosened");
  ASSERT_TRUE(header);
  for (const char* one : {"circle.$ref", "list.maxItems", "list.pattern", "list.format",
                          "list.oneOf", "list.schema", "no_object.schema"}) {
    EXPECT_NE(header->find(one), header->npos) << one << " in " << *header;
  }
}

// A client sends back calls with arguments as text, ids of any maker, and results.
TEST_F(Asked, ResultsGoBackIn) {
  for (size_t i :
       {one_call, thought, case_of(golden, "mistral: three calls"),
        case_of(golden, "llama3: one call"), case_of(golden, "zephyr: a template without tools"),
        case_of(golden, "gemma: a template without tools or systems")}) {
    SCOPED_TRACE(golden.cases[i].name());
    Ordered body = golden.request(i);
    body["messages"].push_back(Ordered::parse(R"({"role":"assistant","content":null,"tool_calls":[
        {"id":"call_of_another_maker","type":"function",
         "function":{"name":"lookup","arguments":"{\"word\": \"sea\"}"}}]})"));
    body["messages"].push_back(
        {{"role", "tool"}, {"tool_call_id", "call_of_another_maker"}, {"content", "water~result"}});
    body["max_tokens"] = 1;
    const http::Reply reply = golden.cloud->ask().send("POST", "/v1/chat/completions", body.dump());
    EXPECT_EQ(reply.status, 200) << reply.body;
    body.erase("temperature"), body.erase("max_tokens");
    const Dict prompt =
        Dict::parse(golden.cloud->ask().send("POST", "/apply-template", body.dump()).body);
    const std::string text = prompt.value("prompt", prompt.dump());
    EXPECT_NE(text.find("water~result"), text.npos) << text;
    EXPECT_NE(text.find(R"("word": "sea")"), text.npos) << text;
  }
}

}  // namespace
}  // namespace split::test
