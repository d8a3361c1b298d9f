// Checkpoints in blocks: written by "cloud_server quantize" or by llama.cpp, served and computed
// with as they lie.
#include <sys/resource.h>

#include <csignal>
#include <cstdlib>

#include "cloud_server/commands/quantize_command.h"
#include "io/quantize.h"
#include "io/weight_file.h"
#include "support/cloud_fixture.h"
#include "tensor/blocks.h"

namespace split::cloud {
namespace {

namespace fs = std::filesystem;

class CloudQuantize : public testing::Test {
 protected:
  static int quantize(const std::string& model, const std::string& format, const fs::path& out) {
    return quantize_command({"--model", model, "--format", format, "--out", out.string()});
  }
  fs::path quantized(const std::string& name, const std::string& format) {
    const fs::path out = folder.path / cat(name, "-", format);
    EXPECT_EQ(quantize(model_dir(name), format, out), 0);
    return out;
  }
  // `dir` as tests/support/make_gguf.py writes it.
  fs::path gguf(const std::string& name, const std::string& options) {
    const fs::path out = folder.path / (name + ".gguf");
    const std::string command = cat("/usr/bin/python3 '", source("tests/support/make_gguf.py"),
                                    "' '", model_dir(name), "' '", out.string(), "' ", options);
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    return out;
  }
  static std::string id_of(const fs::path& path) { return path.filename().string(); }
  // Every logit of a prompt, as bytes.
  static std::string logits(TestCloud& cloud, const std::string& id) {
    const http::Reply reply = cloud.ask().post_for_tensors(
        cat("/v1/models/", id, "/forward"), {{"tokens", {1, 5, 9, 2, 200, 17}}, {"rows", "all"}});
    EXPECT_EQ(reply.status, 200) << reply.body;
    return reply.body;
  }
  static wire::ModelInfo info(TestCloud& cloud, const std::string& id) {
    return wire::parse_model_info(cloud.ask().get("/v1/models/" + id).body);
  }
  TemporaryDir folder;
};

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return error.what();
  }
  return "";
}

// The files hold what a cloud with the floats makes of them, blob for blob, and are computed with
// to the same bits.
TEST_F(CloudQuantize, IsWhatTheFloatsBecomeOnTheFly) {
  for (const char* name : {"demo", "rand-a", "rand-b"}) {
    for (const DType dtype : {DType::kQ8_0, DType::kQ4_0}) {
      const std::string format(format_name(dtype));
      const fs::path dir = quantized(name, format);
      const Profile profile = *profile_from_name(format);
      TestCloud plain({name}, 64 << 20, {}, profile);
      TestCloud small({dir.string()}, 64 << 20, {}, profile);
      EXPECT_TRUE(logits(small, id_of(dir)) == logits(plain, name)) << name << format;
      // Rows in int8 take the blocks there are, and make q8_0 where there are none.
      TestCloud int8({dir.string()}, 64 << 20, {}, Profile::kInt8);
      EXPECT_FALSE(logits(int8, id_of(dir)) == logits(plain, name)) << name << format;
      if (dtype == DType::kQ8_0) {
        TestCloud made({name}, 64 << 20, {}, Profile::kInt8);
        EXPECT_TRUE(logits(int8, id_of(dir)) == logits(made, name)) << name;
      }

      const wire::ModelInfo theirs = info(plain, name), ours = info(small, id_of(dir));
      const std::string floats = theirs.format;
      EXPECT_EQ(ours.format, floats);
      ASSERT_EQ(ours.stages.size(), theirs.stages.size());
      for (size_t i = 0; i < ours.stages.size(); ++i) {
        const wire::StageInfo& stage = ours.stages[i];
        const bool block = stage.name.starts_with("block."), head = stage.name == "head";
        const std::string own = head ? "q8_0" : block ? format : floats;
        EXPECT_EQ(stage.format, own) << stage.name;
        for (const wire::BlobInfo& blob : stage.blobs) {
          const auto at =
              std::ranges::find(theirs.stages[i].blobs, blob.sha256, &wire::BlobInfo::sha256);
          ASSERT_NE(at, theirs.stages[i].blobs.end()) << stage.name << " " << blob.format;
          EXPECT_EQ(*at, static_cast<const wire::BlobSums&>(blob));
          EXPECT_EQ(at->format, blob.format);
          // Weights in blocks come in these alone, where they lie.
          if (block || blob.name == "lm_head") {
            EXPECT_EQ(blob.format, own);
          }
          const ServedModel& model = *small.cloud.models[0];
          const auto file = small.cloud.models[0]->weights().blob(blob.sha256);
          if (blob.format != own || !file) continue;
          const auto& weights = model.model().blob(blob.name).weights;
          ASSERT_EQ(file->pieces.size(), weights.size() + 1);
          for (size_t w = 0; w < weights.size(); ++w) {
            EXPECT_EQ(file->pieces[w + 1].data(),
                      model.checkpoint().at(weights[w].name).bytes.data());
          }
        }
      }
      // A stage alone, without and with a format.
      const std::string stage = cat("/v1/models/", id_of(dir), "/stages/block.1");
      EXPECT_TRUE(small.ask().get(stage).body == small.ask().get(stage + "?format=" + format).body);
      expect_error(small.ask().get(stage + "?format=f32"), 400, "invalid_request", "format");
    }
  }
}

