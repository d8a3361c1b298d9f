// Every field of every JSON route: below, at and above its range, and of every wrong type. And
// bodies that are no request at all.
#include "support/cloud_fixture.h"
#include "wire/fields.h"
#include "wire/protocol.h"

namespace split::cloud {
namespace {

const char* const kFieldsSession = "00000000000000000000000000000001";

struct Field {
  const char* method;
  std::string path;
  std::string before, after;  // the body is before + value + after
  const char* name;
  std::vector<std::string> good, bad;
};

const std::vector<std::string> kNeverANumber = {
    "\"x\"", "\"1\"", "true", "[]", "{}", "1e308", "-1e308", "18446744073709551616", "\"\\u0000\""};

// A whole number in low..high, inside `before` and `after`.
Field whole(const char* method, std::string path, std::string before, std::string after,
            const char* name, int64_t low, int64_t high) {
  Field field{method, std::move(path), std::move(before), std::move(after), name,
              {},     kNeverANumber};
  field.good = {cat(low), cat(high)};
  for (const std::string& text : {cat(low - 1), cat(high + 1), std::string("0.5"),
                                  std::string("-9223372036854775809"), std::string("-1")}) {
    if (low >= 0 || text != "-1") field.bad.push_back(text);
  }
  return field;
}
Field number(std::string before, const char* name, const char* low, const char* high,
             std::vector<std::string> bad) {
  Field field{"POST", "/v1/completions", std::move(before), "}", name, {low, high}, {}};
  field.bad = {"\"x\"", "true", "[]", "{}", "1e308", "-1e308", "-1"};
  field.bad.insert(field.bad.end(), bad.begin(), bad.end());
  return field;
}
Field boolean(std::string path, std::string before, const char* name) {
  return {"POST",
          std::move(path),
          std::move(before),
          "}",
          name,
          {"true", "false", "null"},
          {"0", "1", "\"true\"", "[]", "{}", "1e308"}};
}

std::vector<Field> fields() {
  const std::string forward = "/v1/models/rand-a/forward", complete = "/v1/completions",
                    session = wire::session_path(kFieldsSession),
                    step = wire::session_forward_path(kFieldsSession);
  const std::string tokens = R"({"tokens":[1,2],)", prompt = R"({"prompt":[1,2],"max_tokens":1,)";
  std::vector<Field> rows = {
      whole("POST", forward, R"({"tokens":[)", "]}", "tokens", 0, 310),
      whole("POST", forward, tokens + R"("to":)", "}", "to", 0, 3),
      whole("POST", forward, tokens + R"("from":)", "}", "from", 0, 0),
      whole("POST", forward, tokens + R"("top":)", "}", "top", 1, 311),
      whole("POST", forward, tokens + R"("rows":[)", "]}", "rows", 0, 1),
      boolean(forward, tokens + R"("special":)", "special"),
      {"POST", forward, R"({"prompt":)", "}", "prompt", {}, {"1", "true", "[]", "{}", "1e308"}},
      {"POST",
       forward,
       R"({"tokens":)",
       "}",
       "tokens",
       {"[1]", "[[1],[2,3]]"},
       {"1", "\"1\"", "{}", "[[1],1]", "[[[1]]]", "[[]]", "[null]", "[]", "true"}},
      whole("PUT", session, R"({"to":)", "}", "to", 0, 3),
      whole("PUT", session, R"({"cut":)", "}", "cut", 0, 3),
      whole("PUT", session, R"({"to":3,"from":)", "}", "from", 0, 3),
      {"PUT",
       session,
       R"({"cut":1,"model":)",
       "}",
       "model",
       {"\"rand-a\"", "null"},
       {"1", "true", "[]", "{}"}},
      {"PUT", session, R"({"cut":1,"to":1,"from":)", "}", "cut", {}, {"0"}},
      {"PUT", session, R"({"from":0,"to":)", "}", "to", {}, {"null"}},
      {"PUT", session, R"({"from":2,"to":)", "}", "to", {}, {"1"}},
      whole("POST", step, R"({"past":0,"tokens":[)", "]}", "tokens", 0, 310),
      {"POST",
       step,
       R"({"past":0,"tokens":)",
       "}",
       "tokens",
       {"[1]"},
       {"null", "1", "{}", "[]", "\"x\""}},
      {"POST",
       step,
       R"({"tokens":[1],"past":)",
       "}",
       "past",
       {"0", "1"},
       {"null", "-1", "64", "1073741824", "1073741825", "0.5", "\"0\"", "true", "[]", "1e308",
        "4294967296", "18446744073709551616"}},
      {"POST",
       step,
       R"({"past":0,"tokens":[1],"phase":)",
       "}",
       "phase",
       {"\"prompt\"", "\"generate\"", "null"},
       {"\"Prompt\"", "\"\"", "0", "true", "[]", "{}"}},
      {"POST",
       step,
       R"({"past":0,"tokens":[1],"rows":)",
       "}",
       "rows",
       {"\"all\"", "\"last\"", "null"},
       {"\"first\"", "\"None\"", "[0]", "0", "true", "{}"}},
      whole("POST", step, R"({"past":0,"tokens":[1],"to":)", "}", "to", 0, 1),  // of the session
      {"POST",
       step,
       R"({"past":0,"tokens":[1],"to":)",
       "}",
       "to",
       {"null"},
       {"\"norm\"", "\"head\"", "\"top\"", "\"tokens\"", "\"\"", "[1]", "{}", "true"}},
      whole("POST", step, R"({"past":0,"tokens":[1],"can":)", "}", "can", 0, 3),
      {"POST",
       step,
       R"({"past":0,"tokens":[1],"fill":)",
       "}",
       "fill",
       {"false", "null"},
       {"0", "1", "\"true\"", "[]", "{}", "1e308"}},
      {"POST", step, R"({"past":0,"count":1,"fill":)", "}", "fill", {"true"}, {}},
      {"POST",
       step,
       R"({"past":0,"fill":true,"count":)",
       "}",
       "count",
       {"1"},
       {"null", "0", "-1", "65", "0.5", "\"1\"", "true", "[]", "{}", "1e308", "4294967297",
        "18446744073709551616"}},
      {"POST", step, R"({"past":0,"tokens":[1],"count":)", "}", "count", {"null"}, {"1", "\"x\""}},
      whole("POST", complete, R"({"prompt":[1],"max_tokens":)", "}", "max_tokens", 0, 1 << 24),
      whole("POST", complete, R"({"max_tokens":1,"prompt":[)", "]}", "prompt", 0, 310),
      {"POST",
       complete,
       R"({"max_tokens":1,"prompt":)",
       "}",
       "prompt",
       {"[[1],[2,3]]"},
       {"1", "true", "{}", "[]", "[[]]", "[[1],[311]]", "[[1],2]", "\"a\"", "[\"a\"]", "[null]",
        "[[[1]]]", "1e308"}},
      number(prompt + R"("temperature":)", "temperature", "0", "100", {"100.001", "-0.001"}),
      number(prompt + R"("top_p":)", "top_p", "0", "1", {"1.001", "-0.001"}),
      number(prompt + R"("repetition_penalty":)", "repetition_penalty", "0.01", "100",
             {"0", "0.009", "100.1"}),
      {"POST",
       complete,
       prompt + R"("presence_penalty":)",
       "}",
       "presence_penalty",
       {"-2", "2", "0.5", "null"},
       {"-2.1", "2.1", "1e308", "\"1\"", "true", "[]", "{}"}},
      {"POST",
       complete,
       prompt + R"("frequency_penalty":)",
       "}",
       "frequency_penalty",
       {"-2", "2", "0.5", "null"},
       {"-2.1", "2.1", "1e308", "\"1\"", "true", "[]", "{}"}},
      number(prompt + R"("min_p":)", "min_p", "0", "1", {"1.001", "-0.001"}),
      whole("POST", complete, prompt + R"("top_k":)", "}", "top_k", 0, 1 << 24),
      whole("POST", complete, prompt + R"("logprobs":)", "}", "logprobs", 0, 100),
      whole("POST", complete, prompt + R"("n":)", "}", "n", 1, 16),
      whole("POST", complete, prompt + R"("best_of":)", "}", "best_of", 1, 16),
      {"POST",
       complete,
       prompt + R"("seed":)",
       "}",
       "seed",
       {"-9223372036854775808", "9223372036854775807", "0", "null"},
       {"-9223372036854775809", "9223372036854775808", "0.5", "1e308", "\"1\"", "true", "[]"}},
      boolean(complete, prompt + R"("echo":)", "echo"),
      boolean(complete, prompt + R"("stream":)", "stream"),
      boolean(complete, prompt + R"("ignore_eos":)", "ignore_eos"),
      boolean(complete, prompt + R"("special":)", "special"),
      boolean(complete, prompt + R"("return_token_ids":)", "return_token_ids"),
      {"POST",
       complete,
       prompt + R"("stop":)",
       "}",
       "stop",
       {"null", "[]"},
       {"1", "true", "{}", "\"\"", "[\"\"]", "[1]", "[null]", "\"x\"",
        R"(["a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a"])"}},
      {"POST",
       complete,
       prompt + R"("stream_options":)",
       "}",
       "stream_options",
       {"{}", "null"},
       {"1", "true", "[]", "\"x\""}},
      {"POST",
       complete,
       prompt + R"("stream_options":{"include_usage":)",
       "}}",
       "include_usage",
       {"true"},
       {"1", "\"x\"", "[]"}},
      {"POST", complete, prompt + R"("suffix":)", "}", "suffix", {"null", "\"\""}, {"\"a\"", "1"}},
      {"POST",
       complete,
       prompt + R"("logit_bias":)",
       "}",
       "logit_bias",
       {"null", "{}", R"({"1":2})", R"({"0":-100,"310":100})"},
       {"1", "[]", R"({"x":1})", R"({"":1})", R"({"01":1})", R"({"-1":1})", R"({"311":1})",
        R"({"4294967297":1})", R"({"1":100.1})", R"({"1":-1e308})", R"({"1":null})",
        R"({"1":"2"})"}},
      {"POST",
       complete,
       prompt + R"("response_format":)",
       "}",
       "response_format",
       {"null", R"({"type":"text"})"},
       {"1", "[]", "{}", "\"json_object\"", R"({"type":"xml"})", R"({"type":"json_object"})"}},
      {"POST",
       complete,
       prompt + R"("model":)",
       "}",
       "model",
       {"null", "\"rand-a\""},
       {"1", "true", "[]", "{}"}},
  };
  for (const std::string& path : {forward, complete}) {
    rows.push_back({"POST", path, tokens + R"("unknown_field":)", "}", "unknown_field", {}, {"1"}});
  }
  rows.back().before = prompt + R"("unknown_field":)";
  rows.push_back({"POST",
                  step,
                  R"({"past":0,"tokens":[1],"unknown_field":)",
                  "}",
                  "unknown_field",
                  {},
                  {"1"}});
  rows.push_back({"PUT", session, R"({"cut":1,"unknown_field":)", "}", "unknown_field", {}, {"1"}});
  return rows;
}

TEST(CloudFields, AreCheckedAtEveryBoundary) {
  TestCloud cloud({"rand-a"});
  int asked = 0;
  for (const Field& field : fields()) {
    const auto ask = [&](const std::string& value) {
      ++asked;
      if (std::string(field.method) == "PUT") {
        cloud.ask().send("DELETE", wire::session_path(kFieldsSession));
      } else if (field.path.find("/v1/sessions") == 0) {
        cloud.ask().send("DELETE", wire::session_path(kFieldsSession));
        cloud.ask().send("PUT", wire::session_path(kFieldsSession), R"({"cut":1})");
        cloud.ask().send("POST", wire::session_forward_path(kFieldsSession),
                         R"({"past":0,"tokens":[1]})");
      }
      return cloud.ask().send(field.method, field.path, field.before + value + field.after);
    };
    for (const std::string& value : field.good) {
      const http::Reply reply = ask(value);
      EXPECT_TRUE(reply.status == 200 || reply.status == 201)
          << field.path << " " << field.name << " = " << value << ": " << reply.body;
    }
    for (const std::string& value : field.bad) {
      const http::Reply reply = ask(value);
      const std::string what = cat(field.path, " ", field.name, " = ", value);
      const Json json = json_of(reply, 400);
      const Json& error = json["error"];
      ASSERT_TRUE(error.is_object()) << what;
      // An integer that JSON cannot hold is no JSON.
      if (!error["param"].is_null() || value != "18446744073709551616") {
        EXPECT_EQ(error["param"], field.name) << what << ": " << reply.body;
      }
    }
  }
  EXPECT_GT(asked, 400);
  EXPECT_EQ(cloud.ask().get("/livez").status, 200);
}

TEST(CloudBodies, ThatAreNoRequestAreOneLineEach) {
  TestCloud cloud({"rand-a"});
  ASSERT_EQ(cloud.ask().send("PUT", wire::session_path(kFieldsSession), R"({"cut":1})").status,
            201);
  std::vector<std::string> bodies = {"",
                                     " ",
                                     "null",
                                     "1",
                                     "\"x\"",
                                     "[]",
                                     "{",
                                     "}",
                                     "{\"a\"}",
                                     "{\"tokens\":[1]",
                                     "{\"tokens\":[1]}x",
                                     "{tokens:[1]}",
                                     "{\"tokens\":[1],}",
                                     "{'tokens':[1]}",
                                     "{\"tokens\":[01]}",
                                     "{\"tokens\":[NaN]}",
                                     "{\"tokens\":[Infinity]}",
                                     "{\"tokens\":[1e999]}",
                                     "{\"tokens\":[1],\"tokens\":[2]}",
                                     "\xff\xfe{\0}\0",
                                     "{\"prompt\":\"\xff\"}",
                                     "{\"prompt\":\"\\ud800\"}",
                                     "\xef\xbb\xbf{}x",
                                     std::string("\0", 1),
                                     "%00",
                                     "prompt=a"};
  for (size_t depth = 100; depth <= 1000000; depth *= 10) {
    bodies.push_back(std::string(depth, '['));
    bodies.push_back(std::string(depth, '[') + std::string(depth, ']'));
    std::string objects;
    for (size_t i = 0; i < depth; ++i) objects += "{\"a\":";
    bodies.push_back(objects);
  }
  bodies.push_back("{\"tokens\":" + std::string(40, '[') + std::string(40, ']') + "}");
  bodies.push_back("{\"prompt\":\"" + std::string(wire::kMaxJsonBytes, 'a') + "\"}");
  for (const std::string& path :
       {std::string("/v1/models/rand-a/forward"), std::string("/v1/completions"),
        std::string("/v1/sessions"), wire::session_forward_path(kFieldsSession)}) {
    for (const std::string& body : bodies) {
      const http::Reply reply = cloud.ask().send("POST", path, body);
      expect_error(reply, 400, "invalid_request", "", path + " " + body.substr(0, 40));
    }
  }
  EXPECT_EQ(cloud.pages().in_use(), 0u);
}

// Prompts stay private: neither an answer to a wrong request nor a log line repeats one.
TEST(CloudBodies, PromptsAreInNoMessage) {
  const std::string canary = "xyzzyCANARY";
  TestCloud cloud({"demo", "rand-a"});
  testing::internal::CaptureStderr();
  std::string long_prompt;
  for (int i = 0; i < 600; ++i) long_prompt += canary;
  const std::vector<std::string> bodies = {
      R"({"prompt":")" + canary + R"(","tokens":[1]})",
      R"({"prompt":")" + canary + R"(","max_tokens":-1,"top":-1})",
      R"({"prompt":")" + canary + R"(","stop":"","to":99})",
      R"({"prompt":")" + canary,
      R"({"prompt":")" + canary + "\xff\"}",
      R"({"prompt":{"a":")" + canary + R"("}})",
      R"({"prompt":[1,")" + canary + R"("]})",
      R"({"prompt":")" + long_prompt + R"("})",
      R"({"tokens":")" + canary + R"("})",
      R"({"prompt":[")" + canary + R"(",true]})",
      R"({"stop":[1,")" + canary + R"("],"to":")" + canary + R"("})",
      R"({"model":")" + canary + R"(","to":")" + canary + R"("})",
      canary,
  };
  for (const char* path : {"/v1/models/demo/forward", "/v1/models/rand-a/forward",
                           "/v1/completions", "/v1/sessions"}) {
    for (const std::string& body : bodies) {
      const http::Reply reply = cloud.ask().send("POST", path, body);
      EXPECT_TRUE(reply.status == 400 || reply.status == 404) << path << body.substr(0, 60);
      EXPECT_EQ(reply.body.find("CANARY"), std::string::npos) << path << " " << reply.body;
    }
  }
  EXPECT_EQ(cloud.ask().send("POST", "/v1/completions", R"({"prompt":")" + canary + "\"}").status,
            200);
  EXPECT_EQ(testing::internal::GetCapturedStderr().find("CANARY"), std::string::npos);
}

}  // namespace
}  // namespace split::cloud
