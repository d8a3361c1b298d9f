#include "io/checkpoint.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "base/figures.h"
#include "base/json.h"
#include "base/log.h"
#include "io/gguf_model.h"
#include "io/weight_file.h"

namespace split {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxConfig = 1 << 20;  // 1 MiB: config.json is about 1 KB, more with many labels
constexpr uint64_t kMaxIndex = 4 << 20;   // 4 MiB, as a safetensors header
constexpr int kIndexDepth = 8;            // weight_map is at 2; "metadata" is free-form
constexpr uint64_t kMaxFile = 64 << 20;   // 64 MiB: Gemma 3's tokenizer.json has 33 MB
constexpr const char* kConfig = "config.json";
constexpr const char* kTokenizer = "tokenizer.json";
constexpr const char* kGguf = ".gguf";
constexpr const char* kModules = "modules.json";
constexpr const char* kWeights = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

// Names the pickle and its directory, as save_pretrained() wants that.
[[noreturn]] void refuse_pickle(const fs::path& dir, const fs::path& pickle) {
  throw Error(
      ErrorKind::kInput,
      cat("[checkpoint] ", (dir / pickle).string(),
          ": a pickle can run code and is refused; if you trust it, convert it: python3 -c ",
          "\"from transformers import AutoModelForCausalLM as M; M.from_pretrained('DIR')",
          ".save_pretrained('DIR', safe_serialization=True)\""));
}

// Refuses an adapter, whose weights are added to another model's.
void refuse_adapter(const fs::path& dir) {
  for (const char* name : {"adapter_config.json", "adapter_model.safetensors"}) {
    std::error_code error;
    if (!fs::exists(dir / name, error)) continue;
    throw Error(
        ErrorKind::kInput,
        cat("[checkpoint] ", (dir / name).string(),
            ": expected a model, got an adapter (LoRA); merge it into the model that it is ",
            "for: PEFT's merge_and_unload(), then save_pretrained()"));
  }
}

bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name != "." && name.find("..") == name.npos &&
         name.find_first_of(std::string_view("/\\\0", 3)) == name.npos;
}

// Returns the folders of sentence-transformers' modules. Errors in the text are left to its reader.
std::vector<std::string> module_folders(const std::string& text) {
  std::vector<std::string> folders;
  try {
    const Json modules = parse_json(text, 16, "[modules.json]");
    for (const Json& one : modules.is_array() ? modules : Json::array()) {
      const Json* const path = one.is_object() ? one.find("path") : nullptr;
      if (path != nullptr && path->is_string() && is_plain_file_name(path->text())) {
        folders.push_back(path->text());
      }
    }
  } catch (const Error&) {
    return {};
  }
  return folders;
}

// Calls `read` for a file's bytes; damage becomes Error(kIntegrity), not the caller's fault.
template <typename Read>
auto read_bytes(const Read& read) {
  try {
    return read();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInput) throw;
    throw Error(ErrorKind::kIntegrity, error.what());
  }
}

// Like fs::exists, but true for a path that cannot be examined: the open that follows says why.
bool may_exist(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error) || error;
}

}  // namespace

Checkpoint::Checkpoint(const fs::path& path) : path_(path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    open_directory();
    return;
  }
  if (!fs::is_regular_file(path, error)) {
    throw Error(ErrorKind::kNotFound,
                cat("[checkpoint] ", path.string(), ": no such directory or GGUF file"));
  }
  if (path.extension() == kGguf) {
    open_gguf(path);
    return;
  }
  for (const char* pickle : {".bin", ".pt", ".pth", ".ckpt", ".pkl"}) {
    if (path.extension() == pickle) refuse_pickle(path.parent_path(), path.filename());
  }
  throw Error(ErrorKind::kInput,
              cat("[checkpoint] ", path.string(), ": expected a Hugging Face directory or a file ",
                  "that ends in .gguf"));
}

