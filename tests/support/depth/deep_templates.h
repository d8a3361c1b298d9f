// Chat templates that go as deep as they are asked to, one for each construct that can be nested or
// chained: what a stack must hold, whoever renders.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/jinja.h"

namespace split::test {

inline std::string times(int n, std::string_view text) {
  std::string out;
  for (int i = 0; i < n; ++i) out += text;
  return out;
}
// `open` n times, the inner text, and `close` as often.
inline std::string around(int n, std::string_view open, std::string_view inner,
                          std::string_view close) {
  return times(n, open) + std::string(inner) + times(n, close);
}
inline std::string printed(const std::string& expression) { return "{{ " + expression + " }}"; }
// A macro that calls itself 20 times, each time inside n of something.
inline std::string calling(int n, std::string_view open, std::string_view close,
                           std::string_view call = "f(n - 1)") {
  return "{% macro f(n) %}{% if n > 0 %}" + around(n, open, call, close) +
         "{% endif %}{% endmacro %}{{ f(20) }}";
}
// Values in values, n deep, in `v`.
inline std::string nested(int n, std::string_view of, std::string_view then) {
  return "{% set ns = namespace(v='x') %}{% for i in range(" + std::to_string(n) +
         ") %}{% set ns.v = " + std::string(of) + " %}{% endfor %}" + std::string(then);
}

struct DeepTemplate {
  const char* name;
  bool bounded;  // refused where it is deep enough
  std::string (*of)(int n);
};

constexpr const char* kDeepNames =
    R"({"x": "y", "messages": [{"role": "user", "content": "hello"}], "l": [["a"]]})";
// Around each limit: of blocks and calls (64), values (100), a tree (256) and a run (400).
constexpr int kDepths[] = {1,   2,   3,   6,   20,  30,  31,  32,  60,   61,
                           62,  63,  64,  98,  99,  100, 101, 200, 252,  253,
                           254, 255, 256, 257, 398, 399, 400, 401, 2000, 9000};

constexpr DeepTemplate kDeepTemplates[] = {
    {"filters", true, [](int n) { return printed("x" + times(n, "|upper")); }},
    {"filters with arguments", true,
     [](int n) { return printed("x" + times(n, "|replace('a', 'b')")); }},
    {"a filter's arguments", true,
     [](int n) { return printed(around(n, "x|default(", "x", ")")); }},
    {"map of map", true,
     [](int n) { return printed("x|map('list'" + times(n, ")|map('list'") + ")|list|length"); }},
    {"map in map", true,
     [](int n) { return printed("'y'|map(" + times(n, "'map', ") + "'upper')|list|length"); }},
    {"map in map over lists", true,
     [](int n) {
       return nested(n < 90 ? n : 90, "[ns.v]",
                     printed("ns.v|map(" + times(n, "'map', ") + "'upper')|list|length"));
     }},
    {"plus", true, [](int n) { return printed("1" + times(n, "+1")); }},
    {"times", true, [](int n) { return printed("1" + times(n, "*1")); }},
    {"joined", true, [](int n) { return printed("x" + times(n, "~x")); }},
    {"or", true, [](int n) { return printed("''" + times(n, " or ''") + " or x"); }},
    {"and", true, [](int n) { return printed("x" + times(n, " and x")); }},
    {"compare", true, [](int n) { return printed(around(n, "(1 == ", "1", ")")); }},
    {"compare chain", false, [](int n) { return printed("1" + times(n, " == 1")); }},
    {"not", true, [](int n) { return printed(times(n, "not ") + "x"); }},
    {"signs", true, [](int n) { return printed(times(n, "- ") + "1"); }},
    {"condition", true, [](int n) { return printed(times(n, "'' if '' else ") + "x"); }},
    {"conditions in a row", true, [](int n) { return printed("x" + times(n, " if x")); }},
    {"brackets", true, [](int n) { return printed(around(n, "(", "x", ")")); }},
    {"list", true, [](int n) { return printed(around(n, "[", "x", "]")); }},
    {"tuple", true, [](int n) { return printed(around(n, "(", "x", ",)")); }},
    {"map", true, [](int n) { return printed(around(n, "{'a': ", "x", "}")); }},
    {"item", true, [](int n) { return printed(around(n, "[0][", "0", "]")); }},
    {"items in a row", true,
     [](int n) { return "{% set x = l %}" + printed("x" + times(n, "[0]")); }},
    {"slices in a row", true, [](int n) { return printed("x" + times(n, "[0:]")); }},
    {"slice", true, [](int n) { return printed(around(n, "x[", "0", ":]|length")); }},
    {"attributes", true, [](int n) { return printed("{'a': x}" + times(n, ".a")); }},
    {"methods", true, [](int n) { return printed("x" + times(n, ".strip()")); }},
    {"calls of calls", true,
     [](int n) { return "{% macro f() %}y{% endmacro %}" + printed("f" + times(n, "()")); }},
    {"call arguments", true,
     [](int n) {
       return "{% macro f(n) %}{{ n }}{% endmacro %}" + printed(around(n, "f(", "x", ")"));
     }},
    {"named arguments", true,
     [](int n) {
       return "{% macro f(n) %}{{ " + around(n, "f(n=", "n", ")") +
              " }}{% endmacro %}{{ f(0) if '' }}";
     }},
    {"dict", true, [](int n) { return printed(around(n, "dict(a=", "x", ")") + "|length"); }},
    {"tests", true, [](int n) { return printed("x" + times(n, " is defined")); }},
    {"a test's arguments", true, [](int n) { return printed(around(n, "1 is eq(", "1", ")")); }},
    {"if", true, [](int n) { return around(n, "{% if x %}", "a", "{% endif %}"); }},
    {"else", true, [](int n) { return around(n, "{% if '' %}{% else %}", "a", "{% endif %}"); }},
    {"for", true, [](int n) { return around(n, "{% for a in 'y' %}", "a", "{% endfor %}"); }},
    {"for with a condition", true,
     [](int n) { return around(n, "{% for a in 'y' if a %}", "a", "{% endfor %}"); }},
    {"else of for", true,
     [](int n) { return around(n, "{% for a in '' %}{% else %}", "a", "{% endfor %}"); }},
    {"set", true, [](int n) { return around(n, "{% set a %}", "a", "{% endset %}") + "{{ a }}"; }},
    {"macro", true,
     [](int n) { return around(n, "{% macro f() %}", "a", "{% endmacro %}") + "{{ f() }}"; }},
    {"generation", true,
     [](int n) { return around(n, "{% generation %}", "a", "{% endgeneration %}"); }},
    {"calls in brackets", true,
     [](int n) { return calling(1, "{{ " + times(n, "["), times(n, "]|first") + " }}"); }},
    {"calls in filters", true, [](int n) { return calling(1, "{{ ", times(n, "|upper") + " }}"); }},
    {"calls in arguments", true,
     [](int n) { return calling(1, "{{ " + times(n, "x|default("), times(n, ")") + " }}"); }},
    {"calls in attributes", true,
     [](int n) { return calling(1, "{{ " + times(n, "{'a': "), times(n, "}.a") + " }}"); }},
    {"calls in if", true,
     [](int n) { return calling(n, "{% if x %}", "{% endif %}", "{{ f(n - 1) }}"); }},
    {"calls in for", true,
     [](int n) { return calling(n, "{% for a in 'y' %}", "{% endfor %}", "{{ f(n - 1) }}"); }},
    {"calls in set", true,
     [](int n) { return calling(n, "{% set a %}", "{% endset %}{{ a }}", "{{ f(n - 1) }}"); }},
    {"calls in a loop's list", true,
     [](int n) {
       return calling(1, "{% for a in " + times(n, "["),
                      times(n, "]") + " %}{{ a|length }}{% endfor %}");
     }},
    {"calls in a condition", true,
     [](int n) { return calling(1, "{% if " + times(n, "not "), " %}y{% endif %}"); }},
    {"calls in defaults", true,
     [](int n) {
       return "{% macro f(n=" + around(n, "(0 ~ ", "f()", ")") +
              ") %}{{ n }}{% endmacro %}{{ f() if x == 'z' else f(0) }}{{ f() if " +
              (n > 1 ? "x" : "''") + " }}";
     }},
    {"calls without end", true,
     [](int n) {
       return "{% macro f() %}{{ f() }}{% endmacro %}{% if " + std::to_string(n) +
              " > 1 %}{{ f() }}{% endif %}";
     }},
    {"lists as text", true, [](int n) { return nested(n, "[ns.v]", "{{ ns.v }}"); }},
    {"tuples as text", true, [](int n) { return nested(n, "(ns.v,)", "{{ ns.v }}"); }},
    {"maps as JSON", true,
     [](int n) {
       return nested(n, "{'a': ns.v}", "{{ ns.v|tojson }}{{ ns.v|tojson(indent=2) }}");
     }},
    {"lists compared", true,
     [](int n) {
       return nested(n, "[ns.v]", "{{ [ns.v, ns.v]|unique|length }}{% set a = ns.v %}") +
              nested(n, "[ns.v]", "{{ a == ns.v }}");
     }},
    {"maps compared", true,
     [](int n) {
       return nested(n, "dict(a=ns.v)", "{% set a = ns.v %}") +
              nested(n, "{'a': ns.v}", "{{ a == ns.v }}");
     }},
    {"methods of methods", true,
     [](int n) { return nested(n, "[ns.v].append if '' else [ns.v]", "{{ ns.v }}"); }},
    // A deep place from which the largest frames of all are called.
    {"the time, deep", true,
     [](int n) { return printed(around(n, "[", "strftime_now('%Y')|length", "]|first")); }},
    {"a sort, deep", true,
     [](int n) { return printed(times(n, "''~") + "[3, 1, 2]|sort|tojson"); }},
};

// The deepest of each that is a template, in as few templates as hold them: a chat's message says
// by its number which one is written.
inline std::vector<std::string> deep_chats() {
  std::vector<std::string> chats;
  int number = 0;
  for (const DeepTemplate& one : kDeepTemplates) {
    std::string chosen;
    for (const int n : kDepths) {
      const std::string text = "{% if messages[0].content == '" + std::to_string(number) + "' %}" +
                               one.of(n) + "{% endif %}";
      constexpr size_t kMost = 8 << 10;
      if (text.size() > kMost) break;
      try {
        const JinjaTemplate parsed(text);
        chosen = text;
      } catch (const Error&) {  // above a limit already
      }
    }
    if (chats.empty() || chats.back().size() + chosen.size() > JinjaLimits::kTemplate) {
      chats.emplace_back("{% set x = 'y' %}{% set l = [['a']] %}");
    }
    chats.back() += chosen;
    ++number;
  }
  return chats;
}

}  // namespace split::test