TEST_F(CloudQuantize, CopiesWhatTheModelIs) {
  const fs::path dir = quantized("demo", "q4_0");
  for (const char* file : {"config.json", "vocab.json", "merges.txt", "tokenizer.json"}) {
    EXPECT_EQ(read_file(dir / file, 1 << 20),
              read_file(fs::path(model_dir("demo")) / file, 1 << 20))
        << file;
  }
  // Under its name from the first moment; the temporary one is gone.
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path), {}), 1);
  EXPECT_EQ(fs::status(dir).permissions(), fs::perms(0755));
  const auto size = [](const fs::path& of) { return fs::file_size(of / "model.safetensors"); };
  EXPECT_LT(size(dir), size(quantized("demo", "q8_0")));
  EXPECT_LT(size(quantized("demo", "q8_0,embed=f16")), size(model_dir("demo")));
}

TEST_F(CloudQuantize, TakesAFormatForEachKindOfStage) {
  const fs::path dir = quantized("rand-a", "head=q8_0,block=q4_0");
  EXPECT_EQ(Checkpoint(dir).at("lm_head.weight").dtype, DType::kQ8_0);
  EXPECT_EQ(Checkpoint(dir).at("h.1.mlp.c_fc.weight").dtype, DType::kQ4_0);
  EXPECT_EQ(Checkpoint(dir).at("wte.weight").dtype, DType::kF32);
  EXPECT_EQ(read_file(dir / "model.safetensors", 1 << 24),
            read_file(quantized("rand-a", "q4_0") / "model.safetensors", 1 << 24));
  const Checkpoint blocks(quantized("rand-a", "block=q8_0"));
  EXPECT_EQ(blocks.find("lm_head.weight"), nullptr);
  const Checkpoint halves(quantized("rand-a", "q8_0,embed=f16,norm=f16"));
  EXPECT_EQ(halves.dtype(), DType::kF16);
  EXPECT_EQ(halves.at("ln_f.bias").dtype, DType::kF16);
  // Any of them is a model.
  for (const char* format : {"block=q8_0", "head=q4_0", "q8_0,embed=f16,norm=f16"}) {
    const fs::path path = folder.path / cat("rand-a-", format);
    if (!fs::exists(path)) quantized("rand-a", format);
    TestCloud cloud({path.string()});
    logits(cloud, id_of(path));
  }
}

TEST_F(CloudQuantize, RefusesWhatCannotBe) {
  const fs::path out = folder.path / "out";
  const auto refused = [&](const std::string& model, const std::string& format) {
    return error_of([&] { quantize(model, format, out); });
  };
  const std::string demo = model_dir("demo");
  EXPECT_EQ(refused(demo, "f16"),
            "--format: expected q8_0 or q4_0 for blocks or the head, got 'f16'");
  EXPECT_EQ(refused(demo, "q5_0"), "--format: expected auto, f32, f16, q8_0 or q4_0, got 'q5_0'");
  EXPECT_EQ(refused(demo, "block=q8_0,embed=f32"),
            "--format: the head of this model is its embedding: expected one format of floats for "
            "both");
  EXPECT_EQ(error_of([&] {
              quantize_command({"--model", demo, "--format", "q8_0"});
            }),
            "quantize: expected --out");
  EXPECT_EQ(error_of([&] {
              quantize_command({"--threads", "3"});
            }),
            "no flag --threads; --help lists the flags");
  EXPECT_NE(refused((folder.path / "none").string(), "q8_0"), "");
  EXPECT_FALSE(fs::exists(out));
  fs::create_directory(out);
  EXPECT_EQ(refused(demo, "q8_0"), cat("--out: ", out.string(), " is there already"));
  fs::remove(out);

  const fs::path dir = quantized("rand-a", "q8_0");
  EXPECT_EQ(refused(dir.string(), "q4_0"),
            "[formats] weight 'h.0.attn.c_attn.weight' as q4_0: expected floats to make it from, "
            "got q8_0");
  // Keeps what is so already.
  const fs::path again = folder.path / "again";
  EXPECT_EQ(quantize(dir.string(), "q8_0", again), 0);
  EXPECT_EQ(read_file(again / "model.safetensors", 1 << 24),
            read_file(dir / "model.safetensors", 1 << 24));
  ModelOptions options;
  options.path = dir;
  options.device = "cpu";
  options.kv_budget = 64 << 20;
  options.profile = Profile::kQ4_0;
  EXPECT_EQ(
      error_of([&] { const ServedModel model(options); }),
      cat("[model] ", dir.string(), ": profile q4_0: block.0: expected floats or q4_0, got q8_0"));
}

