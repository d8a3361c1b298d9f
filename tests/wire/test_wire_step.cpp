// Steps on the wire, in both of their forms: what is written is read as it was, bytes are those
// that other programs know, and what is wrong is named.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "base/error.h"
#include "io/weight_file.h"
#include "io/write_safetensors.h"
#include "tensor/blocks.h"
#include "wire/load_note.h"
#include "wire/step.h"

namespace split::wire {
namespace {

using QueryFields = std::vector<std::pair<std::string, std::string>>;

ModelConfig config() {
  ModelConfig config;
  config.layers = 3;
  config.channels = 2;
  config.vocab = 50;
  config.context = 8;
  return config;
}

// "past=3&rows=all" as a server has it.
QueryFields split_query(const std::string& text) {
  QueryFields fields;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('&', at), text.size()), is = text.find('=', at);
    fields.emplace_back(text.substr(at, is - at), text.substr(is + 1, end - is - 1));
    at = end + 1;
  }
  return fields;
}

template <typename Call>
std::string refused_field(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput) << error.what();
    return error.what();
  }
  return "nothing is refused";
}

void expect_refusal(const std::string& got, std::string_view field) {
  EXPECT_TRUE(got.starts_with("'" + std::string(field) + "'")) << got << ", not " << field;
}

std::string fill_json(uint32_t past, uint32_t count, Point to, const Wanted& wanted,
                      DType wire = DType::kF32, std::optional<uint64_t> digest = {}) {
  return step_json({.past = past, .wanted = wanted},
                   {.to = to, .fill = true, .count = count, .digest = digest, .wire = wire});
}

const std::vector<int32_t> kTokens = {5, 9, 31};
const std::vector<float> kHidden = {0.5f, 1, 1.5f, -2};

TEST(WireStep, IsTheJsonThatServersKnow) {
  const SequenceRows rows{.past = 4, .tokens = kTokens, .phase = Phase::kGenerate};
  EXPECT_EQ(step_json(rows), R"({"past":4,"phase":"generate","rows":"last","tokens":[5,9,31]})");
  EXPECT_EQ(step_json(rows, {.to = 2}),
            R"({"past":4,"phase":"generate","rows":"last","to":2,"tokens":[5,9,31]})");
  EXPECT_EQ(fill_json(16, 256, 3, Wanted::kAll),
            R"({"count":256,"fill":true,"past":16,"rows":"all","to":3})");
  EXPECT_EQ(step_json(rows, {.digest = 0x0123456789abcdef}),
            R"({"digest":"0123456789abcdef","past":4,"phase":"generate","rows":"last",)"
            R"("tokens":[5,9,31]})");
  EXPECT_EQ(parse_step(step_json(rows, {.digest = 0xf}), config()).digest, 0xfu);
  EXPECT_EQ(parse_step(fill_json(0, 1, 2, Wanted::kAll, DType::kF32, UINT64_MAX), config()).digest,
            UINT64_MAX);
  EXPECT_EQ(parse_step(step_json(rows), config()).digest, std::nullopt);
  EXPECT_EQ(step_json(rows, {.again = true}),
            R"({"again":true,"past":4,"phase":"generate","rows":"last","tokens":[5,9,31]})");
  EXPECT_TRUE(parse_step(step_json(rows, {.again = true}), config()).again);
  EXPECT_FALSE(parse_step(step_json(rows), config()).again);
}

constexpr DType kRounded[] = {DType::kF16, DType::kQ8_0};

std::vector<float> sent(const std::vector<float>& values, uint32_t columns, DType format) {
  const auto rows = static_cast<uint32_t>(values.size()) / columns;
  const std::string body = frame("hidden", rows, columns, values, {.format = format});
  return parse_frame(as_bytes_of(body), "hidden", columns, rows).values;
}

// Rows of many sizes: some all near one another, some with one value far beyond the others, some
// that a half has no normal number for.
std::vector<float> rows_of_many_sizes(uint32_t columns) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> values;
  for (const float scale : {1e-9f, 3e-6f, 1e-4f, 0.1f, 1.0f, 50.0f, 9000.0f}) {
    for (int row = 0; row < 40; ++row) {
      for (uint32_t i = 0; i < columns; ++i) values.push_back(scale * normal(random));
      if (row % 4 == 0) values[values.size() - 1 - random() % columns] = scale * 7;
    }
  }
  return values;
}

