// text/jinja: the chats of the goldens (tests/golden/models/README.md), Jinja's rules one by one,
// and templates that mean harm.
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "base/file.h"
#include "base/json.h"
#include "base/resources/memory_budget.h"
#include "text/jinja/jinja.h"
#include "text/tokenizer.h"

namespace split {
namespace {

const std::filesystem::path kModels =
    std::filesystem::path(SPLIT_SOURCE_DIR) / "tests/golden/models";

std::string slurp(const std::filesystem::path& path) { return read_file(path, 1 << 20); }

template <typename Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string rendered(std::string_view text, const std::string& names = "{}") {
  return JinjaTemplate(text).render(parse_json(names, 64, "names"));
}
std::string refusal(std::string_view text, const std::string& names = "{}") {
  return message_of([&] { rendered(text, names); });
}

TEST(Jinja, RendersTheChatsOfTransformers) {
  const Json cases = parse_json(slurp(kModels / "chat/cases.json"), 64, "cases");
  size_t count = 0;
  for (const Json& one : cases) {
    const std::string where = one["template"].text() + ": " + one["name"].text();
    const JinjaTemplate chat(slurp(kModels / "chat" / (one["template"].text() + ".jinja")));
    Json names = Json::object();
    for (const auto& [name, value] : one["special_tokens"].members()) names[name] = value;
    names["tools"] = nullptr;
    for (const char* name :
         {"messages", "add_generation_prompt", "tools", "date_string", "enable_thinking"}) {
      if (one.contains(name) && !one[name].is_null()) names[name] = one[name];
    }
    ++count;
    if (one.contains("error") && !one["error"].is_null()) {
      EXPECT_EQ("TemplateError: " + message_of([&] { chat.render(names); }), one["error"].text())
          << where;
      continue;
    }
    const std::string text = chat.render(names);
    EXPECT_EQ(text, one["rendered"].text()) << where;
    const Tokenizer tokenizer = Tokenizer::from_tokenizer_json(
        slurp(kModels / "tokenizers" / one["tokenizer"].text() / "tokenizer.json"));
    std::vector<int32_t> ids;
    for (const Json& id : one["ids"]) ids.push_back(id.get<int32_t>());
    EXPECT_EQ(tokenizer.encode(text), ids) << where;
  }
  EXPECT_EQ(count, 60u);
}

TEST(Jinja, TakesWhiteSpaceAwayAsTransformersDoes) {
  EXPECT_EQ(rendered("a\n  {% if true %}\nb\n  {% endif %}\nc\n"), "a\nb\nc");
  EXPECT_EQ(rendered("a {%- if true -%} \n b {%- endif %} c"), "ab c");
  EXPECT_EQ(rendered("a\n  {# no #}\nb {{ 1 }}\nc"), "a\nb 1\nc");
  EXPECT_EQ(rendered("{%+ if true %}\nx{% endif +%}\ny"), "x\ny");
  EXPECT_EQ(rendered("{{ '\\n' }}\r\nx"), "\n\nx");
}

TEST(Jinja, ComputesAsPython) {
  const std::pair<const char*, const char*> kRows[] = {
      {"{{ 7 // -2 }} {{ 7 % -2 }} {{ 7 / 2 }} {{ -7 % 2 }}", "-4 -1 3.5 1"},
      {"{{ 1e16 }} {{ 0.0001 }} {{ 1e-5 }} {{ 2.0 }}", "1e+16 0.0001 1e-05 2.0"},
      {"{{ true }} {{ none }} {{ [1, 'a', none] }} {{ {'a': 1} }} {{ (1,) }}",
       "True None [1, 'a', None] {'a': 1} (1,)"},
      {"{{ 'h\xC3\xA9llo'|length }} {{ 'h\xC3\xA9llo'[1] }} {{ 'hello'[::-1] }} {{ 'hello'[-3:] }}",
       "5 \xC3\xA9 olleh llo"},
      {"{{ x is defined }} {{ x is none }} {{ none is defined }} {{ x == y }}[{{ x }}]",
       "False False True True[]"},
      {"{{ 'a' ~ 1 ~ none }} {{ 'a' in 'cat' }} {{ 3 not in [1, 2] }}", "a1None True True"},
      {"{% for k, v in {'b': 1, 'a': 2}.items() if v > 1 %}{{ k }}{{ loop.last }}{% endfor %}",
       "aTrue"},
      {"{% set ns = namespace(n=0) %}{% for i in range(4) %}{% if i == 1 %}{% continue %}{% endif "
       "%}{% if i == 3 %}{% break %}{% endif %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}",
       "2"},
      {"{% macro m(a, b='y') %}{{ a }}{{ b }}{% endmacro %}{{ m('x') }}{{ m('x', b=1) }}", "xyx1"},
      {"{% set x %}a{{ 1 }}{% endset %}{{ x|upper }}", "A1"},
      {"{{ '  \\nx\\n '.strip() }}|{{ '\\n x'.lstrip('\\n') }}|{{ 'a,b,c'.split(',', 1)[-1] }}",
       "x| x|b,c"},
      {"{{ 'x' if false }}{{ 'a' if false else 'b' }}", "b"},
      {"{{ [3, 1, 2]|sort|join('-') }} {{ ['a', 'A', 'b']|unique|join }} {{ ''|default('d', true) "
       "}}",
       "1-2-3 ab d"},
      {"{{ [{'r': 'u'}, {'r': 'a'}]|selectattr('r', 'equalto', 'u')|map(attribute='r')|list }}",
       "['u']"},
      {"{% for i in [] %}x{% else %}none{% endfor %}", "none"},
      {"{% generation %}said{% endgeneration %}", "said"},
      {"{{ 'one two'|title }} {{ 'aBC'|capitalize }} {{ 'a\\nb'|indent(2) }}",
       "One Two Abc a\n  b"},
  };
  for (const auto& [text, expected] : kRows) EXPECT_EQ(rendered(text), expected) << text;
}

// No escapes of HTML, no \u, the order of the keys stays (T24).
TEST(Jinja, WritesJsonAsTransformersDoes) {
  const std::string names = R"({"x": {"b": "<\u00e9>'", "a": [1, 2.5, null, true], "e": {}}})";
  EXPECT_EQ(rendered("{{ x|tojson }}", names),
            "{\"b\": \"<\xC3\xA9>'\", \"a\": [1, 2.5, null, true], \"e\": {}}");
  EXPECT_EQ(rendered("{{ x.a|tojson(indent=2) }}", names), "[\n  1,\n  2.5,\n  null,\n  true\n]");
}

TEST(Jinja, NamesWhatItDoesNotKnow) {
  EXPECT_EQ(refusal("a\n{% include 'x' %}"), "line 2: {% 'include' %} is not supported");
  EXPECT_EQ(refusal("\n\n{{ x|batch(2) }}"), "line 3: the filter 'batch' is not supported");
  EXPECT_EQ(refusal("{{ x is mystery }}"), "line 1: the test 'mystery' is not supported");
  EXPECT_EQ(refusal("{{ 'x'.encode() }}"),
            "line 1: the method 'encode' of a string is not supported");
  EXPECT_THROW(rendered("{{ 2 ** 3 }}"), JinjaUnsupported);
}

TEST(Jinja, GivesTheTextOfAnException) {
  EXPECT_EQ(refusal("{{ raise_exception('no ' ~ 1) }}"), "no 1");
  EXPECT_EQ(refusal("{{ x.y }}"), "'x' is undefined");
  EXPECT_EQ(refusal("{{ 'a' + 1 }}"), "unsupported operand type(s) for +: 'str' and 'int'");
}

// Templates come from anywhere: each ends at a limit, and none by a signal.
TEST(Jinja, EndsHostileTemplatesAtALimit) {
  const auto many = [](const std::string& text, size_t times) {
    std::string out;
    for (size_t i = 0; i < times; ++i) out += text;
    return out;
  };
  const std::string hostile[] = {
      std::string((64 << 10) + 1, 'x'),
      "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
      ("{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s "
       "%}{% endfor %}"),
      ("{% set ns = namespace(s='x') %}{% for i in range(99999) %}{% set ns.s = ns.s ~ "
       "('y' * 10000) %}{{ ns.s }}{% endfor %}"),
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}",
      "{% set ns = namespace() %}{% set ns.me = ns %}",
      "{{ range(999999999999) }}",
      "{{ " + many("(", 30000) + "1" + many(")", 30000) + " }}",
      "{{ " + many("not ", 10000) + "1 }}",
      "{{ 1" + many("+1", 20000) + " }}",
      "{{ x" + many(".a", 20000) + " }}",
      "{{ 1" + many("|abs", 10000) + " }}",
      many("{% if 1 %}", 5000),
      "{{ 9223372036854775807 + 1 }}",
      "{{ (-9223372036854775807 - 1) // -1 }}",
      "{{ 1 % 0 }}",
      "{{ 'x' * 99999999 }}",
      "{{ '",
      "{{ 1",
      "{% if",
      "{#",
      "{{ }}",
      "{{ ) }}",
      "{% endif %}",
      "{% for %}",
      "{% set = 1 %}",
      "{{ '\\ud800' }}",
      "{{ loop.index }}",
  };
  for (const std::string& text : hostile) {
    EXPECT_NE(refusal(text), "no error") << text.substr(0, 60);
  }
}

// Whatever costs more than a step is charged for it, and what is cheap is not in the way.
TEST(Jinja, ChargesEachConstructByItsCost) {
  const std::string loop = "{% for i in range(2000) %}";
  const std::string shared =
      "{% set ns = namespace(l=[1], m=[1]) %}{% for i in range(40) %}"
      "{% set ns.l = [ns.l, ns.l] %}{% set ns.m = [ns.m, ns.m] %}{% endfor %}";
  const std::string text = "{% set t = 'a' * 2000000 %}{% set u = 'a' * 1000000 ~ 'b' %}";
  for (const std::string& hostile : {
           shared + "{{ ns.l is sameas ns.m }}",
           shared + "{{ [ns.l, ns.m]|unique|length }}",
           shared + "{{ ns.l == ns.m }}",
           shared + "{{ ns.l in [ns.m] }}",
           shared + "{{ ns.l|string|length }}",
           shared + "{{ ns.l|tojson|length }}",
           text + "{{ t.find(u) }}",
           text + "{{ u in t }}",
           text + "{{ t.count(u) }}",
           text + "{{ t.rsplit(u) }}",
           text + "{{ t.replace(u, '') }}",
           text + loop + "{{ t is upper }}{% endfor %}",
           text + loop + "{{ t|int }}{% endfor %}",
           text + loop + "{{ t|float }}{% endfor %}",
           text + loop + "{% if t < t ~ 'a' %}{% endif %}{% endfor %}",
           text + loop + "{% if {}[t] %}{% endif %}{{ {t: 1}[t] }}{% endfor %}",
           text + loop + "{{ t[0] }}{% endfor %}",
           text + loop + "{{ t|length }}{% endfor %}",
           text + loop + "{{ t.isdigit() }}{% endfor %}",
           text + loop + "{{ [t ~ 'b', t ~ 'a']|sort|length }}{% endfor %}",
           text + loop + "{{ [t, t]|max|length }}{% endfor %}",
           text + loop + "{{ [1]|map(attribute=t)|list|length }}{% endfor %}",
       }) {
    const std::string why = refusal(hostile);
    EXPECT_NE(why.find("the template "), std::string::npos) << hostile << ": " << why;
  }
  const std::string words = "{{ t.count('b') }} {{ 'b' in t }} {{ t.find('aab') }} {{ t|length }}";
  EXPECT_EQ(rendered("{% set t = 'a' * 1000000 ~ 'b' %}" + words), "1 True 999998 1000001");
  EXPECT_EQ(
      rendered(
          "{{ 'abcabc'.rsplit('bc', 1) }} {{ 'xaax'.replace('a', 'aa') }} {{ 'a'.find('ab') }}"),
      "['abca', ''] xaaaax -1");
}

TEST(Jinja, EndsARunThatNobodyWaitsFor) {
  const JinjaTemplate slow("{% for a in range(900000) %}{% endfor %}");
  int asked = 0;
  try {
    slow.render(Json::object(), {.waits = [&] { return ++asked < 100; }});
    ADD_FAILURE() << "it went on";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBusy);
  }
  EXPECT_EQ(asked, 100);
}

