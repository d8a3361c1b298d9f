// Measures what each format of weights costs: perplexity and KL divergence against f32 on the
// demo's held-out text, beside ggml's own rounding of the same weights.
#include <gtest/gtest.h>

#include <bit>

#include "io/quantize.h"
#include "support/exact/inputs.h"
#include "support/forwarding_device.h"
#include "support/golden_model.h"

namespace split {
namespace {

using test::Golden;

// ggml's rounding, stated once more and plainly (tests/golden/blocks/make.py says from where).
void ggml_block(DType to, const float* x, std::byte* out) {
  float largest = 0;
  for (size_t i = 0; i < kBlock; ++i) {
    if (std::fabs(x[i]) > std::fabs(largest)) largest = x[i];
  }
  if (to == DType::kQ8_0) {
    BlockQ8 block;
    const float d = std::fabs(largest) / 127.0f, inverse = d != 0 ? 1.0f / d : 0.0f;
    block.d = f32_to_f16(d);
    for (size_t i = 0; i < kBlock; ++i)
      block.q[i] = static_cast<int8_t>(std::round(x[i] * inverse));
    std::memcpy(out, &block, sizeof block);
    return;
  }
  BlockQ4 block;
  const float d = largest / -8.0f, inverse = d != 0 ? 1.0f / d : 0.0f;
  block.d = f32_to_f16(d);
  const auto q = [&](size_t i) {
    return std::min(15, static_cast<int>(static_cast<int8_t>(x[i] * inverse + 8.5f)));
  };
  for (size_t i = 0; i < kBlock / 2; ++i) {
    block.q[i] = static_cast<uint8_t>(q(i) | q(i + kBlock / 2) << 4);
  }
  std::memcpy(out, &block, sizeof block);
}

OwnedTensor ggml_quantised(const TensorView& matrix, DType to, bool transpose) {
  const OwnedTensor wide = converted(matrix, DType::kF32);
  const auto rows = static_cast<size_t>(matrix.dims[transpose ? 1 : 0]);
  const auto inner = static_cast<size_t>(matrix.dims[transpose ? 0 : 1]);
  CHECK(inner % kBlock == 0);
  OwnedTensor out;
  out.storage.resize(rows * inner / kBlock * block_bytes(to));
  for (size_t r = 0; r < rows; ++r) {
    for (size_t k = 0; k < inner; k += kBlock) {
      float x[kBlock];
      for (size_t i = 0; i < kBlock; ++i) {
        const size_t at = transpose ? (k + i) * rows + r : r * inner + k + i;
        std::memcpy(x + i, wide.storage.data() + at * sizeof(float), sizeof(float));
      }
      ggml_block(to, x, out.storage.data() + (r * inner + k) / kBlock * block_bytes(to));
    }
  }
  out.view = {to, {static_cast<int64_t>(rows), static_cast<int64_t>(inner)}, out.storage};
  return out;
}

TEST(StageFormats, AreWordsOrKinds) {
  const auto parse = [](std::string_view text) { return StageFormats::parse(text); };
  const DType f16 = DType::kF16, q8 = DType::kQ8_0, q4 = DType::kQ4_0;
  EXPECT_EQ(parse("auto"), StageFormats{});
  EXPECT_EQ(parse("f16"), (StageFormats{f16, f16, f16, f16}));
  EXPECT_EQ(parse("q8_0"), (StageFormats{{}, q8, {}, q8}));
  EXPECT_EQ(parse("q4_0"), (StageFormats{{}, q4, {}, q8}));
  EXPECT_EQ(parse("q4_0,head=q4_0"), (StageFormats{{}, q4, {}, q4}));
  EXPECT_EQ(parse("head=q8_0,block=q4_0"), parse("q4_0"));
  EXPECT_EQ(parse("head=q8_0"), (StageFormats{{}, {}, {}, q8}));
  EXPECT_EQ(parse("q8_0,embed=f16,head=auto"), (StageFormats{f16, q8, {}, {}}));
  EXPECT_EQ(parse("q4_0").of("block.11"), q4);
  EXPECT_EQ(parse("q4_0").of("head"), q8);
  EXPECT_EQ(parse("q4_0").of("embed"), std::nullopt);
  EXPECT_EQ(parse("auto").text(), "auto");
  EXPECT_EQ(parse("q8_0").text(), "block=q8_0,head=q8_0");
  for (const char* text : {"f16", "q4_0,embed=f16", "norm=f32", "head=q8_0,block=q4_0"}) {
    EXPECT_EQ(parse(parse(text).text()), parse(text)) << text;
  }
  const std::pair<const char*, const char*> bad[] = {
      {"", "expected auto, f32, f16, q8_0 or q4_0, got ''"},
      {"Q8_0", "got 'Q8_0'"},
      {"bf16", "got 'bf16'"},
      {"q8_0,", "expected KIND=FORMAT, got ''"},
      {"q8_0,q4_0", "expected KIND=FORMAT, got 'q4_0'"},
      {"tail=q8_0", "expected a format of embed, block, norm or head, got 'tail'"},
      {"block.3=q8_0", "got 'block.3'"},
      {"head=", "got ''"},
      {"head=q8_0,head=q4_0", "expected head once, got 'head=q4_0'"},
      {"embed=q8_0", "expected auto, f32 or f16 for embed, which is never quantised"},
      {"norm=q4_0", "for norm, which is never quantised"},
  };
  for (const auto& [text, message] : bad) {
    try {
      parse(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
    }
  }
}

// Weights that cannot be what the model multiplies by, as a hostile server may send them.
TEST(ShardFormats, RefuseWhatIsNoMatrixOfAProduct) {
  const Golden golden("rand-a");
  const auto device = make_cpu_device(1);
  const std::vector<std::byte> zeros(1 << 20);
  const auto load = [&](const std::string& formats, const std::string& name, DType dtype,
                        Dims dims) {
    ShardOptions options = test::options_for(*golden.model);
    options.formats = StageFormats::parse(formats);
    const WeightSource plain = golden.weights();
    const auto size = tensor_bytes(dtype, dims).value();
    const TensorView bad{dtype, dims, Bytes(zeros).first(size)};
    try {
      Shard(
          *device, *golden.model,
          [&](const std::string& asked) { return asked == name ? bad : plain.view(asked); },
          options);
      return std::string();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kShape) << error.what();
      return std::string(error.what());
    }
  };
  const DType q8 = DType::kQ8_0, q4 = DType::kQ4_0;
  EXPECT_EQ(load("auto", "h.0.mlp.c_fc.weight", q8, {384, 96}), "");
  EXPECT_EQ(load("q8_0", "h.0.mlp.c_fc.weight", q8, {384, 96}), "");
  EXPECT_EQ(load("q8_0", "lm_head.weight", q8, {311, 96}), "");
  EXPECT_NE(load("auto", "h.0.mlp.c_fc.weight", q8, {96, 384}), "");
  EXPECT_NE(load("q8_0", "h.0.mlp.c_fc.weight", q8, {96, 384}), "");
  EXPECT_NE(load("q8_0", "h.0.mlp.c_fc.weight", q4, {384, 96}), "");
  EXPECT_NE(load("q8_0", "h.0.mlp.c_fc.weight", DType::kF32, {384, 96}), "");
  EXPECT_NE(load("q8_0", "h.0.mlp.c_fc.weight", DType::kU8, {96, 384}), "");
  EXPECT_NE(load("auto", "h.0.mlp.c_fc.weight", DType::kU8, {96, 384}), "");
  EXPECT_NE(load("auto", "h.0.mlp.c_fc.weight", DType::kI32, {96, 384}), "");
  EXPECT_NE(load("auto", "wte.weight", q8, {311, 96}), "");
  EXPECT_NE(load("auto", "wpe.weight", q8, {64, 96}), "");
  EXPECT_NE(load("q8_0", "h.0.ln_1.weight", q8, {96, 1}), "");
  EXPECT_NE(load("q8_0", "h.0.mlp.c_fc.bias", DType::kU8, {384}), "");
}

// One way to hold the weights, and what it costs.
struct Side {
  std::unique_ptr<Shard> shard;
  std::map<std::string, OwnedTensor> rounded;  // by ggml
  Phase phase = Phase::kPrompt;
  double nll = 0, kl = 0;