TEST(WireRows, AreRoundedByNoMoreThanTheirFormatSays) {
  for (const uint32_t columns : {1u, 31u, 32u, 96u, 100u}) {
    const std::vector<float> values = rows_of_many_sizes(columns);
    EXPECT_EQ(sent(values, columns, DType::kF32), values);
    const std::vector<float> halves = sent(values, columns, DType::kF16);
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_LE(std::abs(halves[i] - values[i]), std::max(std::abs(values[i]) * 0x1p-11f, 0x1p-25f))
          << values[i];
    }
    const std::vector<float> blocks = sent(values, columns, DType::kQ8_0);
    for (size_t row = 0; row < values.size(); row += columns) {
      for (size_t at = row; at < row + columns; at += kBlock) {
        const size_t end = std::min(row + columns, at + kBlock);
        double largest = 0, squares = 0;
        for (size_t i = at; i < end; ++i) {
          largest = std::max(largest, std::abs(double{values[i]}));
          squares += std::pow(double{blocks[i]} - values[i], 2);
        }
        // A block that ends the row is filled up with zeros, which are exact.
        ASSERT_LE(std::sqrt(squares / kBlock), largest / 224 + 0x1p-18)
            << columns << " columns, largest " << largest;
      }
    }
    // Rounding again changes nothing: a row that is sent twice is the same row.
    for (const DType format : kRounded) {
      EXPECT_EQ(sent(values, columns, format), sent(values, columns, format));
    }
    EXPECT_EQ(sent(halves, columns, DType::kF16), halves);
  }
}

TEST(WireRows, TakeThePartOfTheBytesThatTheirFormatSays) {
  const std::vector<float> values(size_t{512} * 768, 1.5f);
  const auto bytes = [&](DType format) {
    return static_cast<double>(frame("hidden", 512, 768, values, {.format = format}).size());
  };
  EXPECT_NEAR(bytes(DType::kF16) / bytes(DType::kF32), 0.5, 0.001);
  EXPECT_NEAR(bytes(DType::kQ8_0) / bytes(DType::kF32), 34.0 / 128, 0.001);
}

TEST(WireRows, AValueThatAFormatCannotHoldIsNamedAndNotSent) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::pair<DType, float> cases[] = {
      {DType::kF16, 65505},   {DType::kF16, -1e30f},
      {DType::kQ8_0, 8.4e6f}, {DType::kQ8_0, std::numeric_limits<float>::infinity()},
      {DType::kF16, nan},     {DType::kQ8_0, nan}};
  for (const auto& [format, value] : cases) {
    const std::vector<float> row = {1, value};
    try {
      frame("hidden", 1, 2, row, {.format = format, .field = "wire"});
      ADD_FAILURE() << value << " is sent";
    } catch (const Error& error) {
      EXPECT_EQ(error.field(), "wire");
      EXPECT_NE(std::string(error.what()).find("ask for f32"), std::string::npos) << error.what();
    }
  }
  EXPECT_EQ(sent({65504, -65504}, 2, DType::kF16), (std::vector<float>{65504, -65504}));
}

// A frame of q8_0 whose words about itself are these.
std::string blocks_described(const std::string& described, Dims dims, size_t bytes) {
  const std::vector<std::byte> zeros(bytes);
  const NamedTensor tensor{"hidden", {DType::kU8, std::move(dims), zeros}};
  return write_safetensors(std::span(&tensor, 1), {{"hidden", described}});
}

TEST(WireRows, BlocksThatAreNotAsManyAsTheySayAreRefused) {
  const auto refused = [](const std::string& body) {
    return refused_field([&] { parse_frame(as_bytes_of(body), "hidden", 64, 1024); });
  };
  const std::string good = blocks_described("q8_0 [2, 64]", {2, 68}, 136);
  EXPECT_EQ(parse_frame(as_bytes_of(good), "hidden", 64, 1024).values, std::vector<float>(128));
  const std::tuple<const char*, Dims, size_t> bad[] = {
      {"q8_0 [3, 64]", {2, 68}, 136},
      {"q8_0 [2, 96]", {2, 68}, 136},
      {"q8_0 [2, 64]", {4, 34}, 136},
      {"q8_0 [2, 64]", {2, 67}, 134},
      {"q8_0 [2, 32]", {2, 34}, 68},
      {"q4_0 [2, 64]", {2, 36}, 72},
      {"q6_k [2, 256]", {2, 210}, 420},
      {"q8_0", {2, 68}, 136},
      {"q8_0 [0, 64]", {0, 68}, 0},
      {"q8_0 [1025, 64]", {1025, 68}, 1025 * 68},
      {"q8_0 [1099511627776, 1099511627776]", {2, 68}, 136},
      {"q8_0 [-2, 64]", {2, 68}, 136},
      {"f16 [2, 64]", {2, 128}, 256},
  };
  for (const auto& [described, dims, bytes] : bad) {
    EXPECT_NE(refused(blocks_described(described, dims, bytes)), "nothing is refused") << described;
  }
  std::string infinite = good;  // the first block's scale
  infinite[good.size() - 135] = '\x7c';
  EXPECT_NE(refused(infinite).find("row 0 column 0 is not finite"), std::string::npos)
      << refused(infinite);
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_NE(refused(good.substr(0, size)), "nothing is refused") << size;
  }
}

