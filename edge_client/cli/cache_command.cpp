#include "edge_client/cli/cache_command.h"

#include <algorithm>

#include "base/figures.h"
#include "base/json.h"
#include "edge_client/weights/blobs/shard_cache.h"
#include "edge_client/weights/seen_models.h"
#include "program/exit_codes.h"

namespace split::edge {
namespace {

constexpr const char* kSummary =
    "edge_client cache: the weights on this machine, and the models that start\n"
    "without their server (--cut 0)\n"
    "\n"
    "  edge_client cache ls       which stages of which models, their format, size\n"
    "                             and last use, used longest ago first; then the\n"
    "                             models that start alone, and when they were seen;\n"
    "                             --json adds each file's sha256\n"
    "  edge_client cache verify   reads all of them and names those that are not what\n"
    "                             they should be (exit code 5); the next start that\n"
    "                             needs one mends it\n"
    "  edge_client cache prune    removes unfinished downloads that nobody works on\n"
    "                             and, with --cache-limit, what was used longest ago\n"
    "                             until the rest fits; and models that lost a file\n";

std::string utc(std::filesystem::file_time_type time) {
  return utc_text(std::chrono::system_clock::to_time_t(
      std::chrono::time_point_cast<std::chrono::seconds>(std::chrono::file_clock::to_sys(time))));
}

std::string files(size_t count, uint64_t bytes) {
  return cat(count, count == 1 ? " file, " : " files, ", human_bytes(bytes));
}

// Pads a word of the cache for a column of a table.
std::string padded(std::string_view word, size_t width) {
  const bool plain = std::ranges::all_of(word, [](char c) { return c > ' ' && c < 0x7f; });
  std::string text = plain ? std::string(word) : shown(word);
  text.resize(std::max(width, text.size() + 1), ' ');
  return text;
}

int list_as_json(const ShardCache& cache, const World& world) {
  const SeenModels::Names names = SeenModels(cache).names();
  Json json = {
      {"root", cache.root().string()}, {"files", Json::array()}, {"models", Json::array()}};
  for (const ShardCache::Entry& entry : cache.entries()) {
    const auto at = names.find(entry.sha256);
    const auto word = [&](std::string SeenModels::Name::*part) {
      return at == names.end() ? Json() : Json(at->second.*part);
    };
    json["files"].push_back({{"sha256", entry.sha256},
                             {"bytes", entry.bytes},
                             {"used", utc(entry.used)},
                             {"unfinished", entry.partial},
                             {"model", word(&SeenModels::Name::model)},
                             {"stage", word(&SeenModels::Name::stage)},
                             {"format", word(&SeenModels::Name::format)}});
  }
  for (const SeenModels::Entry& seen : SeenModels(cache).entries()) {
    if (!seen.complete) continue;
    json["models"].push_back(
        {{"model", seen.model}, {"server", seen.server}, {"seen", utc_text(seen.seconds)}});
  }
  world.console.out(json.dump() + "\n");
  return 0;
}

int list(const ShardCache& cache, const World& world) {
  uint64_t bytes = 0;
  const SeenModels::Names names = SeenModels(cache).names();
  const auto entries = cache.entries();
  const auto line = [&](const SeenModels::Name& name, std::string_view size,
                        std::string_view rest) {
    world.console.out(cat(padded(name.model, 16), padded(name.stage, 16), padded(name.format, 8),
                          std::string(size.size() < 9 ? 9 - size.size() : 0, ' '), size, "  ", rest,
                          "\n"));
  };
  if (!entries.empty()) line({"model", "stage", "format"}, "size", "last used");
  for (const ShardCache::Entry& entry : entries) {
    bytes += entry.bytes;
    const auto name = names.find(entry.sha256);
    line(
        name != names.end() ? name->second : SeenModels::Name{"-", entry.sha256.substr(0, 12), "-"},
        human_bytes(entry.bytes), cat(utc(entry.used), entry.partial ? ", unfinished" : ""));
  }
  world.console.out(cat(files(entries.size(), bytes), " in ", cache.root().string(), "\n"));
  for (const SeenModels::Entry& seen : SeenModels(cache).entries()) {
    if (seen.complete) {
      world.console.out(
          cat(shown(seen.model), " of ", shown(seen.server), "  ", utc_text(seen.seconds), "\n"));
    }
  }
  return 0;
}

bool is_good(const ShardCache::Entry& entry) {
  try {
    return Sha256::hex_of(MappedFile(entry.path).bytes()) == entry.sha256;
  } catch (const Error&) {  // removed or not readable
    return false;
  }
}

int verify(const ShardCache& cache, const World& world) {
  size_t good = 0, bad = 0, unfinished = 0;
  uint64_t bytes = 0;
  for (const ShardCache::Entry& entry : cache.entries()) {
    if (entry.partial) {
      ++unfinished;  // checked when it is resumed
    } else if (is_good(entry)) {
      ++good;
      bytes += entry.bytes;
    } else {
      ++bad;
      world.console.out(cat(entry.sha256, "  bad\n"));
    }
  }
  for (const SeenModels::Entry& seen : SeenModels(cache).entries()) {
    if (!seen.model.empty()) continue;
    ++bad;
    world.console.out(cat(seen.path.string(), "  bad\n"));
  }
  world.console.out(cat(files(good, bytes), " good, ", bad, " bad, ", unfinished, " unfinished\n"));
  return bad > 0 ? exit_code(ErrorKind::kIntegrity) : 0;
}

int prune(const ShardCache& cache, std::optional<uint64_t> limit, const World& world) {
  size_t count = 0;
  uint64_t bytes = 0, left = 0;
  for (const ShardCache::Entry& entry : cache.entries()) {
    (entry.partial && cache.remove(entry) ? (++count, bytes) : left) += entry.bytes;
  }
  for (const ShardCache::Entry& entry : cache.entries()) {
    if (!limit || left <= *limit) break;
    if (!cache.remove(entry)) continue;
    ++count;
    bytes += entry.bytes;
    left -= std::min(left, entry.bytes);
  }
  for (const SeenModels::Entry& seen : SeenModels(cache).entries()) {
    std::error_code ignored;
    if (!seen.complete) std::filesystem::remove(seen.path, ignored);
  }
  world.console.out(cat("removed ", files(count, bytes), ", ", human_bytes(left), " left\n"));
  return 0;
}

}  // namespace

int cache_command(std::span<const std::string> arguments, const World& world) {
  std::string root;
  uint64_t limit = 0;
  std::vector<std::string> what;
  Flags flags(kSummary);
  flags.fit(world.console.columns);
  flags.group("The cache");
  flags.text("cache", "DIR", "where it is (default: $XDG_CACHE_HOME/splitcompute)", &root);
  flags.bytes("cache-limit", "BYTES", "that prune leaves (no limit)", &limit);
  bool json = false;
  flags.toggle("json", "ls prints one JSON object", &json);
  flags.rest("ls|verify|prune", &what);
  const Flags::Asked asked = flags.parse({arguments.begin(), arguments.end()}, world.environment);
  if (asked != Flags::Asked::kNothing) {
    world.console.out(flags.help());
    return 0;
  }
  if (what.size() != 1 || (what[0] != "ls" && what[0] != "verify" && what[0] != "prune")) {
    throw Error(ErrorKind::kInput, cat("cache: expected ls, verify or prune, got ",
                                       what.empty() ? "nothing" : shown(what.back())));
  }
  const ShardCache cache(cache_root(root, world.environment));
  if (what[0] == "ls") return json ? list_as_json(cache, world) : list(cache, world);
  if (what[0] == "verify") return verify(cache, world);
  return prune(cache, flags.given("cache-limit") ? std::optional(limit) : std::nullopt, world);
}

}  // namespace split::edge
