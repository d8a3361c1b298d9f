// compile/: the listings of a GPT-2's Programs, so that a change of fusion shows in a diff.
#include <gtest/gtest.h>

#include <set>

#include "compile_testing.h"
#include "device/device.h"

namespace split::test {
namespace {

constexpr const char* kEmbed = R"(program embed: arena 0 bytes a row
  group [R, 320]
    %0 = add wte.weight[tokens], wpe.weight[positions]
    hidden <- %0
)";

constexpr const char* kBlock = R"(program block.0: arena 7680 bytes a row
  group [R, 320]
    %0 = sum over row of hidden
    %1 = mul %0, 0.003125
    %2 = sub hidden, %1
    %3 = square %2
    %4 = sum over row of %3
    %5 = mul %4, 0.003125
    %6 = add %5, 1e-05
    %7 = rsqrt %6
    %8 = mul %2, %7
    %9 = mul %8, h.0.ln_1.weight
    %10 = add %9, h.0.ln_1.bias
    t4@0 <- %10
  matmul [R, 960] = t4@0 x h.0.attn.c_attn.weight F16 over 320
    %0 = add product, h.0.attn.c_attn.bias
    t7@1280 <- %0
  + keys, values
  attention [R, 320], 5 heads: t10@0 <- t7@1280[0:320], t7@1280[320:640], t7@1280[640:960], k_cache, v_cache
  matmul [R, 320] = t10@0 x h.0.attn.c_proj.weight F16 over 320
    %0 = add product, h.0.attn.c_proj.bias
    %1 = add hidden, %0
    t13@1280 <- %1
  group [R, 320]
    %0 = sum over row of t13@1280
    %1 = mul %0, 0.003125
    %2 = sub t13@1280, %1
    %3 = square %2
    %4 = sum over row of %3
    %5 = mul %4, 0.003125
    %6 = add %5, 1e-05
    %7 = rsqrt %6
    %8 = mul %2, %7
    %9 = mul %8, h.0.ln_2.weight
    %10 = add %9, h.0.ln_2.bias
    t16@0 <- %10
  matmul [R, 1280] = t16@0 x h.0.mlp.c_fc.weight F16 over 320
    %0 = add product, h.0.mlp.c_fc.bias
    %1 = gelu_new %0
    t19@2560 <- %1
  matmul [R, 320] = t19@2560 x h.0.mlp.c_proj.weight F16 over 1280
    %0 = add product, h.0.mlp.c_proj.bias
    %1 = add t13@1280, %0
    hidden_out <- %1
)";

constexpr const char* kHead = R"(program head: arena 1280 bytes a row
  group [O, 320]
    %0 = sum over row of hidden[out_rows]
    %1 = mul %0, 0.003125
    %2 = sub hidden[out_rows], %1
    %3 = square %2
    %4 = sum over row of %3
    %5 = mul %4, 0.003125
    %6 = add %5, 1e-05
    %7 = rsqrt %6
    %8 = mul %2, %7
    %9 = mul %8, ln_f.weight
    %10 = add %9, ln_f.bias
    t5@0 <- %10
  matmul [O, 8192] = t5@0 x wte.weight^T F16 over 320
    logits <- product
)";

TEST(Listing, TheEmbedding) {
  EXPECT_EQ(to_string(compile("embed", {demo()->stage("embed").trace({half})}, {})), kEmbed);
}

TEST(Listing, ABlock) {
  EXPECT_EQ(
      to_string(compile("block.0", {demo()->stage("block.0").trace({half, DType::kF32})}, {})),
      kBlock);
}

// A listing whose steps join the next where they may: a plus behind each that some device's rules
// name.
std::string with_pluses(std::string listing, const std::vector<std::string>& behind) {
  for (const std::string& line : behind) {
    const size_t at = listing.find(line);
    CHECK(at != std::string::npos);
    listing.insert(at + line.size(), "  +\n");
  }
  return listing;
}

TEST(Listing, ABlockWithPrologues) {
  const Program program =
      compile("block.0", {demo()->stage("block.0").trace({half, DType::kF32})}, kWithPrologue);
  EXPECT_EQ(to_string(program),
            with_pluses(kBlock, {"t4@0 <- %10\n", "t7@1280[640:960], k_cache, v_cache\n",
                                 "t16@0 <- %10\n"}));
  // Kernels of one row: qkv | attention | projection | fc | out; of attention the merge is another.
  const auto joined =
      std::count_if(program.steps.begin(), program.steps.end(),
                    [](const Step& step) { return step.op == Op::k_group && step.joins > 0; });
  EXPECT_EQ(program.steps.size() - static_cast<size_t>(joined), 5u);
}

// A Llama's block as names of its steps, behind a bar where they wait. Where one product makes
// queries, keys and values and rotates what it makes, and gate and up are made together, the steps
// in brackets are not run: a product | attention | projection | gate and up | down.
TEST(Listing, ALlamaBlockWaitsOnlyForWhatItReads) {
  const std::string config =
      std::string(SPLIT_SOURCE_DIR) + "/tests/golden/models/llama3/config.json";
  const auto model = make_model(read_file(config, 1 << 20));
  const Program program =
      compile("block.0", {model->stage("block.0").trace({half, DType::kF32})}, kWithNeighbours);
  std::set<size_t> taken;
  for (const Step& step : program.steps) {
    for (const auto& other : {step.twin, step.rotation}) taken.insert(other.value_or(~size_t{0}));
    taken.insert(step.siblings.begin(), step.siblings.end());
  }
  std::string steps;
  bool behind_prologue = false;
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const Step& step = program.steps[i];
    if (step.waits && !behind_prologue) steps += "| ";
    behind_prologue = step.op == Op::k_group && step.joins > 0;
    const std::string name(behind_prologue ? "prologue" : op_info(step.op).name);
    steps += taken.contains(i) ? cat("(", name, ") ") : cat(name, step.attention ? "-put " : " ");
  }
  EXPECT_EQ(steps,
            "| prologue matmul (matmul) (matmul) | (rotate) (rotate) | attention | matmul "
            "| prologue (matmul) | matmul | matmul ");
  EXPECT_EQ(wrong_with(program), "");
}

TEST(Listing, TheHead) {
  EXPECT_EQ(to_string(compile("head", {demo()->stage("head").trace({half})}, {})), kHead);
  EXPECT_EQ(to_string(compile("head", {demo()->stage("head").trace({half})}, kWithPrologue)),
            with_pluses(kHead, {"t5@0 <- %10\n"}));
}

// The device's own rules, so that the listings above are of what runs.
TEST(Listing, RulesOfTheCpuAreTheDefault) {
  const FuseRules rules = make_cpu_device(1)->fuse_rules();
  EXPECT_TRUE(rules.groups && rules.epilogue && rules.kv_store && !rules.prologue);
}

}  // namespace
}  // namespace split::test