TEST(WireRows, AreAskedForByNameAndUnknownNamesAreRefused) {
  const SequenceRows rows{.past = 4, .tokens = kTokens, .phase = Phase::kGenerate};
  EXPECT_EQ(step_json(rows, {.wire = DType::kF16}),
            R"({"past":4,"phase":"generate","rows":"last","tokens":[5,9,31],"wire":"f16"})");
  EXPECT_EQ(fill_json(16, 4, 3, Wanted::kAll, DType::kQ8_0),
            R"({"count":4,"fill":true,"past":16,"rows":"all","to":3,"wire":"q8_0"})");
  SequenceRows text = rows;
  text.range.to = 2;
  EXPECT_EQ(forward_json(text, DType::kQ8_0),
            R"({"dtype":"q8_0","rows":"last","to":2,"tokens":[5,9,31]})");
  text.range.to = Point::head();
  EXPECT_EQ(forward_json(text, DType::kQ8_0), forward_json(text)) << "logits are f32";
  const SequenceRows hidden{.range = {2, 3}, .hidden = kHidden, .width = 2, .wanted = Wanted::kAll};
  EXPECT_EQ(forward_query(hidden, DType::kF16), "from=2&to=3&rows=all&dtype=f16");
  for (const DType format : kRounded) {
    EXPECT_EQ(parse_step(step_json(rows, {.wire = format}), config()).wire, format);
    EXPECT_EQ(parse_step(fill_json(0, 1, 2, Wanted::kAll, format), config()).wire, format);
    const std::string body = hidden_frame(hidden, format);
    const StepRequest step = parse_step(split_query(cat("past=0&wire=", format_name(format))),
                                        as_bytes_of(body), config());
    EXPECT_EQ(step.wire, format);
    EXPECT_EQ(step.received.rows.count(), 2u);
    const ForwardRequest forward =
        parse_forward(split_query(forward_query(hidden, format)), as_bytes_of(body), config());
    EXPECT_EQ(forward.format, format);
  }
  const auto never = [](const std::string&, bool) { return std::vector<int32_t>(); };
  for (const char* name : {"f64", "F16", "bf16", "q4_0", "q8", ""}) {
    expect_refusal(refused_field([&] {
                     parse_step(cat(R"({"past":0,"tokens":[1],"wire":")", name, "\"}"), config());
                   }),
                   "wire");
    const std::string body = hidden_frame(hidden);
    expect_refusal(refused_field([&] {
                     parse_step(split_query(cat("past=0&wire=", name)), as_bytes_of(body),
                                config());
                   }),
                   "wire");
    expect_refusal(refused_field([&] {
                     parse_forward(cat(R"({"tokens":[1],"to":1,"dtype":")", name, "\"}"), config(),
                                   never);
                   }),
                   "dtype");
  }
  expect_refusal(
      refused_field([&] { parse_forward(R"({"tokens":[1],"dtype":"q8_0"})", config(), never); }),
      "dtype");
}

TEST(WireLoad, IsReadAsItWasWritten) {
  const LoadNote asked{.want = 6, .price = 0.4, .draft = 3};
  EXPECT_EQ(to_text(asked), "want=6, price=0.40, draft=3");
  EXPECT_EQ(to_text(LoadNote()), "price=0.00, draft=7");
  for (const LoadNote& note : {asked, LoadNote(), LoadNote{0, 1, 0}, LoadNote{{}, 0, 7, 48},
                               LoadNote{.bits = bits_mark("exact1; x")}}) {
    EXPECT_EQ(parse_load_note(to_text(note)), note);
  }
  EXPECT_EQ(parse_load_note("want=6, other=x, draft=3"), (LoadNote{6, 0, 3}));
  for (const char* text :
       {"want=", "want=-1", "cached=-1", "cached=4294967296", "want=x", "want=1025", "draft=8",
        "price=1.01", "price=-0.1", "price=nan", "price=0.4", "want=6,draft=3",
        "bits=", "bits=0123456789abcde", "bits=0123456789abcdeX"}) {
    EXPECT_EQ(parse_load_note(text), std::nullopt) << text;
  }
}