  void ggml(const Golden& golden, const StageFormats& formats) {
    for (const Blob& blob : golden.model->blobs()) {
      for (const WeightDecl& decl : blob.weights) {
        if (decl.product == Product::kNone) continue;
        const DType to = *(decl.product == Product::kInOut ? formats.block : formats.head);
        if (!is_quantised(to)) continue;
        rounded[decl.name] =
            ggml_quantised(golden.checkpoint.at(decl.from.empty() ? decl.name : decl.from), to,
                           decl.product == Product::kInOut);
      }
    }
  }
};

class Formats : public testing::Test {
 protected:
  void add(const std::string& formats, bool ggml = false, Profile profile = Profile::kF32,
           std::optional<DType> kv = {}) {
    ShardOptions options = test::options_for(*golden_.model);
    options.profile = profile;
    options.kv = kv;
    options.formats = StageFormats::parse(formats);
    Side& side = *sides_.emplace_back(std::make_unique<Side>());
    if (ggml) side.ggml(golden_, options.formats);
    const WeightSource plain = golden_.weights();
    side.shard = std::make_unique<Shard>(
        *device_, *golden_.model,
        [&](const std::string& name) {
          const auto at = side.rounded.find(name);
          return at == side.rounded.end() ? plain.view(name) : at->second.view;
        },
        options);
  }

