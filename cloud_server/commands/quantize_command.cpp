#include "cloud_server/commands/quantize_command.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <iostream>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "cloud_server/state/blob_formats.h"
#include "io/weight_file.h"
#include "models/formats.h"
#include "program/flags.h"
#include "run/shard/shard.h"

namespace split::cloud {
namespace {

namespace fs = std::filesystem;

// A directory under a temporary name; commit() renames it, else the destructor removes it.
class AtomicDirectory {
 public:
  explicit AtomicDirectory(const fs::path& path) : path_(path) {
    std::string name = path.string() + ".XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) fail(name);
    temporary_ = name;
  }
  ~AtomicDirectory() {
    std::error_code ignored;
    if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
  }
  AtomicDirectory(const AtomicDirectory&) = delete;
  AtomicDirectory& operator=(const AtomicDirectory&) = delete;

  const fs::path& path() const { return temporary_; }
  void commit() {
    sync_directory(temporary_);
    fs::permissions(temporary_, fs::perms(0755));
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail(path_);
    temporary_.clear();
    sync_directory(path_.parent_path());
  }

 private:
  [[noreturn]] static void fail(const fs::path& what) {
    throw Error(ErrorKind::kIo, cat("[file] ", what.string(), ": ", errno_text(errno)));
  }
  fs::path path_, temporary_;
};

struct Part {
  const Blob* blob;
  std::optional<DType> format;  // nullopt: unchanged
};

// Returns each blob once, in the format of its stage. A float head that is the embedding is not a
// blob of its own.
std::vector<Part> parts_of(const Checkpoint& checkpoint, const Model& model,
                           const StageFormats& formats) {
  std::vector<Part> parts;
  for (const Stage& stage : model.stages()) {
    const std::optional<DType> asked = formats.of(stage.name);
    const DType format = asked.value_or(own_format(checkpoint, model, stage));
    for (const std::string& name : stage.blobs_as(format)) {
      const Blob& blob = model.blob(name);
      const auto there = std::ranges::find(parts, &blob, &Part::blob);
      if (there == parts.end()) {
        parts.push_back({&blob, asked});
      } else if (there->format != asked) {
        throw Error(ErrorKind::kInput,
                    "--format: the head of this model is its embedding: expected one format of "
                    "floats for both");
      }
    }
  }
  return parts;
}

FormattedWeights weights_in(const Checkpoint& checkpoint, const WeightDecl& decl,
                            std::optional<DType> format, ThreadPool& pool) {
  const std::span one(&decl, 1);
  return format ? format_weights(checkpoint, one, *format, pool) : own_weights(checkpoint, one);
}

// Describes a weight as it will be written, without its bytes.
NamedTensor planned(const Checkpoint& checkpoint, const WeightDecl& decl,
                    std::optional<DType> format) {
  const DType dtype =
      format ? dtype_in(checkpoint, decl, *format) : stored_weight(checkpoint, decl).dtype;
  return {decl.name, {dtype, stored_dims(decl, dtype), {}}};
}

// Writes the weights, with one in memory at a time. Returns the file's size.
uint64_t write_weights(const fs::path& path, const Checkpoint& checkpoint, const Model& model,
                       const StageFormats& formats) {
  const std::vector<Part> parts = parts_of(checkpoint, model, formats);
  std::vector<NamedTensor> tensors;
  for (const Part& part : parts) {
    for (const WeightDecl& decl : part.blob->weights) {
      tensors.push_back(planned(checkpoint, decl, part.format));
    }
  }
  ThreadPool pool(0);
  AtomicFile file(path);
  const std::string header = weight_file_header(tensors);
  file.append(as_bytes_of(header));
  uint64_t size = header.size();
  for (const Part& part : parts) {
    for (const WeightDecl& decl : part.blob->weights) {
      const FormattedWeights made = weights_in(checkpoint, decl, part.format, pool);
      file.append(made.tensors[0].view.bytes);
      size += made.tensors[0].view.bytes.size();
    }
  }
  file.commit();
  return size;
}

}  // namespace

int quantize_command(const std::vector<std::string>& arguments) {
  std::string model_path, format, out;
  Flags flags(
      "cloud_server quantize: writes a checkpoint with its matrices in blocks of 8 or 4 bits, a\n"
      "directory for --model\n"
      "usage: cloud_server quantize --model PATH --format FORMAT --out DIR\n");
  flags.group("What");
  flags.text("model", "PATH", "a Hugging Face directory or a GGUF file", &model_path);
  flags.text("format", "FORMAT|KIND=FORMAT,...",
             "q8_0 or q4_0 (with a q8_0 head), or of each of embed, block, norm and head: "
             "head=q8_0,block=q4_0; what is not named stays as it is",
             &format);
  flags.text("out", "DIR", "where to write; must not be there yet", &out);
  const Flags::Asked asked =
      flags.parse(arguments, [](const char* name) { return std::getenv(name); });
  if (asked != Flags::Asked::kNothing) {
    std::cout << flags.help();
    return 0;
  }
  for (const auto& [flag, value] :
       {std::pair{"--model", &model_path}, {"--format", &format}, {"--out", &out}}) {
    if (value->empty()) throw Error(ErrorKind::kInput, cat("quantize: expected ", flag));
  }
  StageFormats formats;
  try {
    formats = StageFormats::parse(format);
  } catch (const Error& error) {
    throw Error(ErrorKind::kInput, cat("--format: ", error.what()));
  }
  if (!formats.quantise()) {
    throw Error(ErrorKind::kInput,
                cat("--format: expected q8_0 or q4_0 for blocks or the head, got ", shown(format)));
  }
  fs::path target = fs::path(out).lexically_normal();
  if (!target.has_filename()) target = target.parent_path();  // "out/"
  std::error_code error;
  if (fs::exists(target, error)) {
    throw Error(ErrorKind::kInput, cat("--out: ", target.string(), " is there already"));
  }

  const Checkpoint checkpoint(model_path);
  const std::unique_ptr<Model> model = model_of(checkpoint);
  AtomicDirectory made(target);
  const uint64_t size =
      write_weights(made.path() / "model.safetensors", checkpoint, *model, formats);
  for (const std::string& name : checkpoint.files()) {
    write_file(made.path() / name, as_bytes_of(checkpoint.file(name)));
  }
  made.commit();
  log_info(cat(target.string(), ": ", size, " bytes of weights, ", format));
  return 0;
}

}  // namespace split::cloud
