#include "edge_client/weights/seen_models.h"

#include <algorithm>
#include <string_view>

#include "base/file.h"
#include "base/json.h"
#include "base/sort.h"
#include "edge_client/weights/blobs/kept_file.h"
#include "wire/fields.h"

namespace split::edge {

namespace fs = std::filesystem;

namespace {

// Limits of remote.cpp, too.
constexpr uint64_t kMostRecord = 64 << 10, kMostManifest = 8 << 20, kMostFile = 64 << 20;
constexpr size_t kDigits = 64, kMostFiles = 16;
constexpr const char* kNamesFile = "names";
constexpr size_t kManyNames = 4096;
constexpr uint64_t kMostNames = 4 << 20;          // bytes of the file of names
constexpr int64_t kLastSecond = 253'402'300'799;  // the year 9999's

std::string checked_hash(std::string text) {
  if (!is_lower_hex(text, kDigits)) throw Error(ErrorKind::kInput, "expected a sha256");
  return text;
}

}  // namespace

bool same_model(const wire::ModelInfo& a, const wire::ModelInfo& b) {
  const auto own = [](const wire::ModelInfo& info) {
    std::vector<std::string> hashes;
    for (const wire::StageInfo& stage : info.stages) {
      for (const wire::BlobInfo& blob : stage.blobs) {
        if (blob.format == stage.format) hashes.push_back(blob.sha256);
      }
    }
    return hashes;
  };
  return a.config_json == b.config_json && a.files == b.files && a.profile == b.profile &&
         a.generate_phase == b.generate_phase && own(a) == own(b);
}

// A record as its file has it.
struct SeenModels::Record {
  Key key;
  std::string model;
  int64_t seconds = 0;
  std::string manifest;                      // the manifest's hash
  std::map<std::string, std::string> files;  // hashes by name

  std::string text() const {
    Json list = Json::object();
    for (const auto& [name, sha256] : files) list[name] = sha256;
    return Json{{"server", key.server}, {"asked", key.asked}, {"query", key.query},
                {"model", model},       {"seen", seconds},    {"manifest", manifest},
                {"files", list}}
        .dump();
  }
  static Record parse(std::string_view text) {
    wire::Fields fields(text);
    Record record;
    record.key = {fields.text("server"), fields.text("asked"), fields.text("query")};
    record.model = fields.text("model");
    record.seconds = fields.integer("seen", 0, kLastSecond);
    record.manifest = checked_hash(fields.text("manifest"));
    const Json& list = fields.raw("files");
    if (!list.is_object() || list.size() > kMostFiles) fields.refuse("files", "expected few files");
    for (const auto& [name, sha256] : list.members())
      record.files[name] = checked_hash(sha256.text());
    fields.finish();
    return record;
  }
};

fs::path SeenModels::path_of(const Key& key) const {
  return folder() / Sha256::hex_of(as_bytes_of(cat(key.server, "\n", key.asked, "\n", key.query)));
}

// Returns a file of the cache, if it matches its name.
std::optional<std::string> SeenModels::kept(const std::string& sha256, uint64_t limit) const {
  const fs::path path = cache_.path_of(sha256);
  std::optional<std::string> text = read_kept(path, limit);
  if (text && Sha256::hex_of(as_bytes_of(*text)) != sha256) text.reset();
  if (text) cache_.touch(path);
  return text;
}

std::string SeenModels::keep(std::string_view text, uint64_t limit) const {
  std::string sha256 = Sha256::hex_of(as_bytes_of(text));
  if (!kept(sha256, limit)) write_kept(cache_.path_of(sha256), text);
  return sha256;
}

void SeenModels::remember(const Key& key, const SeenModel& model) const {
  Record record{
      key, model.info.id, model.seconds, keep(wire::to_json(model.info), kMostManifest), {}};
  for (const auto& [name, text] : model.files) record.files[name] = keep(text, kMostFile);
  write_kept(path_of(key), record.text());
  Names names{{record.manifest, {record.model, "manifest", "-"}}};
  for (const auto& [name, sha256] : record.files) names[sha256] = {record.model, name, "-"};
  add_names(names);
  const std::vector<Entry> all = entries();
  for (size_t i = 0; i + kMost < all.size(); ++i) remove_file(all[i].path);
}

std::optional<SeenModel> SeenModels::recall(const Key& key) const {
  const fs::path path = path_of(key);
  const std::optional<std::string> text = read_kept(path, kMostRecord);
  if (!text) return std::nullopt;
  try {
    const Record record = Record::parse(*text);
    if (record.key.server != key.server || record.key.asked != key.asked ||
        record.key.query != key.query) {
      throw Error(ErrorKind::kInput, "it is another one's");
    }
    const auto part = [&](std::string_view name, const std::string& sha256, uint64_t limit) {
      std::optional<std::string> found = kept(sha256, limit);
      if (!found) {
        throw Error(ErrorKind::kInput,
                    cat(name, " (", cache_.path_of(sha256).string(), ") is gone or damaged"));
      }
      return std::move(*found);
    };
    SeenModel model;
    model.info = wire::parse_model_info(part("the manifest", record.manifest, kMostManifest));
    model.info.id = record.model;
    for (const auto& [name, sha256] : record.files)
      model.files[name] = part(name, sha256, kMostFile);
    model.seconds = record.seconds;
    return model;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInput) throw;
    throw Error(ErrorKind::kIntegrity, cat("[cache] ", path.string(), ": ", error.what()));
  }
}