  // log p of every token of the vocabulary, row by row.
  std::vector<float> logprobs(Side& side, std::span<const int32_t> window) {
    Batcher batcher(*side.shard);
    const size_t vocab = side.shard->width(Point::head());
    const SequenceId sequence = side.shard->pages().open();
    std::vector<float> out = test::append(
        batcher, sequence, {.tokens = window, .phase = side.phase, .wanted = Wanted::kAll});
    side.shard->pages().close(sequence);
    for (size_t row = 0; row < window.size(); ++row) {
      float* const x = out.data() + row * vocab;
      const float largest = *std::max_element(x, x + vocab);
      double total = 0;
      for (size_t i = 0; i < vocab; ++i) total += double{std::exp(x[i] - largest)};
      const auto log_total = static_cast<float>(std::log(total));
      for (size_t i = 0; i < vocab; ++i) x[i] -= largest + log_total;
    }
    return out;
  }

  // The first side is what the others are compared with.
  void evaluate() {
    const auto ids = golden_.values<int32_t>("eval.ids");
    const auto context = static_cast<size_t>(golden_.model->config().context);
    const auto vocab = static_cast<size_t>(golden_.model->config().vocab);
    size_t count = 0;
    for (size_t at = 0; at < ids.size(); at += context) {
      const auto window = std::span(ids).subspan(at, context);
      std::vector<float> reference, weights;  // log p, and p
      for (const auto& side : sides_) {
        const std::vector<float> p = logprobs(*side, window);
        if (reference.empty()) {
          reference = weights = p;
          for (float& x : weights) x = std::exp(x);
        }
        for (size_t t = 0; t + 1 < context; ++t) {
          const size_t row = t * vocab;
          side->nll -= p[row + static_cast<size_t>(window[t + 1])];
          for (size_t i = row; i < row + vocab; ++i) {
            side->kl += double{weights[i]} * (double{reference[i]} - double{p[i]});
          }
        }
      }
      count += context - 1;
    }
    for (const auto& side : sides_) {
      side->nll /= static_cast<double>(count);
      side->kl /= static_cast<double>(count);
    }
  }

  double perplexity(const Side& side) const { return std::exp(side.nll); }
  // In percent of the first side's.
  double worse(const Side& side) const {
    return 100 * (perplexity(side) / perplexity(*sides_[0]) - 1);
  }