TEST(WireStep, GoesWhereItSays) {
  const std::pair<const char*, Point> points[] = {
      {"0", 0}, {"3", 3}, {"\"norm\"", Point::norm()}, {"\"head\"", Point::head()}};
  for (const auto& [text, point] : points) {
    const StepRequest step = parse_step(
        cat(R"({"past":0,"tokens":[1],"rows":"none","can":1,"to":)", text, "}"), config());
    EXPECT_EQ(step.to, point);
    EXPECT_EQ(step.can, 1);
    EXPECT_FALSE(step.fill);
    EXPECT_EQ(step.received.rows.wanted, Wanted::kNone);
    const StepRequest again = parse_step(step_json(step.received.rows, {.to = step.to}), config());
    EXPECT_EQ(again.to, point);
    EXPECT_EQ(again.received.rows.wanted, Wanted::kNone);
  }
  const StepRequest plain = parse_step(R"({"past":0,"tokens":[1],"fill":false})", config());
  EXPECT_FALSE(plain.to || plain.can || plain.fill);
}

TEST(WireStep, AFillIsRowsThatAreThere) {
  for (const Wanted wanted : {Wanted::kAll, Wanted::kLast, Wanted::kNone}) {
    const StepRequest fill = parse_step(fill_json(3, 5, Point::norm(), wanted), config());
    EXPECT_TRUE(fill.fill && fill.received.rows.tokens.empty());
    EXPECT_EQ(fill.received.rows.past, 3u);
    EXPECT_EQ(fill.count, 5u);
    EXPECT_EQ(fill.to, Point::norm());
    EXPECT_EQ(fill.received.rows.wanted, wanted);
  }
}

TEST(WireStep, IsReadAsItWasWritten) {
  const std::string body = frame("hidden", 2, 2, kHidden);
  for (const Phase phase : {Phase::kPrompt, Phase::kGenerate}) {
    for (const Wanted& wanted : {Wanted(Wanted::kAll), Wanted(Wanted::kLast)}) {
      SequenceRows rows{.past = 4, .tokens = kTokens, .phase = phase, .wanted = wanted};
      const ReceivedRows json = parse_step(step_json(rows), config()).received;
      const std::string words =
          cat("past=4&phase=", phase == Phase::kPrompt ? "prompt" : "generate",
              "&rows=", wanted == Wanted(Wanted::kAll) ? "all" : "last");
      const ReceivedRows query =
          parse_step(split_query(words), std::as_bytes(std::span(body)), config()).received;
      for (const ReceivedRows* received : {&json, &query}) {
        EXPECT_EQ(received->rows.past, 4u);
        EXPECT_EQ(received->rows.phase, phase);
        EXPECT_EQ(received->rows.wanted, wanted);
      }
      EXPECT_TRUE(std::ranges::equal(json.rows.tokens, kTokens) && json.rows.hidden.empty());
      EXPECT_TRUE(std::ranges::equal(query.rows.hidden, kHidden) && query.rows.tokens.empty());
      EXPECT_EQ(query.rows.count(), 2u);
    }
  }
}