bool SeenModels::has(const Key& key) const { return file_status(path_of(key)).has_value(); }

bool SeenModels::here(const std::string& sha256) const {
  return file_status(cache_.path_of(sha256)).has_value();
}

std::vector<SeenModels::Entry> SeenModels::entries() const {
  std::vector<Entry> entries;
  for (FoundFile& file : files_below(folder())) {
    Entry& entry = entries.emplace_back();
    entry.path = std::move(file.path);
    try {
      const Record record = Record::parse(read_kept(entry.path, kMostRecord).value_or(""));
      entry.server = record.key.server;
      entry.model = record.model;
      entry.seconds = record.seconds;
      entry.complete = here(record.manifest);
      for (const auto& [name, sha256] : record.files)
        entry.complete = entry.complete && here(sha256);
    } catch (const Error&) {  // damaged, or removed meanwhile
      entry.complete = false;
    }
  }
  sort_stably(entries, [](const Entry& a, const Entry& b) {
    return std::tie(a.seconds, a.path) < std::tie(b.seconds, b.path);
  });
  return entries;
}

void SeenModels::clear() const {
  cache_.shrink(0, 0, {});
  for (const Entry& seen : entries()) remove_file(seen.path);
  remove_file(cache_.root() / kNamesFile);
}

// The file has a line each: sha256, format, stage, model.
SeenModels::Names SeenModels::names() const {
  Names names;
  std::string text;
  try {
    text = read_kept(cache_.root() / kNamesFile, kMostNames).value_or("");
  } catch (const Error&) {  // no regular file
  }
  const auto cut = [](std::string_view& rest, std::string_view ends) {
    const std::string_view part = rest.substr(0, rest.find_first_of(ends));
    rest.remove_prefix(std::min(part.size() + 1, rest.size()));
    return std::string(part);
  };
  for (std::string_view rest = text; !rest.empty();) {
    const std::string line = cut(rest, "\n");
    std::string_view words = line;
    const std::string sha256 = cut(words, " "), format = cut(words, " "), stage = cut(words, " ");
    const std::string model = cut(words, " ");
    if (!model.empty() && is_lower_hex(sha256, kDigits)) names[sha256] = {model, stage, format};
  }
  return names;
}

void SeenModels::add_names(const Names& more) const {
  Names all = names();
  const Names before = all;
  if (all.size() > kManyNames) {  // drops removed files
    std::erase_if(all, [&](const auto& one) { return !here(one.first); });
  }
  for (const auto& [sha256, name] : more) all[sha256] = name;
  if (all == before) return;
  std::string text;
  for (const auto& [sha256, name] : all) {
    text += cat(sha256, " ", name.format, " ", name.stage, " ", name.model, "\n");
  }
  try {
    write_kept(cache_.root() / kNamesFile, text);
  } catch (const Error&) {  // full, or read-only
  }
}

void SeenModels::name_blobs(const wire::ModelInfo& info,
                            const std::vector<wire::BlobInfo>& blobs) const {
  Names names;
  for (const wire::BlobInfo& blob : blobs) {
    std::string stages;  // some blobs have two: the vocabulary's matrix
    for (const wire::StageInfo& stage : info.stages) {
      const auto same = [&](const wire::BlobInfo& other) { return other.sha256 == blob.sha256; };
      if (std::ranges::none_of(stage.blobs, same)) continue;
      stages += cat(stages.empty() ? "" : "+", stage.name);
    }
    names[blob.sha256] = {info.id, stages, blob.format};
  }
  add_names(names);
}

}  // namespace split::edge