void Checkpoint::open_directory() {
  refuse_adapter(path_);
  const bool whole = may_exist(path_ / kWeights), indexed = may_exist(path_ / kIndex);
  if (!whole && !indexed) {
    std::vector<fs::path> ggufs;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(path_, error)) {
      if (entry.path().extension() == kGguf) ggufs.push_back(entry.path());
    }
    if (ggufs.size() > 1) {
      throw Error(ErrorKind::kInput, cat("[checkpoint] ", path_.string(), ": ", ggufs.size(),
                                         " GGUF files; name the one that is meant"));
    }
    if (ggufs.size() == 1) return open_gguf(ggufs[0]);
  }
  if (!may_exist(path_ / kConfig)) {
    throw Error(ErrorKind::kNotFound, cat("[checkpoint] ", path_.string(),
                                          ": no config.json; expected a Hugging Face checkpoint"));
  }
  config_json_ = read_file(path_ / kConfig, kMaxConfig);
  tensor_names_ = split::tensor_names(config_json_);
  weights_file_ = path_ / (whole ? kWeights : kIndex);  // transformers looks in this order too
  if (!whole && !indexed) refuse_without_weights();
  if (whole) {
    add_file(kWeights);
  } else {
    add_indexed_files();
  }
}

void Checkpoint::open_gguf(const fs::path& file) {
  weights_file_ = file;
  maps_.emplace_back(file);
  GgufModel model =
      read_gguf_model(read_bytes([&] { return Gguf::parse(maps_.back().bytes(), file.string()); }));
  if (model.widened_to > 0) {
    std::string types;
    for (const std::string& type : model.widened_types) types += (types.empty() ? "" : ", ") + type;
    log_info(cat("[gguf] ", file.string(), ": matrices in ", types,
                 " are read as f16: ", human_bytes(model.widened_to), " of memory in place of ",
                 human_bytes(model.widened_from), " of the file"));
  }
  tensors_ = std::move(model.tensors);
  owned_ = std::move(model.owned);
  config_json_ = model.config_json;
  tensor_names_ = split::tensor_names(config_json_);
  texts_.emplace(kConfig, std::move(model.config_json));
  texts_.insert(model.texts.begin(), model.texts.end());
}

std::vector<std::string> Checkpoint::files() const {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    std::error_code error;
    if (texts_.empty() ? fs::exists(path_ / name, error) : texts_.contains(name)) {
      names.push_back(name);
    }
    return !names.empty() && names.back() == name;
  };
  for (const char* name : {kConfig, "vocab.json", "merges.txt", kTokenizer, "vocab.txt",
                           "tokenizer_config.json", "generation_config.json", "chat_template.jinja",
                           "sentence_bert_config.json", "config_sentence_transformers.json"}) {
    add(name);
  }
  if (classifier_.empty()) {
    add(kClassifierFile);  // as `cloud_server quantize` leaves it
  } else {
    names.emplace_back(kClassifierFile);
  }
  if (!add(kModules)) return names;
  for (const std::string& folder : module_folders(text_of(kModules))) {
    add(folder + "/config.json");
    add(cat(folder, "/", kWeights));
  }
  return names;
}

std::string Checkpoint::file(std::string_view name) const {
  const std::vector<std::string> known = files();
  if (std::ranges::find(known, name) == known.end()) {
    throw Error(ErrorKind::kNotFound, cat("[checkpoint] ", path_.string(), ": no ", shown(name)));
  }
  return text_of(name);
}

std::string Checkpoint::text_of(std::string_view name) const {
  if (name == kClassifierFile && !classifier_.empty())
    return with_tensors(safetensors_header(classifier_), classifier_);
  return texts_.empty() ? read_file(path_ / name, kMaxFile) : texts_.find(name)->second;
}

