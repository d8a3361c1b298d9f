// Files of weights with matrices in blocks: as they are written, read and refused, and checkpoints
// made of them.
#include <gtest/gtest.h>

#include <random>

#include "io/checkpoint.h"
#include "io/quantize.h"
#include "io/weight_file.h"
#include "io_testing.h"
#include "support/attack_files.h"

namespace split {
namespace {

namespace fs = std::filesystem;

struct Matrices {
  explicit Matrices(int64_t rows = 5, int64_t inner = 45)
      : values(static_cast<size_t>(rows * inner)) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    for (float& value : values) value = normal(random);
    plain = {DType::kF32, {rows, inner}, std::as_bytes(std::span(values))};
    q8 = quantised(plain, DType::kQ8_0, false, "q8");
    q4 = quantised(plain, DType::kQ4_0, false, "q4");
    tensors = {{"w8", q8.view}, {"plain", plain}, {"w4", q4.view}};
  }
  std::vector<float> values;
  TensorView plain;
  OwnedTensor q8, q4;
  std::vector<NamedTensor> tensors;
};

template <typename Tensors>
void expect_same(const Tensors& got, const std::vector<NamedTensor>& tensors) {
  for (const auto& [name, view] : tensors) {
    EXPECT_EQ(got.at(name).dtype, view.dtype) << name;
    EXPECT_EQ(got.at(name).dims, view.dims) << name;
    EXPECT_TRUE(std::ranges::equal(got.at(name).bytes, view.bytes)) << name;
  }
}

TEST(WeightFile, KeepsQuantisedAndOtherTensors) {
  const Matrices matrices;
  const std::string file = write_weight_file(matrices.tensors);
  EXPECT_EQ(file, write_weight_file(matrices.tensors));
  const auto parsed = parse_weight_file(as_bytes_of(file), "FILE");
  ASSERT_EQ(parsed.size(), 3u);
  expect_same(parsed, matrices.tensors);
  // The file as any reader of safetensors sees it.
  const Safetensors plain = Safetensors::parse(as_bytes_of(file), "FILE");
  EXPECT_EQ(plain.tensors().at("w8").dtype, DType::kU8);
  EXPECT_EQ(plain.tensors().at("w8").dims, (Dims{5, 68}));
  EXPECT_EQ(plain.metadata(),
            (Safetensors::Metadata{{"w8", "q8_0 [5, 45]"}, {"w4", "q4_0 [5, 45]"}}));
}

TEST(WeightFile, HasAHeaderBeforeThereAreBytes) {
  Matrices matrices;
  const std::string expected = weight_file_header(matrices.tensors);
  for (NamedTensor& tensor : matrices.tensors) tensor.view.bytes = {};
  EXPECT_EQ(weight_file_header(matrices.tensors), expected);
}

TEST(WeightFile, IsACheckpointWhereItLies) {
  const TemporaryFolder dir;
  const Matrices matrices;
  std::vector<NamedTensor> prefixed = matrices.tensors;
  for (NamedTensor& tensor : prefixed) tensor.name = "transformer." + tensor.name;
  write_file(dir.path / "model.safetensors", as_bytes_of(write_weight_file(prefixed)));
  write_file(dir.path / "config.json", as_bytes_of(R"({"model_type": "gpt2"})"));
  const Checkpoint checkpoint(dir.path);
  EXPECT_EQ(checkpoint.names(), (std::vector<std::string>{"plain", "w4", "w8"}));
  expect_same(checkpoint, matrices.tensors);
}

std::string loading_error(const std::string& file) {
  const TemporaryFolder dir;
  const fs::path path = dir.path / "model.safetensors";
  write_file(path, as_bytes_of(file));
  write_file(dir.path / "config.json", as_bytes_of(R"({"model_type": "gpt2"})"));
  try {
    const Checkpoint checkpoint(dir.path);
  } catch (const Error& error) {
    std::string text = error.what();
    // A type that no checkpoint has is no damage.
    const bool type = text.starts_with("[checkpoint]");
    EXPECT_EQ(error.kind(), type ? ErrorKind::kInput : ErrorKind::kIntegrity) << text;
    const size_t at = text.find(path.string());
    return at == text.npos ? text : text.replace(at, path.string().size(), "FILE");
  }
  return "";
}

constexpr test::Attack kWeightFileAttacks[] = {
    {"not_described",
     "[checkpoint] FILE: tensor 'm' is U8, expected F32, F16, BF16 or blocks that __metadata__ "
     "describes"},
    {"other_described",
     "[checkpoint] FILE: tensor 'm' is U8, expected F32, F16, BF16 or blocks that __metadata__ "
     "describes"},
#define DESCRIBED(text) \
  "[weights] FILE: tensor 'm': described as '" text "', expected one like \"q8_0 [rows, K]\""
    {"described_as_nothing", DESCRIBED("")},
    {"format_unknown", DESCRIBED("q5_0 [2, 32]")},
    {"format_of_floats", DESCRIBED("f16 [2, 17]")},
    {"format_upper_case", DESCRIBED("Q8_0 [2, 32]")},
    {"no_shape", DESCRIBED("q8_0")},
    {"shape_of_a_vector", DESCRIBED("q8_0 [64]")},
    {"shape_of_a_cube", DESCRIBED("q8_0 [2, 32, 1]")},
    {"shape_without_space", DESCRIBED("q8_0 [2,32]")},
    {"shape_leading_zero", DESCRIBED("q8_0 [02, 32]")},
    {"shape_negative", DESCRIBED("q8_0 [-2, 32]")},
    {"shape_trailing", DESCRIBED("q8_0 [2, 32] ")},
    {"shape_over_40_bits", DESCRIBED("q8_0 [1099511627777, 32]")},
#undef DESCRIBED
    {"shape_overflows",
     "[weights] FILE: tensor 'm': shape [1099511627776, 1099511627776] overflows"},
    {"rows_0", "[weights] FILE: tensor 'm': shape [0, 32] has a size of 0"},
    {"inner_0", "[weights] FILE: tensor 'm': shape [2, 0] has a size of 0"},
#define EXPECTED(described, expected, got) \
  "[weights] FILE: tensor 'm': " described ": expected U8 in " expected " bytes in all, got " got
    {"rows_more", EXPECTED("q8_0 [3, 32]", "3 rows of 102", "U8 [2, 34]")},
    {"rows_less", EXPECTED("q8_0 [1, 64]", "1 rows of 68", "U8 [2, 34]")},
    {"blocks_more", EXPECTED("q8_0 [2, 33]", "2 rows of 136", "U8 [2, 34]")},
    {"blocks_less", EXPECTED("q4_0 [2, 32]", "2 rows of 36", "U8 [2, 34]")},
    {"bytes_in_no_rows", EXPECTED("q8_0 [2, 32]", "2 rows of 68", "U8 [68]")},
    {"bytes_as_halves", EXPECTED("q8_0 [2, 32]", "2 rows of 68", "F16 [2, 17]")},
#undef EXPECTED
};

TEST(WeightFile, RefusesEachAttackWithItsOwnMessage) {
  test::expect_refused(".weights", kWeightFileAttacks, "", loading_error);
}

}  // namespace
}  // namespace split