  const Golden golden_{"demo"};
  const std::unique_ptr<Device> device_ = make_cpu_device(2);
  std::vector<std::unique_ptr<Side>> sides_;
};

// The bounds are the project's own; the figures behind them are what was measured.
TEST_F(Formats, CostWhatIsStatedAndLessThanGgmlsRounding) {
  struct Bound {
    const char* formats;
    double percent, kl;
  };
  // Prompts', and generated rows'.
  constexpr Bound kBounds[] = {{"q8_0", 0.1, 3.5e-4},          // 0.015 %, 2.88e-4; 0.058 %, 2.76e-4
                               {"q4_0", 3, 0.035},             // 2.11 %, 0.0310; 2.13 %, 0.0309
                               {"q4_0,head=q4_0", 5, 0.046}};  // 3.63 %, 0.0414; 3.65 %, 0.0415
  add("f32");
  for (const Bound& bound : kBounds) {
    add(bound.formats, true);
    add(bound.formats);
    add(bound.formats);
    sides_.back()->phase = Phase::kGenerate;
  }
  evaluate();
  for (size_t i = 0; i < std::size(kBounds); ++i) {
    const Bound& bound = kBounds[i];
    const Side &ggml = *sides_[1 + 3 * i], &prompt = *sides_[2 + 3 * i],
               &generated = *sides_[3 + 3 * i];
    for (const Side* ours : {&prompt, &generated}) {
      EXPECT_LT(worse(*ours), bound.percent) << bound.formats;
      EXPECT_LT(ours->kl, bound.kl) << bound.formats;
      EXPECT_LT(worse(*ours), worse(ggml)) << bound.formats;
      EXPECT_LT(ours->kl, ggml.kl) << bound.formats;
      EXPECT_GT(ours->kl, bound.kl / 4) << bound.formats << ": nothing was rounded";
    }
    EXPECT_NE(prompt.kl, generated.kl) << bound.formats;
  }
}

// Measured: -0.026 %, 1.44e-4.
TEST_F(Formats, KeysAndValuesInBlocksCostLittle) {
  add("f32", false, Profile::kF16);
  add("f32", false, Profile::kF16, DType::kQ8_0);
  evaluate();
  const Side& blocks = *sides_[1];
  EXPECT_LT(std::abs(worse(blocks)), 0.1);
  EXPECT_LT(blocks.kl, 2e-4);
  EXPECT_GT(blocks.kl, 1e-7) << "nothing was rounded";
}

// Rows of products in int8 too.
TEST_F(Formats, TheInt8ProfileCostsWhatIsStated) {
  struct Bound {
    const char* formats;
    double percent, kl;
  };
  constexpr Bound kBounds[] = {{"q8_0", 0.3, 1.2e-3},  // 0.090 %, 9.7e-4
                               {"q4_0", 3, 0.035}};    // 2.18 %, 0.0316
  add("f32");
  for (const Bound& bound : kBounds) {
    add(bound.formats, false, Profile::kInt8);
    add(bound.formats);
  }
  evaluate();
  for (size_t i = 0; i < std::size(kBounds); ++i) {
    const Bound& bound = kBounds[i];
    const Side &int8 = *sides_[1 + 2 * i], &bf16 = *sides_[2 + 2 * i];
    EXPECT_LT(worse(int8), bound.percent) << bound.formats;
    EXPECT_LT(int8.kl, bound.kl) << bound.formats;
    EXPECT_GT(int8.kl, bf16.kl) << bound.formats << ": no row was rounded";
  }
}

// The phase of a row says how it is rounded, not the rows beside it.
TEST_F(Formats, Int8DecodeIsInt8ForGeneratedRowsAndBF16ForPrompts) {
  const auto ids = golden_.values<int32_t>("eval.ids");
  const auto bits = [&](Profile profile, const char* formats, Phase phase, size_t rows) {
    sides_.clear();
    add(formats, false, profile);
    sides_[0]->phase = phase;
    return logprobs(*sides_[0], std::span(ids).first(rows));
  };
  for (const auto& [blocks, formats] :
       {std::pair(Profile::kQ8_0, "q8_0"), {Profile::kQ4_0, "q4_0"}}) {
    for (const size_t rows : {size_t{1}, size_t{40}}) {
      EXPECT_EQ(bits(Profile::kInt8Decode, formats, Phase::kPrompt, rows),
                bits(blocks, formats, Phase::kPrompt, rows));
      EXPECT_EQ(bits(Profile::kInt8Decode, formats, Phase::kGenerate, rows),
                bits(Profile::kInt8, formats, Phase::kGenerate, rows));
    }
  }
  add("q8_0", false, Profile::kInt8Decode);
  EXPECT_FALSE(sides_.back()->shard->same_bits_in_both_phases());
}

// Weights of which every fifth output of a product is zeros, and every fifth number of a vector or
// table a denormal, or one whose products are some.
class WithDenormals {
 public:
  explicit WithDenormals(const Golden& golden) : from_(golden.weights()), model_(*golden.model) {}
  WeightSource source() {
    return [this](const std::string& name) {
      const TensorView view = from_.view(name);
      if (view.dtype != DType::kF32) return view;
      const Product product = model_.weight(name).product;
      std::vector<std::byte>& own = changed_[name];
      own.assign(view.bytes.begin(), view.bytes.end());
      constexpr uint32_t kTiny[] = {0x00000123, 0x80654321, 0x00800000, 0x8c000001};
      const auto columns = static_cast<size_t>(view.dims.back());
      for (size_t i = 0; i * sizeof(float) < own.size(); ++i) {
        const size_t output = product == Product::kOutIn ? i / columns : i % columns;
        const uint32_t bits = product == Product::kNone ? kTiny[output / 5 % 4] : 0;
        if (output % 5 == 0) std::memcpy(own.data() + i * sizeof(float), &bits, sizeof bits);
      }
      return TensorView{view.dtype, view.dims, own};
    };
  }

