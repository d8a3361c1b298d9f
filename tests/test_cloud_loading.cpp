// What the cloud loads, and what it refuses with one line.
#include "cloud_fixture.h"

namespace split::cloud {
namespace {

// A copy of a small model's directory with one tensor more.
void copy_with(const std::string& from, const std::filesystem::path& to, const std::string& name) {
  const MappedFile file(std::filesystem::path(from) / "model.safetensors");
  const float zero[2] = {0, 0};
  std::vector<NamedTensor> tensors{{name, {DType::kF32, {2}, std::as_bytes(std::span(zero))}}};
  const Safetensors parsed = Safetensors::parse(file.bytes(), from);
  for (const auto& [key, view] : parsed.tensors()) tensors.push_back({key, view});
  write_file(to / "model.safetensors", as_bytes_of(write_safetensors(tensors)));
  write_file(to / "config.json", MappedFile(std::filesystem::path(from) / "config.json").bytes());
}

std::string loading_error(const std::filesystem::path& path) {
  ModelOptions options;
  options.id = path.filename().string();
  options.path = path;
  options.device = "cpu";
  options.threads = 1;
  options.kv_budget = 64 << 20;
  try {
    const ServedModel model(options);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  return "";
}

TEST(CloudLoading, RefusesTensorsThatGpt2DoesNotHave) {
  for (const char* name : {"transformer.h.0.attn.c_attn.lora_A.weight", "h.3.ln_1.weight",
                           "h.0.crossattention.c_attn.weight", "wte.lora_embedding_A", "ln_f.g"}) {
    const TemporaryDir dir;
    copy_with(model_dir("rand-a"), dir.path, name);
    const std::string shown = name[0] == 't' ? std::string(name).substr(12) : name;
    EXPECT_EQ(loading_error(dir.path),
              cat("[model] ", dir.path.string(), ": tensor '", shown,
                  "' is no part of a GPT-2 of 3 blocks; adapters and changed architectures are not "
                  "supported"));
  }
  for (const char* name : {"score.weight", "lm_head.bias", "multiple_choice_head.summary.weight"}) {
    const TemporaryDir dir;
    copy_with(model_dir("rand-a"), dir.path, name);
    EXPECT_EQ(loading_error(dir.path), "") << name;
  }
}

}  // namespace
}  // namespace split::cloud