// Values and texts are paid for before they are made, and no longer than they are there.
TEST(Jinja, PaysForWhatItMakes) {
  constexpr uint64_t kMiB = 1 << 20;
  const auto run = [](std::string_view text, Json names, uint64_t limit) {
    MemoryBudget budget(limit);
    MemoryShare share(&budget);
    try {
      return JinjaTemplate(text).render(std::move(names), {.memory = &share});
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBusy) << error.what();
      return std::string("busy");
    }
  };
  const auto with = [](Json value) {
    Json names = Json::object();
    names["x"] = std::move(value);
    return names;
  };
  const Json lines = std::string(300'000, '\n');
  const Json zeros = Json(Json::Array(300'000, Json(0)));
  for (const char* text :
       {"{{ x.splitlines()|length }}", "{{ x|list|length }}", "{{ x.split('\n')|length }}"}) {
    EXPECT_EQ(run(text, with(lines), 16 * kMiB), "busy") << text;
    EXPECT_NE(run(text, with(lines), 256 * kMiB), "busy") << text;
  }
  EXPECT_EQ(run("{{ x|length }}", with(zeros), 8 * kMiB), "busy");
  EXPECT_EQ(run("{{ (x + x)|length }}", with(zeros), 32 * kMiB), "busy");
  EXPECT_EQ(run("{{ (x + x)|length }}", with(zeros), 128 * kMiB), "600000");
  EXPECT_EQ(run("{{ 'x' * 3000000 }}", Json::object(), kMiB), "busy");
  EXPECT_EQ(
      run("{% for i in range(99) %}{% set y = x ~ 'y' %}{% endfor %}ok", with(lines), 2 * kMiB),
      "ok");
}

// A loop is gone behind its end.
TEST(Jinja, KeepsNothingOfALoopBehindIt) {
  for (const char* kept : {"loop.cycle", "[loop.cycle]", "{'a': loop.cycle}", "(loop.cycle,)",
                           "dict(a=loop.cycle)", "namespace(a=loop.cycle)", "loop"}) {
    EXPECT_EQ(refusal(cat("{% set ns = namespace(f=0) %}{% for a in [1, 2] %}{% set ns.f = ", kept,
                          " %}{% endfor %}{{ ns.f(1, 2) }}")),
              "a LoopContext in another value is not supported")
        << kept;
  }
  EXPECT_EQ(
      rendered("{% for a in [1, 2, 3] %}{% set f = loop.cycle %}{{ f('x', 'y') }}{% endfor %}"),
      "xyx");
}

// Damaged templates are errors or texts, never crashes.
TEST(Jinja, SurvivesRandomDamage) {
  std::mt19937_64 random(5);
  const auto below = [&](size_t n) { return random() % n; };
  const std::string names =
      R"({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "<think>x</think>y"}], "tools": [{"a": 1}]})";
  for (const char* name : {"qwen3", "mistral", "llama3"}) {
    const std::string whole = slurp(kModels / "chat" / (std::string(name) + ".jinja"));
    for (int i = 0; i < 300; ++i) {
      std::string text = whole;
      for (size_t n = 1 + below(4); n > 0; --n) {
        const size_t at = below(text.size());
        below(2) == 0 ? void(text.erase(at, 1 + below(8)))
                      : void(text.insert(at, 1, "{}%-|.()[]'\"~ "[below(14)]));
      }
      try {
        rendered(text, names);
      } catch (const Error&) {
      }
    }
  }
}

}  // namespace
}  // namespace split