// A disk that is full while it is written leaves nothing.
TEST_F(CloudQuantize, LeavesNothingWhereItCannotBeWritten) {
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit now{1 << 20, before.rlim_max};
  const auto ignored = ::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &now);
  const std::string error =
      error_of([&] { quantize(model_dir("demo"), "q4_0", folder.path / "full"); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, ignored);
  EXPECT_NE(error.find("File too large"), std::string::npos) << error;
  EXPECT_TRUE(fs::is_empty(folder.path));
}

// Checks a file of weights for what only the model can tell.
TEST_F(CloudQuantize, RefusesBlocksWhereTheModelHasNone) {
  const fs::path dir = quantized("rand-a", "q8_0");
  const Checkpoint good(dir);
  const TensorView matrix = good.at("h.0.mlp.c_fc.weight");
  std::vector<std::byte> infinite(matrix.bytes.begin(), matrix.bytes.end());
  infinite[1] = std::byte{0x7c};
  const OwnedTensor wte = quantised(good.at("wte.weight"), DType::kQ8_0, false, "wte");
  struct Bad {
    const char* name;
    TensorView view;
    const char* message;
  };
  const Bad bad[] = {
      {"wte.weight", wte.view, "weight 'wte.weight': expected F32, F16 or BF16, got Q8_0"},
      {"h.0.mlp.c_fc.weight",
       {matrix.dtype, {matrix.dims[1], matrix.dims[0]}, matrix.bytes},
       "weight 'h.0.mlp.c_fc.weight': expected [384, 96], got [96, 384]"},
      {"h.0.mlp.c_fc.weight", {matrix.dtype, matrix.dims, infinite}, "a scale is not finite"}};
  for (const auto& [name, view, message] : bad) {
    std::vector<NamedTensor> tensors;
    for (const std::string& one : good.names()) {
      tensors.push_back({one, one == name ? view : good.at(one)});
    }
    const fs::path path = folder.path / "bad";
    fs::create_directory(path);
    write_file(path / "model.safetensors", as_bytes_of(write_weight_file(tensors)));
    write_file(path / "config.json", as_bytes_of(good.config_json()));
    ModelOptions options;
    options.path = path;
    options.device = "cpu";
    options.kv_budget = 64 << 20;
    const std::string error = error_of([&] { const ServedModel model(options); });
    EXPECT_NE(error.find(message), std::string::npos) << error;
    fs::remove_all(path);
  }
}

TEST_F(CloudQuantize, TheOriginalPageGetsFloats) {
  const fs::path dir = quantized("rand-a", "q8_0");
  TestCloud cloud({dir.string()});
  cloud.cloud.legacy_routes = true;
  TestCloud plain({"rand-a"});
  plain.cloud.legacy_routes = true;
  for (const char* name : {"transformer.h.1.attn.c_attn.weight", "transformer.h.1.mlp.c_fc.bias",
                           "transformer.wte.weight"}) {
    const std::string got = cloud.ask().get(cat("/get_model_weights/", name)).body;
    const std::string exact = plain.ask().get(cat("/get_model_weights/", name)).body;
    EXPECT_EQ(got.size(), exact.size()) << name;
    EXPECT_EQ(got == exact, std::string(name).find(".c_attn.") == std::string::npos) << name;
  }
  // Against rows read one by one.
  const TensorView& matrix = cloud.cloud.models[0]->checkpoint().at("h.1.attn.c_attn.weight");
  const OwnedTensor floats = dequantised(matrix);
  const fs::path widened = folder.path / "widened";
  fs::create_directory(widened);
  std::vector<NamedTensor> tensors;
  const Checkpoint original(model_dir("rand-a"));
  std::vector<float> turned(floats.storage.size() / sizeof(float));
  const auto rows = static_cast<size_t>(matrix.dims[0]),
             inner = static_cast<size_t>(matrix.dims[1]);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t k = 0; k < inner; ++k) {
      std::memcpy(&turned[k * rows + r], floats.storage.data() + (r * inner + k) * sizeof(float),
                  sizeof(float));
    }
  }
  for (const std::string& name : original.names()) {
    const bool it = name == "h.1.attn.c_attn.weight";
    tensors.push_back({name, it ? TensorView{DType::kF32, original.at(name).dims,
                                             std::as_bytes(std::span(turned))}
                                : original.at(name)});
  }
  write_file(widened / "model.safetensors", as_bytes_of(write_safetensors(tensors)));
  write_file(widened / "config.json", as_bytes_of(original.config_json()));
  TestCloud reference({widened.string()});
  reference.cloud.legacy_routes = true;
  const char* path = "/get_model_weights/transformer.h.1.attn.c_attn.weight";
  EXPECT_TRUE(cloud.ask().get(path).body == reference.ask().get(path).body);
}

