// io/checkpoint: directories as Hugging Face lays them out, and what is refused.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <random>

#include "base/file.h"
#include "io/checkpoint.h"
#include "io/safetensors.h"
#include "io/write_safetensors.h"
#include "io_testing.h"

namespace split {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> gpt2_names(int n_layer, bool head) {
  std::vector<std::string> names{"ln_f.bias", "ln_f.weight", "wpe.weight", "wte.weight"};
  if (head) names.push_back("lm_head.weight");
  for (int i = 0; i < n_layer; ++i) {
    for (const char* part :
         {"ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"}) {
      for (const char* kind : {"weight", "bias"})
        names.push_back(cat("h.", i, ".", part, ".", kind));
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST(Checkpoint, LoadsTheDemoModel) {
  const Checkpoint demo(fs::path(SPLIT_SOURCE_DIR) / "weights" / "demo");
  EXPECT_EQ(demo.names(), gpt2_names(8, false));
  EXPECT_EQ(demo.dtype(), DType::kF16);
  EXPECT_EQ(demo.at("wte.weight").dims, (Dims{8192, 320}));
  EXPECT_EQ(demo.at("h.7.mlp.c_proj.weight").dims, (Dims{1280, 320}));
  EXPECT_EQ(demo.find("transformer.wte.weight"), nullptr);
  EXPECT_NE(demo.config_json().find("\"n_layer\": 8"), std::string::npos);
}

TEST(Checkpoint, LoadsTheGoldenModels) {
  const Checkpoint a(kTests / "golden" / "rand-a"), b(kTests / "golden" / "rand-b"),
      c(kTests / "golden" / "rand-c");
  EXPECT_EQ(a.names(), gpt2_names(3, false));
  EXPECT_EQ(b.names(), gpt2_names(2, false));  // without prefix, and the masks left out
  EXPECT_EQ(c.names(), gpt2_names(2, true));
  for (const Checkpoint* model : {&a, &b, &c}) EXPECT_EQ(model->dtype(), DType::kF32);
  EXPECT_EQ(b.at("h.1.attn.c_attn.bias").dims, (Dims{300}));
  EXPECT_EQ(as_text(c.at("lm_head.weight").bytes), as_text(c.at("wte.weight").bytes));
}

TEST(Checkpoint, ReadsGoldenTensors) {
  const MappedFile file(kTests / "golden" / "rand-a" / "golden.safetensors");
  const Safetensors golden = Safetensors::parse(file.bytes(), "golden");
  EXPECT_EQ(golden.tensors().at("p0.logits_last").dims, (Dims{311}));
  EXPECT_EQ(golden.tensors().at("p0.ids").dtype, DType::kI32);
}

// A checkpoint directory of these files; a tensor's one value says where it came from.
struct Model : TemporaryFolder {
  Model() { write("config.json", R"({"model_type": "gpt2"})"); }

  struct Spec {
    std::string name;
    float value = 0;
    DType dtype = DType::kF32;
    Dims dims = {1, 1};
  };
  static std::string bytes_of(const std::vector<Spec>& specs) {
    std::vector<OwnedTensor> owned;
    std::vector<NamedTensor> named;
    for (const Spec& spec : specs) {
      OwnedTensor tensor;
      const auto count = static_cast<size_t>(element_count(spec.dims).value());
      const std::vector<float> values(count, spec.value);
      const TensorView view = view_of(DType::kF32, spec.dims, values);
      if (spec.dtype == DType::kI64) {
        tensor.storage.resize(count * 8);
        tensor.view = {DType::kI64, spec.dims, tensor.storage};
      } else {
        tensor = converted(view, spec.dtype);
      }
      owned.push_back(std::move(tensor));
      named.push_back({spec.name, owned.back().view});
    }
    return write_safetensors(named);
  }
  void save(const std::string& file, const std::vector<Spec>& specs) const {
    write(file, bytes_of(specs));
  }
  std::string refusal(ErrorKind kind) const {
    std::string text = error_of(kind, [&] { const Checkpoint checkpoint(path); });
    EXPECT_EQ(text.find('\n'), text.npos);
    for (size_t at; (at = text.find(path.string())) != text.npos;) {
      text.replace(at, path.string().size(), "DIR");
    }
    return text;
  }
};

float value_of(const TensorView& view) {
  const OwnedTensor copy = converted(view, DType::kF32);
  float value = 0;
  std::memcpy(&value, copy.storage.data(), sizeof value);
  return value;
}

TEST(Checkpoint, StripsThePrefixAndLeavesMasksOut) {
  const Model model;
  model.save("model.safetensors", {{"transformer.wte.weight", 1},
                                   {"lm_head.weight", 2},
                                   {"transformer.h.0.attn.c_attn.bias", 3},
                                   {"transformer.h.0.attn.bias", 4, DType::kI64},
                                   {"h.11.attn.masked_bias", 5, DType::kI64},
                                   {"h.x.attn.bias", 6},
                                   {"h..attn.bias", 7},
                                   {"transformer.transformer.odd", 8}});
  const Checkpoint checkpoint(model.path);
  EXPECT_EQ(checkpoint.names(),
            (std::vector<std::string>{"h..attn.bias", "h.0.attn.c_attn.bias", "h.x.attn.bias",
                                      "lm_head.weight", "transformer.odd", "wte.weight"}));
  EXPECT_EQ(value_of(checkpoint.at("wte.weight")), 1.0f);
}

TEST(Checkpoint, ViewsOutliveAMove) {
  const Model model;
  model.save("model.safetensors", {{"wte.weight", 5}});
  Checkpoint first(model.path);
  const TensorView view = first.at("wte.weight");
  const Checkpoint second = std::move(first);
  EXPECT_EQ(second.at("wte.weight").bytes.data(), view.bytes.data());
  EXPECT_EQ(value_of(view), 5.0f);
}

TEST(Checkpoint, NamesTheMissingTensorAndTheFile) {
  const Model model;
  model.save("model.safetensors", {{"wte.weight", 5}});
  const Checkpoint checkpoint(model.path);
  EXPECT_EQ(error_of(ErrorKind::kNotFound, [&] { checkpoint.at("wpe.weight"); }),
            cat("[checkpoint] ", (model.path / "model.safetensors").string(),
                ": no tensor 'wpe.weight'"));
}

TEST(Checkpoint, TypeIsThatOfTheVocabularyOrOfMostMatrices) {
  const Model model;
  const auto dtype = [&](const std::vector<Model::Spec>& specs) {
    model.save("model.safetensors", specs);
    return Checkpoint(model.path).dtype();
  };
  const Model::Spec matrix{"a", 0, DType::kF16}, matrix2{"b", 0, DType::kF16};
  EXPECT_EQ(dtype({{"wte.weight", 0, DType::kBF16}, matrix, matrix2}), DType::kBF16);
  EXPECT_EQ(dtype({{"c"}, matrix, matrix2, {"d", 0, DType::kF32, {3}}, {"e", 0, DType::kF32, {3}}}),
            DType::kF16);
  EXPECT_NE(error_of(ErrorKind::kNotFound, [&] { dtype({{"d", 0, DType::kF32, {3}}}); }), "");
}

TEST(Checkpoint, RefusesWhatIsNotACheckpoint) {
  const Model model;
  EXPECT_EQ(error_of(ErrorKind::kNotFound, [] { Checkpoint("/nonexistent/model"); }),
            "[checkpoint] /nonexistent/model: no such directory or GGUF file");
  EXPECT_EQ(model.refusal(ErrorKind::kNotFound),
            "[checkpoint] DIR: neither model.safetensors nor model.safetensors.index.json nor a "
            "GGUF file");
  fs::remove(model.path / "config.json");
  EXPECT_EQ(model.refusal(ErrorKind::kNotFound),
            "[checkpoint] DIR: no config.json; expected a Hugging Face checkpoint");
}

TEST(Checkpoint, RefusesPicklesAndNamesTheConverter) {
  const std::string kConverter =
      ": a pickle can run code and is refused; if you trust it, convert it: python3 -c \"from "
      "transformers import AutoModelForCausalLM as M; "
      "M.from_pretrained('DIR').save_pretrained('DIR', "
      "safe_serialization=True)\"";
  for (const char* file : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    const Model model;
    model.write(file, "\x80\x02");
    EXPECT_EQ(model.refusal(ErrorKind::kInput), cat("[checkpoint] DIR/", file, kConverter));
    model.save("model.safetensors", {{"wte.weight"}});  // beside safetensors a pickle is ignored
    EXPECT_EQ(Checkpoint(model.path).names().size(), 1u);
  }
  const TemporaryFolder folder;
  for (const char* name : {"model.bin", "gpt2.pt", "gpt2.pth", "last.ckpt", "weights.pkl"}) {
    folder.write(name, "\x80\x02");
    EXPECT_EQ(error_of(ErrorKind::kInput, [&] { Checkpoint(folder.path / name); }),
              cat("[checkpoint] ", (folder.path / name).string(), kConverter));
  }
  folder.write("model.safetensors", "");
  EXPECT_EQ(error_of(ErrorKind::kInput, [&] { Checkpoint(folder.path / "model.safetensors"); }),
            cat("[checkpoint] ", (folder.path / "model.safetensors").string(),
                ": expected a Hugging Face directory or a file that ends in .gguf"));
}

TEST(Checkpoint, RefusesAdaptersByName) {
  for (const char* name : {"adapter_config.json", "adapter_model.safetensors"}) {
    const Model model;
    model.save("model.safetensors", {{"wte.weight"}});
    model.write(name, "{}");
    EXPECT_EQ(model.refusal(ErrorKind::kInput),
              cat("[checkpoint] DIR/", name,
                  ": expected a model, got an adapter (LoRA); merge it into the model that it is "
                  "for: PEFT's merge_and_unload(), then save_pretrained()"));
  }
}

TEST(Checkpoint, RefusesBadTensors) {
  const Model model;
  model.save("model.safetensors", {{"wte.weight"}, {"ids", 0, DType::kI64}});
  EXPECT_EQ(model.refusal(ErrorKind::kInput),
            "[checkpoint] DIR/model.safetensors: tensor 'ids' is I64, expected F32, F16, BF16 or "
            "blocks that __metadata__ describes");
  model.save("model.safetensors", {{"wte.weight"}, {"transformer.wte.weight"}});
  EXPECT_EQ(model.refusal(ErrorKind::kInput),
            "[checkpoint] DIR/model.safetensors: a second tensor 'wte.weight'");
  model.write("model.safetensors", "");
  EXPECT_EQ(model.refusal(ErrorKind::kIntegrity),
            "[safetensors] DIR/model.safetensors: expected at least 8 bytes, got 0");
}

TEST(Checkpoint, ReadsSeveralFilesByTheirIndex) {
  const Model model;
  model.save("model-1.safetensors",
             {{"transformer.wte.weight", 1}, {"transformer.h.0.attn.bias", 9}});
  model.save("model-2.safetensors", {{"transformer.wpe.weight", 2}});
  model.write("model.safetensors.index.json",
              R"({"metadata":{"total_size":12},"weight_map":{
              "transformer.wte.weight":"model-1.safetensors",
              "transformer.h.0.attn.bias":"model-1.safetensors",
              "transformer.wpe.weight":"model-2.safetensors"}})");
  const Checkpoint checkpoint(model.path);
  EXPECT_EQ(checkpoint.names(), (std::vector<std::string>{"wpe.weight", "wte.weight"}));
  EXPECT_EQ(value_of(checkpoint.at("wte.weight")), 1.0f);
  EXPECT_EQ(value_of(checkpoint.at("wpe.weight")), 2.0f);
  EXPECT_NE(
      error_of(ErrorKind::kNotFound, [&] { checkpoint.at("x"); }).find("index.json: no tensor 'x'"),
      std::string::npos);
}

TEST(Checkpoint, RefusesBadIndexes) {
  const Model model;
  model.save("1.safetensors", {{"a"}});
  model.save("2.safetensors", {{"b"}});
  model.save("again.safetensors", {{"transformer.a"}});
  const auto refusal = [&](std::string_view index, ErrorKind kind = ErrorKind::kInput) {
    model.write("model.safetensors.index.json", index);
    const std::string text = model.refusal(kind);
    const std::string_view prefix = "[checkpoint] DIR/model.safetensors.index.json";
    return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
  };
  EXPECT_EQ(refusal(R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})"), "");
  EXPECT_EQ(refusal("{"), " is not valid JSON at byte 2");
  EXPECT_EQ(refusal("[]"), ": expected an object with a weight_map");
  EXPECT_EQ(refusal("{}"), ": expected an object with a weight_map");
  EXPECT_EQ(refusal(R"({"weight_map":[]})"), ": expected an object with a weight_map");
  EXPECT_EQ(refusal(R"({"weight_map":{"a":1}})"), ": weight_map has no file name for 'a'");
  EXPECT_EQ(refusal(R"({"weight_map":{"a":"1.safetensors","a":"2.safetensors"}})"),
            " has the key 'a' twice");
  EXPECT_EQ(refusal(R"({"weight_map":{"b":"1.safetensors"}})"),
            ": tensor 'b' is not in '1.safetensors'");
  EXPECT_EQ(
      refusal(R"({"weight_map":{"a":"1.safetensors","b":"3.safetensors"}})", ErrorKind::kNotFound),
      ": the file '3.safetensors' is missing");
  EXPECT_EQ(refusal(R"({"weight_map":{"a":"1.safetensors","transformer.a":"again.safetensors"}})"),
            "[checkpoint] DIR/again.safetensors: a second tensor 'a'");
  for (const char* name : {"../1.safetensors", "/etc/passwd", "x/1.safetensors", "..", ".", "",
                           "a\\\\b", "1.safetensors\\u0000"}) {
    EXPECT_NE(refusal(cat(R"({"weight_map":{"a":")", name, "\"}}"))
                  .find("expected one in the same directory"),
              std::string::npos)
        << name;
  }
}

// --- scripts/make_random_model.py ---

TEST(MakeRandomModel, GivesTheSameBytesEverywhere) {
  if (std::system("/usr/bin/python3 -c 'import numpy' 2> /dev/null") != 0)
    GTEST_SKIP() << "no python3-numpy";
  const TemporaryFolder folder;
  const auto sum_of = [&](const std::string& options) {
    const std::string command =
        cat("/usr/bin/python3 '", SPLIT_SOURCE_DIR,
            "/scripts/make_random_model.py' --size tiny --seed 7 --vocab 300 --n-ctx 32 --out '",
            folder.path.string(), "' ", options);
    EXPECT_EQ(std::system(command.c_str()), 0);
    return Sha256::hex_of(MappedFile(folder.path / "model.safetensors").bytes());
  };
  EXPECT_EQ(sum_of(""), "7886e9f23cd50b30e789909740c2419b0150e0ed1cfd3d8da5e7bcf12c72b319");
  EXPECT_EQ(Checkpoint(folder.path).names(), gpt2_names(2, false));
  EXPECT_EQ(Checkpoint(folder.path).at("h.1.mlp.c_fc.weight").dims, (Dims{64, 256}));
  EXPECT_EQ(sum_of("--dtype f16"),
            "1fc5f5eb6dfc984227ec1ea139c76b5bd8995515ed2c2ce2ea139487fc51573a");
  EXPECT_EQ(Checkpoint(folder.path).dtype(), DType::kF16);
}

TEST(MakeRandomModel, HasEachWeightOfEachArchitectureInItsShape) {
  if (std::system("/usr/bin/python3 -c 'import numpy' 2> /dev/null") != 0)
    GTEST_SKIP() << "no python3-numpy";
  const TemporaryFolder folder;
  for (const char* arch : {"gpt2", "llama", "qwen2", "qwen3", "gemma4"}) {
    SCOPED_TRACE(arch);
    const std::string command =
        cat("/usr/bin/python3 '", SPLIT_SOURCE_DIR, "/scripts/make_random_model.py' --arch ", arch,
            " --size tiny --dtype bf16 --out '", folder.path.string(), "'");
    ASSERT_EQ(std::system(command.c_str()), 0);
    const Checkpoint checkpoint(folder.path);
    EXPECT_EQ(checkpoint.dtype(), DType::kBF16);
    const auto model = make_model(checkpoint.config_json());
    for (const Blob& blob : model->blobs()) {
      for (const WeightDecl& decl : blob.weights) {
        EXPECT_EQ(checkpoint.at(decl.from.empty() ? decl.name : decl.from).dims, decl.dims)
            << decl.name;
      }
    }
  }
}

}  // namespace
}  // namespace split