 private:
  const WeightSource from_;
  const Model& model_;
  std::map<std::string, std::vector<std::byte>> changed_;
};

// FTZ and DAZ, which other code of a process may have set: whole models, over texts and over rows
// of all kinds, also by weights that are denormals.
TEST(ShardFormats, FlushedDenormalsChangeNoBitOfInt8) {
  int n = 0;
  for (const char* name :
       {"rand-a", "demo", "models/llama3", "models/qwen3", "models/gemma3", "models/qwen35",
        "models/gemma4", "rand-a", "models/llama3", "models/gemma2", "models/gemma4"}) {
    const bool denormals = ++n > 7;
    const Golden golden(name);
    WithDenormals changed(golden);
    const ModelConfig& config = golden.model->config();
    std::vector<int32_t> ids(40);
    for (size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<int32_t>((i * i + 3) % static_cast<size_t>(config.vocab));
    }
    const auto width = static_cast<size_t>(config.row_width(0));
    std::vector<float> results[2];
    for (const bool flush : {false, true}) {
      const test::Flush mode(flush);
      const auto device = make_cpu_device(2);
      ShardOptions options = test::options_for(*golden.model);
      options.profile = Profile::kInt8;
      options.formats = StageFormats::parse("q8_0");
      Shard shard(*device, *golden.model, denormals ? changed.source() : golden.weights(), options);
      const auto run = [&](test::Line& line, const SequenceRows& rows) {
        const auto got = line.run(rows);
        results[flush].insert(results[flush].end(), got.begin(), got.end());
      };
      for (const Point to : {Point(1), Point(config.layers), Point::head()}) {
        test::Line line(shard);
        for (const size_t rows : {13, 1, 4, 1, 2}) {
          const auto part = std::span(ids).subspan(shard.pages().length(line.id), rows);
          run(line, {.range = {.to = to}, .tokens = part, .wanted = Wanted::kAll});
        }
      }
      for (const test::Kind kind : test::kKinds) {
        test::Line line(shard);
        const auto rows = test::activations(3 * width, 4, kind);
        run(line, {.range = {0, config.layers},
                   .hidden = rows,
                   .width = static_cast<uint32_t>(width),
                   .wanted = Wanted::kAll});
      }
    }
    EXPECT_EQ(std::memcmp(results[0].data(), results[1].data(), results[0].size() * sizeof(float)),
              0)
        << name << (denormals ? " with denormals" : "");
    EXPECT_EQ(results[0].size(), results[1].size());
  }
}

TEST(ShardFormats, TheInt8ProfileIsRefusedByDevicesWithoutItsProducts) {
  const test::ForwardingDevice plain(make_cpu_device(1));
  EXPECT_NO_THROW(expect_profile(plain, Profile::kQ8_0));
  EXPECT_NO_THROW(expect_profile(*make_cpu_device(1), Profile::kInt8));
  for (const Profile profile : {Profile::kInt8, Profile::kInt8Decode}) {
    try {
      expect_profile(plain, profile);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      EXPECT_EQ(error.what(), cat("profile ", profile_name(profile), ": ", plain.name(),
                                  " has no such products, expected the CPU (--device cpu)"));
    }
  }
}

TEST(ShardFormats, KeysAndValuesInBlocksNeedHeadsOfWholeBlocks) {
  const Golden golden("rand-b");  // heads of 20
  const auto device = make_cpu_device(1);
  ShardOptions options = test::options_for(*golden.model);
  options.kv = DType::kQ8_0;
  try {
    const Shard shard(*device, *golden.model, golden.weights(), options);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    EXPECT_STREQ(error.what(),
                 "[shard] keys and values in q8_0: expected heads of a multiple of 32, got 20");
  }
}

// Measured: 0.005 %, 1.81e-4.
TEST_F(Formats, TheBF16ProfileCostsLittle) {
  add("f32");
  add("auto", false, Profile::kBF16);
  evaluate();
  const Side& bf16 = *sides_[1];
  EXPECT_LT(std::abs(worse(bf16)), 0.1);
  EXPECT_LT(bf16.kl, 2e-4);
  EXPECT_GT(bf16.kl, 1e-7) << "nothing was rounded";
}

}  // namespace
}  // namespace split