// --- GGUF

// Blocks stay what they are: computing with them is computing with the floats that they stand for,
// bit for bit, and they are served from the file's own map.
TEST_F(CloudQuantize, KeepsTheBlocksOfAGguf) {
  for (const char* kind : {"Q8_0", "Q4_0"}) {
    const DType dtype = std::string(kind) == "Q8_0" ? DType::kQ8_0 : DType::kQ4_0;
    const fs::path path = gguf("rand-a", cat("--type ", kind));
    TestCloud cloud({path.string()});
    const ServedModel& model = *cloud.cloud.models[0];
    const Checkpoint& checkpoint = model.checkpoint();
    EXPECT_EQ(checkpoint.dtype(), DType::kF32);
    EXPECT_EQ(model.model().weight("lm_head.weight").from, "wte.weight");
    const TensorView& head = checkpoint.at("lm_head.weight");
    const TensorView& wte = checkpoint.at("wte.weight");
    EXPECT_EQ(head.dtype, dtype);
    EXPECT_EQ(head.dims, wte.dims);
    EXPECT_TRUE(std::ranges::equal(dequantised(head).storage, wte.bytes));
    EXPECT_EQ(checkpoint.at("h.2.attn.c_proj.weight").dtype, dtype);

    // The model in floats.
    std::vector<NamedTensor> tensors;
    std::vector<std::vector<float>> widened;
    for (const std::string& name : checkpoint.names()) {
      const TensorView& view = checkpoint.at(name);
      if (name == "lm_head.weight") continue;
      if (!is_quantised(view.dtype)) {
        tensors.push_back({name, view});
        continue;
      }
      const auto rows = static_cast<size_t>(view.dims[0]);
      const auto inner = static_cast<size_t>(view.dims[1]);
      std::vector<float>& turned = widened.emplace_back(rows * inner);
      std::vector<float> row(inner);
      for (size_t r = 0; r < rows; ++r) {
        dequantise_row(dtype, view.bytes.data() + r * (view.bytes.size() / rows), inner,
                       row.data());
        for (size_t k = 0; k < inner; ++k) turned[k * rows + r] = row[k];
      }
      tensors.push_back(
          {name, {DType::kF32, {view.dims[1], view.dims[0]}, std::as_bytes(std::span(turned))}});
    }
    const fs::path dir = folder.path / cat("floats-", kind);
    fs::create_directory(dir);
    write_file(dir / "model.safetensors", as_bytes_of(write_safetensors(tensors)));
    write_file(dir / "config.json", as_bytes_of(checkpoint.config_json()));
    TestCloud floats({dir.string()});
    const std::vector<float> got = floats_of(logits(cloud, id_of(path)), "logits");
    const std::vector<float> expected = floats_of(logits(floats, id_of(dir)), "logits");
    // Products of prompts by blocks round rows and numbers to bf16, 2^-9 relative each: 4.5e-3 of
    // the logits here.
    EXPECT_LT(relative(got, expected), 6e-3);

    const wire::ModelInfo served = info(cloud, id_of(path));
    for (const wire::StageInfo& stage : served.stages) {
      const bool blocks = stage.name == "head" || stage.name.starts_with("block.");
      EXPECT_EQ(stage.format, blocks ? format_name(dtype) : "f32") << stage.name;
    }
    // And it is what the tool writes of it.
    const fs::path copy = folder.path / cat("copy-", kind);
    EXPECT_EQ(quantize(path.string(), cat(format_name(dtype), ",head=", format_name(dtype)), copy),
              0);
    TestCloud copied({copy.string()});
    EXPECT_TRUE(logits(copied, id_of(copy)) == logits(cloud, id_of(path)));
  }
}

}  // namespace
}  // namespace split::cloud