TEST(WireStep, RowsThatMoveTakeTheirTokensAlong) {
  ReceivedRows from = parse_step(R"({"past":0,"tokens":[1,2,3]})", config()).received;
  const ReceivedRows to = std::move(from);
  EXPECT_TRUE(std::ranges::equal(to.rows.tokens, std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(to.rows.phase, Phase::kPrompt);
  EXPECT_EQ(to.rows.wanted, Wanted::kAll);
}

TEST(WireStep, NamesTheFieldThatIsWrong) {
  const std::pair<const char*, const char*> bodies[] = {
      {R"({"tokens":[1]})", "past"},
      {R"({"past":-1,"tokens":[1]})", "past"},
      {R"({"past":0})", "tokens"},
      {R"({"past":0,"tokens":[1],"phase":"decode"})", "phase"},
      {R"({"past":0,"tokens":[1],"rows":"first"})", "rows"},
      {R"({"past":0,"tokens":[1],"rows":[0]})", "rows"},
      {R"({"past":0,"tokens":[1],"to":4})", "to"},
      {R"({"past":0,"tokens":[1],"to":-1})", "to"},
      {R"({"past":0,"tokens":[1],"to":"2"})", "to"},
      {R"({"past":0,"tokens":[1],"to":"top"})", "to"},
      {R"({"past":0,"tokens":[1],"to":[]})", "to"},
      {R"({"past":0,"tokens":[1],"can":4})", "can"},
      {R"({"past":0,"tokens":[1],"can":"norm"})", "can"},
      {R"({"past":0,"tokens":[1],"count":1})", "count"},
      {R"({"past":0,"tokens":[1],"fill":1})", "fill"},
      {R"({"past":0,"fill":true})", "count"},
      {R"({"count":1,"fill":true})", "past"},
      {R"({"past":0,"count":0,"fill":true})", "count"},
      {R"({"past":0,"count":9,"fill":true})", "count"},
      {R"({"past":0,"count":1,"fill":true,"tokens":[1]})", "tokens"},
      {R"({"past":0,"count":1,"fill":true,"phase":"prompt"})", "phase"},
      {R"({"past":0,"count":1,"fill":true,"rows":[0]})", "rows"},
      {R"({"past":0,"tokens":[1],"digest":7})", "digest"},
      {R"({"past":0,"tokens":[1],"digest":"0123456789abcde"})", "digest"},
      {R"({"past":0,"tokens":[1],"digest":"0123456789ABCDEF"})", "digest"},
  };
  for (const auto& [body, field] : bodies) {
    expect_refusal(refused_field([&, text = body] { parse_step(text, config()); }), field);
  }
  const std::string body = frame("hidden", 1, 2, std::span(kHidden).first(2));
  const std::pair<const char*, const char*> queries[] = {
      {"phase=prompt", "past"},         {"past=x", "past"},          {"past=1&past=1", "past"},
      {"past=1&phase=Prompt", "phase"}, {"past=1&rows=0,1", "rows"}, {"past=1&to=4", "to"},
      {"past=1&fill=true", "fill"},
  };
  for (const auto& [query, field] : queries) {
    expect_refusal(refused_field([&, text = query] {
                     parse_step(split_query(text), std::as_bytes(std::span(body)), config());
                   }),
                   field);
  }
}

std::vector<int32_t> never(const std::string&, bool) { throw std::logic_error("no prompt"); }

TEST(WireForward, IsWhatServersKnowAndReadAsItWasWritten) {
  const SequenceRows norms{
      .range = {.to = Point::norm()}, .tokens = kTokens, .wanted = Wanted::kAll};
  EXPECT_EQ(forward_json(norms), R"({"rows":"all","to":"norm","tokens":[5,9,31]})");
  SequenceRows blocks = norms;
  blocks.range.to = 2;
  EXPECT_EQ(forward_json(blocks), R"({"rows":"all","to":2,"tokens":[5,9,31]})");
  EXPECT_EQ(parse_forward(forward_json(blocks), config(), never).received.rows.range.to, Point(2));
  const ForwardRequest json = parse_forward(forward_json(norms), config(), never);
  EXPECT_EQ(json.received.rows.range, norms.range);
  EXPECT_EQ(json.received.rows.wanted, norms.wanted);
  EXPECT_TRUE(std::ranges::equal(json.received.rows.tokens, kTokens));
  EXPECT_EQ(json.top, 0);

  SequenceRows rows{
      .range = {3, Point::head()}, .hidden = kHidden, .width = 2, .wanted = Wanted::kAll};
  EXPECT_EQ(forward_query(rows), "from=3&rows=all");
  for (const StageRange& range :
       {StageRange{3, Point::head()}, StageRange{0, 2}, StageRange{1, Point::norm()}}) {
    rows.range = range;
    const std::string body = hidden_frame(rows);
    const ForwardRequest query =
        parse_forward(split_query(forward_query(rows)), std::as_bytes(std::span(body)), config());
    EXPECT_EQ(query.received.rows.range, range);
    EXPECT_TRUE(std::ranges::equal(query.received.rows.hidden, kHidden));
  }
}

TEST(WireForward, EndsAtTheHeadWithItsLastRowOrElsewhereWithAll) {
  const auto rows_of = [](const std::string& fields) {
    return parse_forward(R"({"tokens":[1,2,3])" + fields + "}", config(), never);
  };
  EXPECT_EQ(rows_of("").received.rows.range, StageRange());
  EXPECT_EQ(rows_of("").received.rows.wanted, Wanted::kLast);
  EXPECT_EQ(rows_of(R"(,"to":2)").received.rows.wanted, Wanted::kAll);
  EXPECT_EQ(rows_of(R"(,"rows":[0,2])").received.rows.wanted, Wanted({0, 2}));
  EXPECT_EQ(rows_of(R"(,"to":"head","top":5)").top, 5);
  const auto encode = [](const std::string& prompt, bool special) {
    return std::vector<int32_t>{static_cast<int32_t>(prompt.size()), special ? 1 : 0};
  };
  const ForwardRequest said =
      parse_forward(R"({"prompt":"abc","special":false})", config(), encode);
  EXPECT_TRUE(std::ranges::equal(said.received.rows.tokens, std::vector<int32_t>{3, 0}));
}

TEST(WireForward, NamesTheFieldThatIsWrong) {
  const std::pair<const char*, const char*> bodies[] = {
      {R"({"tokens":[]})", "tokens"},
      {R"({"tokens":[50]})", "tokens"},
      {R"({"tokens":[1],"prompt":"a"})", "prompt"},
      {R"({"tokens":[1],"from":1})", "from"},
      {R"({"tokens":[1],"to":4})", "to"},
      {R"({"tokens":[1],"to":-1})", "to"},
      {R"({"tokens":[1],"to":"2"})", "to"},
      {R"({"tokens":[1],"to":"top"})", "to"},
      {R"({"tokens":[1],"rows":"first"})", "rows"},
      {R"({"tokens":[1],"rows":"0"})", "rows"},
      {R"({"tokens":[1],"rows":[]})", "rows"},
      {R"({"tokens":[1],"rows":[1]})", "rows"},
      {R"({"tokens":[1,2],"rows":[1,0]})", "rows"},
      {R"({"tokens":[1],"to":1,"top":2})", "top"},
      {R"({"tokens":[1],"top":51})", "top"},
  };
  for (const auto& [body, field] : bodies) {
    expect_refusal(refused_field([&, text = body] { parse_forward(text, config(), never); }),
                   field);
  }
  const std::string body = frame("hidden", 2, 2, kHidden);
  const std::pair<const char*, const char*> queries[] = {
      {"from=4", "from"}, {"from=norm", "from"},    {"from=2&to=1", "to"}, {"to=4", "to"},
      {"rows=", "rows"},  {"rows=0,,1", "rows"},    {"rows=2", "rows"},    {"rows=1,0", "rows"},
      {"top=0", "top"},   {"to=norm&top=1", "top"}, {"past=0", "past"},
  };
  for (const auto& [query, field] : queries) {
    expect_refusal(refused_field([&, text = query] {
                     parse_forward(split_query(text), std::as_bytes(std::span(body)), config());
                   }),
                   field);
  }
}

TEST(WireRange, IsAllOfAModelWithoutAQuery) {
  ModelConfig config;
  config.layers = 3;
  EXPECT_EQ(parse_range({}, config), StageRange());
  EXPECT_EQ(parse_range(QueryFields{{"from", "0"}, {"to", "2"}}, config), (StageRange{0, 2}));
  EXPECT_EQ(parse_range(QueryFields{{"to", "norm"}}, config), StageRange{.to = Point::norm()});
  config.kind = ModelKind::kEncoder;
  EXPECT_EQ(parse_range({}, config), StageRange{.to = 3}) << "no head";
  EXPECT_EQ(parse_range(QueryFields{{"to", "norm"}}, config), StageRange{.to = 3});
  const StageRange below{.to = 2}, above{2, Point::head()};
  EXPECT_EQ(model_query("q8_0", below), "?format=q8_0&to=2");
  EXPECT_EQ(model_query("q8_0", above), "?format=q8_0&from=2&to=head");
}

TEST(WireSession, FromTheFirstBlockIsFromTokens) {
  const SessionRequest whole = parse_session_request(R"({"model":"m","cut":2})");
  EXPECT_EQ(whole.range, (StageRange{Point::tokens(), 2}));
  EXPECT_TRUE(whole.cut);
  EXPECT_EQ(to_json(whole), R"({"from":0,"model":"m","to":2})");
  const SessionRequest middle = parse_session_request(R"({"from":1,"to":2})");
  EXPECT_EQ(middle.range, (StageRange{1, 2}));
  EXPECT_EQ(parse_session_request(to_json(middle)), middle);
}

}  // namespace
}  // namespace split::wire