void Checkpoint::refuse_without_weights() const {
  for (const char* pickle : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    if (may_exist(path_ / pickle)) refuse_pickle(path_, pickle);
  }
  throw Error(ErrorKind::kNotFound, cat("[checkpoint] ", path_.string(), ": neither ", kWeights,
                                        " nor ", kIndex, " nor a GGUF file"));
}

std::set<std::string> Checkpoint::add_file(const std::string& file) {
  std::set<std::string> added;
  const std::string what = (path_ / file).string();
  maps_.emplace_back(path_ / file);
  const auto read = [&] { return parse_weight_file(maps_.back().bytes(), what); };
  for (const auto& [full_name, view] : read_bytes(read)) {
    const std::string name = tensor_names_.name_of(full_name);
    if (tensor_names_.ignored(name)) {
      const bool head = std::ranges::any_of(std::array{"pooler.", "classifier.", "head."},
                                            [&](auto prefix) { return name.starts_with(prefix); });
      if (head && classifies(config_json_)) classifier_.push_back({name, view});
      continue;
    }
    if (format_name(view.dtype).empty()) {
      throw Error(
          ErrorKind::kInput,
          cat("[checkpoint] ", what, ": tensor ", shown(name), " is ", dtype_name(view.dtype),
              ", expected F32, F16, BF16 or blocks that __metadata__ describes"));
    }
    if (!tensors_.emplace(name, view).second) {
      throw Error(ErrorKind::kInput, cat("[checkpoint] ", what, ": a second tensor ", shown(name)));
    }
    added.emplace(name);
  }
  return added;
}

void Checkpoint::add_indexed_files() {
  const std::string where = cat("[checkpoint] ", (path_ / kIndex).string());
  const auto fail = [&](const std::string& message) {
    throw Error(ErrorKind::kInput, where + ": " + message);
  };
  const Json index = parse_json(read_file(path_ / kIndex, kMaxIndex), kIndexDepth, where);
  const Json* map = index.find("weight_map");
  if (map == nullptr || !map->is_object()) fail("expected an object with a weight_map");

  std::map<std::string, std::set<std::string>> names_of;  // file -> the tensors it should hold
  for (const auto& [name, file] : map->members()) {
    if (!file.is_string()) fail(cat("weight_map has no file name for ", shown(name)));
    const std::string& file_name = file.text();
    if (!is_plain_file_name(file_name)) {
      fail(cat("weight_map names the file ", shown(file_name),
               ", expected one in the same directory"));
    }
    names_of[file_name].insert(tensor_names_.name_of(name));
  }
  for (const auto& [file, names] : names_of) {
    if (!may_exist(path_ / file)) {
      throw Error(ErrorKind::kNotFound, cat(where, ": the file ", shown(file), " is missing"));
    }
    const std::set<std::string> added = add_file(file);
    for (const std::string& name : names) {
      if (!tensor_names_.ignored(name) && !added.contains(name)) {
        fail(cat("tensor ", shown(name), " is not in ", shown(file)));
      }
    }
  }
}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> out;
  out.reserve(tensors_.size());
  for (const auto& [name, view] : tensors_) out.push_back(name);
  return out;
}

const TensorView* Checkpoint::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

const TensorView& Checkpoint::at(std::string_view name) const {
  if (const TensorView* view = find(name)) return *view;
  throw Error(ErrorKind::kNotFound,
              cat("[checkpoint] ", weights_file_.string(), ": no tensor ", shown(name)));
}

DType Checkpoint::dtype() const {
  if (const TensorView* weight = find(tensor_names_.first)) return weight->dtype;
  std::map<DType, size_t> matrices;
  for (const auto& [name, view] : tensors_) matrices[view.dtype] += view.dims.size() >= 2;
  const auto most = std::max_element(matrices.begin(), matrices.end(),
                                     [](auto& a, auto& b) { return a.second < b.second; });
  if (most == matrices.end() || most->second == 0) return at(tensor_names_.first).dtype;
  return most->first;
}

}  // namespace split
