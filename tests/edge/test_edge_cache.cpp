// edge_client's cache: nothing is used that is not what its name says, whatever happened to the
// disk or the download.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "base/figures.h"
#include "base/system/part_file.h"
#include "edge_client/cloud/remote.h"
#include "edge_client/measure/plan.h"
#include "edge_client/weights/blobs/shard_cache.h"
#include "edge_client/weights/seen_models.h"
#include "support/edge_world.h"
#include "wire/codes.h"

namespace split::test {
namespace {

namespace fs = std::filesystem;

GatedCloud& the_cloud() {
  static ForAllTests<GatedCloud> cloud;
  return cloud.get("rand-a");
}

Outcome run_with(const fs::path& cache, std::vector<std::string> more = {},
                 const EdgeOptions& options = {}) {
  std::vector<std::string> arguments = {cat("--server=", the_cloud().url()),
                                        cat("--cache=", cache.string()),
                                        "--device=cpu",
                                        "--threads=1",
                                        "--prompt-ids=1,2,3",
                                        "--cut=1",
                                        "--seed=1",
                                        "--json",
                                        "--max-tokens=4"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return the_cloud().ended(run_edge(arguments, options));
}

class EdgeCache : public testing::Test {
 protected:
  void SetUp() override { the_cloud().reset({}); }
};

std::vector<fs::path> files_in(const fs::path& cache) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(cache)) {
    const bool named = entry.path().filename() == "names";  // what the others are, for people
    if (entry.is_regular_file() && !named) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

TEST_F(EdgeCache, DownloadsOnceAndNamesFilesByTheirHash) {
  const TemporaryFolder cache;
  const Outcome first = run_with(cache.path);
  ASSERT_EQ(first.code, 0) << first.err;
  uint64_t bytes = 0;
  for (const fs::path& file : files_in(cache.path)) {
    bytes += fs::file_size(file);
    const MappedFile map(file);
    EXPECT_EQ(Sha256::hex_of(map.bytes()), file.filename().string());
  }
  EXPECT_EQ(first.json()["receipt"]["bytes_downloaded"], bytes);
  the_cloud().reset({});
  const Outcome second = run_with(cache.path);
  EXPECT_EQ(second.json()["receipt"]["bytes_downloaded"], 0);
  EXPECT_EQ(second.json()["receipt"]["bytes_from_cache"], bytes);
  EXPECT_EQ(second.json()["tokens"], first.json()["tokens"]);
  EXPECT_EQ(the_cloud().blobs, 0);
}

TEST_F(EdgeCache, ReplacesFilesThatAreNotWhatTheirNameSays) {
  const TemporaryFolder cache;
  const Outcome first = run_with(cache.path);
  const auto files = files_in(cache.path);
  ASSERT_GE(files.size(), 3u);
  fs::resize_file(files[0], fs::file_size(files[0]) - 1);
  fs::resize_file(files[1], 0);
  {
    std::fstream file(files[2], std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-1, std::ios::end);
    const char last = static_cast<char>(file.get() ^ 1);
    file.seekp(-1, std::ios::end);
    file.put(last);
  }
  uint64_t expected = 0;
  const Outcome again = run_with(cache.path);
  ASSERT_EQ(again.code, 0) << again.err;
  for (int i = 0; i < 3; ++i) expected += fs::file_size(files[static_cast<size_t>(i)]);
  EXPECT_EQ(again.json()["receipt"]["bytes_downloaded"], expected);
  EXPECT_EQ(again.json()["tokens"], first.json()["tokens"]);
  for (const fs::path& file : files_in(cache.path)) {
    EXPECT_EQ(Sha256::hex_of(MappedFile(file).bytes()), file.filename().string());
  }
}

// Something in a file's place that is no file: never opened, waited for or written through.
TEST_F(EdgeCache, RefusesFoldersLinksAndPipesWithExitFour) {
  const TemporaryFolder full;
  ASSERT_EQ(run_with(full.path).code, 0);
  const fs::path file = fs::relative(files_in(full.path)[0], full.path);
  const TemporaryFolder others;
  const fs::path victim = others.path / "victim";
  const std::pair<const char*, std::function<void(const fs::path&)>> things[] = {
      {"a FIFO", [](const fs::path& at) { CHECK(::mkfifo(at.c_str(), 0600) == 0); }},
      {"a link", [&](const fs::path& at) { fs::create_symlink(victim, at); }},
      {"a link to nothing", [&](const fs::path& at) { fs::create_symlink("nothing", at); }},
      {"a folder", [](const fs::path& at) { fs::create_directory(at); }}};
  for (const auto& [name, make] : things) {
    for (const char* suffix : {"", ".part"}) {
      write_file(victim, as_bytes_of("16 bytes of mine"));
      const TemporaryFolder cache;
      const fs::path at = cache.path / (file.string() + suffix);
      fs::create_directories(at.parent_path());
      make(at);
      const Outcome got = run_with(cache.path, {"--quiet"});
      EXPECT_EQ(got.code, 4) << name << suffix << ": " << got.err;
      EXPECT_NE(got.err.find(at.string()), std::string::npos) << name << ": " << got.err;
      EXPECT_EQ(std::ranges::count(got.err, '\n'), 1) << got.err;
      EXPECT_FALSE(fs::is_regular_file(fs::symlink_status(at))) << name << suffix;
      EXPECT_EQ(read_file(victim, 100), "16 bytes of mine") << name << suffix;
    }
  }
}

TEST_F(EdgeCache, WrongBytesFromTheServerAreExitFive) {
  for (const int wrong : {0, 1}) {
    const TemporaryFolder cache;
    the_cloud().reset({}, [&](const http::Request& request, int) -> std::optional<http::Response> {
      http::Response response = the_cloud().real(request);
      if (wrong == 0) response.body.back() = static_cast<char>(response.body.back() ^ 1);
      if (wrong == 1) response.body.pop_back();
      return response;
    });
    const Outcome got = run_with(cache.path, {"--quiet"});
    EXPECT_EQ(got.code, 5) << got.err;
    EXPECT_EQ(std::ranges::count(got.err, '\n'), 1) << got.err;
    EXPECT_TRUE(files_in(cache.path).empty());
  }
}

TEST_F(EdgeCache, IsOnlyReadWhenItIsComplete) {
  const TemporaryFolder cache;
  const Outcome first = run_with(cache.path);
  std::vector<fs::path> folders = {cache.path};
  for (const auto& entry : fs::recursive_directory_iterator(cache.path)) {
    if (entry.is_directory()) folders.push_back(entry.path());
  }
  std::map<fs::path, fs::file_time_type> written;
  for (const fs::path& folder : folders) {
    written[folder] = fs::last_write_time(folder);  // root may write anyway: so this is looked at
    fs::permissions(folder, fs::perms::owner_read | fs::perms::owner_exec);
  }
  const Outcome second = run_with(cache.path);
  for (const fs::path& folder : folders) {
    EXPECT_EQ(fs::last_write_time(folder), written[folder]);
    fs::permissions(folder, fs::perms::owner_all);
  }
  ASSERT_EQ(second.code, 0) << second.err;
  EXPECT_EQ(second.json()["tokens"], first.json()["tokens"]);
}

TEST_F(EdgeCache, ProgressIsOneTotalThatNeverGoesBack) {
  const TemporaryFolder cache;
  const Outcome lines = run_with(cache.path);
  int last = 0;
  for (size_t at = lines.err.find("download: "); at != std::string::npos;
       at = lines.err.find("download: ", at + 1)) {
    const int percent = std::stoi(lines.err.substr(at + 10));
    EXPECT_GT(percent, last);
    last = percent;
  }
  EXPECT_EQ(last, 100) << lines.err;
  const TemporaryFolder other;
  const Outcome bar = run_with(other.path, {}, {.input = "", .environment = {}, .terminal = true});
  EXPECT_EQ(bar.err.find("\rdownload [........................] 0 B of "), 0u) << bar.err;
  EXPECT_NE(bar.err.find("\rdownload [########################] "), std::string::npos);
}

TEST_F(EdgeCache, FetchesOnlyWhatAnotherCutOrFormatNeeds) {
  const TemporaryFolder cache;
  const Outcome tail = run_with(cache.path, {"--cut=2"});  // all blocks on the cloud
  ASSERT_EQ(tail.code, 0) << tail.err;
  const auto before = files_in(cache.path);
  const Outcome one = run_with(cache.path, {"--cut=1"});
  uint64_t added = 0;
  std::vector<fs::path> added_files;
  for (const fs::path& file : files_in(cache.path)) {
    if (std::ranges::find(before, file) != before.end()) continue;
    added += fs::file_size(file);
    added_files.push_back(file);
  }
  EXPECT_EQ(added_files.size(), 1u);  // a block
  EXPECT_EQ(one.json()["receipt"]["bytes_downloaded"], added);
  const Outcome half = run_with(cache.path, {"--cut=1", "--format=f16"});
  EXPECT_GT(half.json()["receipt"]["bytes_downloaded"], 0);
  EXPECT_EQ(half.json()["receipt"]["bytes_from_cache"], 0);
  const Outcome back = run_with(cache.path, {"--cut=2"});
  EXPECT_EQ(back.json()["receipt"]["bytes_downloaded"], 0);
}

TEST_F(EdgeCache, MakesRoomWithinALimitByRemovingWhatWasUsedLongestAgo) {
  const TemporaryFolder cache;
  const Outcome half = run_with(cache.path, {"--cut=2", "--format=f16"});
  const auto half_files = files_in(cache.path);
  const Outcome whole = run_with(cache.path, {"--cut=2"});
  ASSERT_EQ(whole.code, 0) << whole.err;
  const auto bytes = [](const Outcome& run) {
    return run.json()["receipt"]["bytes_downloaded"].get<uint64_t>();
  };
  // Since then the half ones were used, so the others are older, whatever their order on the disk.
  for (const fs::path& file : half_files) {
    fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::hours(2));
  }
  run_with(cache.path, {"--cut=2", "--format=f16"});  // uses them: now
  for (const fs::path& file : files_in(cache.path)) {
    if (std::ranges::find(half_files, file) != half_files.end()) continue;
    fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::hours(1));
  }
  const Outcome kept =
      run_with(cache.path, {"--cut=2", "--format=f16", cat("--cache-limit=", bytes(half) + 1)});
  EXPECT_EQ(bytes(kept), 0u);
  for (const fs::path& file : half_files) {
    EXPECT_GT(fs::last_write_time(file), fs::file_time_type::clock::now() - std::chrono::hours(1));
  }
  EXPECT_EQ(files_in(cache.path), half_files);
  // A limit below what the run needs takes everything else and nothing of its own.
  const Outcome tight = run_with(cache.path, {"--cut=2", "--cache-limit=1"});
  EXPECT_EQ(tight.code, 0) << tight.err;
  EXPECT_EQ(bytes(tight), bytes(whole));
  for (const fs::path& file : half_files) EXPECT_FALSE(fs::exists(file));
  EXPECT_EQ(bytes(run_with(cache.path, {"--cut=2", "--cache-limit=1"})), 0u);
}

TEST_F(EdgeCache, IsListedVerifiedAndPruned) {
  const TemporaryFolder cache;
  const auto command = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "cache");
    words.push_back(cat("--cache=", cache.path.string()));
    return run_edge(words);
  };
  EXPECT_EQ(command({"ls"}).out, cat("0 files, 0 B in ", cache.path.string(), "\n"));
  run_with(cache.path);
  const auto files = files_in(cache.path);
  const Outcome listed = command({"ls"});
  EXPECT_EQ(listed.code, 0);
  EXPECT_EQ(static_cast<size_t>(std::ranges::count(listed.out, '\n')), files.size() + 2);
  for (const char* stage : {"block.1 ", "block.2 ", "norm ", "embed+head "}) {
    const size_t at = listed.out.find(cat("rand-a          ", stage));
    ASSERT_NE(at, std::string::npos) << stage << listed.out;
    const std::string line = listed.out.substr(at, listed.out.find('\n', at) - at);
    EXPECT_NE(line.find(" f32 "), std::string::npos) << line;
    EXPECT_NE(line.find("B  20"), std::string::npos) << line;
    EXPECT_LE(line.size(), 80u) << line;
  }
  const nlohmann::json json = command({"ls", "--json"}).json();
  ASSERT_EQ(json["files"].size(), files.size());
  for (const nlohmann::json& file : json["files"]) {
    const auto hash = file["sha256"].get<std::string>();
    EXPECT_EQ(file["bytes"], fs::file_size(edge::ShardCache(cache.path).path_of(hash)));
    EXPECT_EQ(file["model"], "rand-a");
  }
  const Outcome good = command({"verify"});
  EXPECT_EQ(good.code, 0);
  EXPECT_NE(good.out.find(cat(files.size(), " files, ")), std::string::npos) << good.out;
  {
    std::fstream file(files[1], std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(100);
    file.put('\x7f');
  }
  const Outcome bad = command({"verify"});
  EXPECT_EQ(bad.code, 5);
  EXPECT_TRUE(bad.out.starts_with(files[1].filename().string() + "  bad\n")) << bad.out;
  EXPECT_NE(bad.out.find(", 1 bad, 0 unfinished"), std::string::npos) << bad.out;

  // One unfinished download that somebody works on, and one that nobody does.
  const edge::ShardCache shards(cache.path);
  const fs::path mine = shards.path_of(std::string(64, '1'));
  const fs::path nobodys = shards.path_of(std::string(64, '2'));
  fs::create_directories(mine.parent_path());
  fs::create_directories(nobodys.parent_path());
  auto held = PartFile::take(mine, 1000);
  PartFile::take(nobodys, 1000);
  EXPECT_NE(command({"ls"}).out.find("unfinished"), std::string::npos);
  EXPECT_EQ(command({"prune"}).code, 0);
  EXPECT_FALSE(fs::exists(nobodys.string() + ".part"));
  EXPECT_TRUE(fs::exists(mine.string() + ".part"));
  EXPECT_EQ(files_in(cache.path).size(), files.size() + 1);
  fs::last_write_time(files[0], fs::file_time_type::clock::now() - std::chrono::hours(1));
  uint64_t left = 0;
  for (const fs::path& file : files) left += fs::file_size(file);
  left -= fs::file_size(files[0]);
  EXPECT_EQ(command({"prune", cat("--cache-limit=", left)}).code, 0);
  EXPECT_FALSE(fs::exists(files[0]));
  EXPECT_TRUE(fs::exists(files[1]));
  command({"prune", "--cache-limit=0"});
  held.reset();
  command({"prune"});
  EXPECT_TRUE(files_in(cache.path).empty());
  for (const std::vector<std::string>& wrong :
       {std::vector<std::string>{}, {"rm"}, {"ls", "verify"}, {"ls", "--server=x"}}) {
    const Outcome refused = command(wrong);
    EXPECT_EQ(refused.code, 2);
    EXPECT_EQ(std::ranges::count(refused.err, '\n'), 1) << refused.err;
  }
  EXPECT_NE(command({"--help"}).out.find("verify"), std::string::npos);
}

TEST_F(EdgeCache, ListsModelsThatStartWithoutTheirServerAndForgetsThem) {
  const TemporaryFolder cache;
  const auto command = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "cache");
    words.push_back(cat("--cache=", cache.path.string()));
    return run_edge(words);
  };
  run_with(cache.path);
  EXPECT_EQ(command({"ls"}).out.find("'rand-a'"), std::string::npos);
  run_with(cache.path, {"--cut=0"});
  // One as the server's first, one by its name.
  const std::string seen = cat("'rand-a' of '", the_cloud().url(), "'  20");
  const std::string list = command({"ls"}).out;
  const size_t at = list.find(seen);
  ASSERT_NE(at, std::string::npos) << list;
  EXPECT_NE(list.find(seen, at + 1), std::string::npos) << list;
  EXPECT_EQ(command({"verify"}).code, 0);

  const std::vector<fs::path> records = files_in(cache.path / "seen");
  ASSERT_EQ(records.size(), 2u);
  std::ofstream(records[0]) << "{}";
  const Outcome bad = command({"verify"});
  EXPECT_EQ(bad.code, 5);
  EXPECT_NE(bad.out.find(cat(records[0].string(), "  bad\n")), std::string::npos) << bad.out;
  EXPECT_NE(bad.out.find(", 1 bad, 0 unfinished"), std::string::npos) << bad.out;
  command({"prune"});
  EXPECT_EQ(files_in(cache.path / "seen"), std::vector{records[1]});
  command({"prune", "--cache-limit=0"});
  EXPECT_TRUE(files_in(cache.path).empty());

  // Keeps as many as there may be, whoever was seen.
  const edge::SeenModels models{edge::ShardCache(cache.path)};
  edge::SeenModel model;
  model.info.config_json = "{}";
  for (int i = 0; i < 70; ++i) {
    model.seconds = 1000 + i;
    models.remember({cat("http://", i), "m", "?"}, model);
  }
  const auto entries = models.entries();
  ASSERT_EQ(entries.size(), edge::SeenModels::kMost);
  EXPECT_EQ(entries.front().server, "http://6");
  EXPECT_EQ(entries.back().server, "http://69");
}

// A proxy or an object store under a path of its own, that knows nothing of models.
TEST_F(EdgeCache, FetchesFromAnotherOriginWhenTheServerSaysSo) {
  std::mutex mutex;
  std::vector<http::Headers> asked;
  bool wrong = false;
  Running store([&](http::Server& server) {
    server.route("GET", "/a/b/{hex}", [&](const http::Request& request) {
      const std::lock_guard lock(mutex);
      asked.push_back(request.headers);
      auto file = the_cloud().model().weights().blob(request.path_params[0]);
      if (!file) throw http::HttpError(404, wire::codes::kNotFound, "no such object");
      if (wrong) {
        std::string text;
        for (const Bytes piece : file->pieces) text += as_text(piece);
        text[text.size() / 2] = static_cast<char>(text[text.size() / 2] ^ 1);
        auto owner = std::make_shared<const std::string>(std::move(text));
        return http::Response::bytes({as_bytes_of(*owner)}, owner, "a/b", "\"e\"");
      }
      return http::Response::bytes(file->pieces, file->owner, "a/b", "\"e\"");
    });
  });
  struct Restore {
    ~Restore() { the_cloud().cloud.blob_url.clear(); }
  } restore;
  const TemporaryFolder direct_cache, cache, other;
  const Outcome direct = run_with(direct_cache.path);
  the_cloud().cloud.blob_url = store.url() + "/a/b/";
  the_cloud().reset({});
  const Outcome got = run_with(cache.path);
  ASSERT_EQ(got.code, 0) << got.err;
  EXPECT_EQ(got.json()["tokens"], direct.json()["tokens"]);
  EXPECT_EQ(the_cloud().blobs, 0);
  ASSERT_GE(asked.size(), 3u);
  for (const http::Headers& headers : asked) {
    for (const char* secret : {"Authorization", "Cookie", "Proxy-Authorization"}) {
      EXPECT_FALSE(headers.get(secret)) << secret;
    }
  }
  wrong = true;
  EXPECT_EQ(run_with(other.path, {"--quiet"}).code, 5);
  the_cloud().cloud.blob_url = store.url() + "/nowhere";
  const Outcome none = run_with(other.path, {"--quiet"});
  EXPECT_EQ(none.code, 3);
  EXPECT_NE(none.err.find(store.url() + " answered 404"), std::string::npos) << none.err;
  the_cloud().cloud.blob_url = "ftp://x/y";
  const Outcome bad = run_with(other.path, {"--quiet"});
  EXPECT_EQ(bad.code, 3);
  EXPECT_NE(bad.err.find("blob_url"), std::string::npos) << bad.err;
}

TEST(EdgePlan, IsTheTableInTheReadme) {
  GatedCloud demo("demo");
  // Asks for no format: each is in the table once the server has made it by itself.
  Outcome plan;
  do {
    plan = run_edge({cat("--server=", demo.url()), "--plan"});
    ASSERT_EQ(plan.code, 0) << plan.err;
  } while (plan.out.find("q4_0") == plan.out.npos || plan.out.find(" - ") != plan.out.npos);
  EXPECT_EQ(demo.blobs, 0);
  EXPECT_TRUE(plan.out.starts_with("| | on this machine | f16 |")) << plan.out;
  // The cache as a run finds it.
  const TemporaryFolder cache;
  const Outcome run =
      run_edge({cat("--server=", demo.url()), cat("--cache=", cache.path.string()), "--cut=6",
                "--prompt=a", "--max-tokens=1", "--device=cpu", "--json"});
  const uint64_t bytes = run.json()["receipt"]["bytes_downloaded"];
  const size_t line = plan.out.find("`--cut 6`");
  EXPECT_EQ(plan.out.find(cat("| ", human_bytes(bytes), " |"), line),
            plan.out.find(" |", line) + 2 + std::string("blocks 6-7, norm, head |").size())
      << plan.out;
  const std::string readme = read_file(source("edge_client/README.md"), 1 << 20);
  EXPECT_NE(readme.find(plan.out), std::string::npos)
      << "edge_client/README.md does not hold this table (scripts/download_table.sh puts it "
         "there):\n"
      << plan.out;
}

// A plan says how much comes before the server has made any of it.
TEST(EdgePlan, KnowsTheSizeOfBlobsThatAreNotMade) {
  GatedCloud demo("demo");
  edge::Remote remote(demo.url(), std::chrono::seconds(60), in_process());
  remote.set_manifest_query("?ready=true");
  const auto made = [](const wire::ModelInfo& info) {
    const auto has = [](const wire::StageInfo& stage, const char* format) {
      return std::ranges::find(stage.blobs, format, &wire::BlobInfo::format) != stage.blobs.end();
    };
    return std::ranges::all_of(info.stages, [&](const wire::StageInfo& stage) {
      return stage.name == "embed" || stage.name == "norm" || has(stage, "q4_0") ||
             (stage.name == "head" && has(stage, "q8_0"));
    });
  };
  wire::ModelInfo whole;
  do whole = remote.model("demo");
  while (!made(whole));
  const std::unique_ptr<Model> model = make_model(whole.config_json);
  wire::ModelInfo bare = whole;  // as the checkpoint has it
  for (wire::StageInfo& stage : bare.stages) {
    std::erase_if(stage.blobs, [&](const auto& blob) { return blob.format != stage.format; });
  }
  const TemporaryFolder cache;
  const edge::ShardCache empty(cache.path);
  for (const char* format : {"auto", "q8_0", "q4_0"}) {
    const StageFormats formats = StageFormats::parse(format);
    const auto exact = edge::plan_input(*model, whole, formats, empty);
    const auto told =
        edge::plan_input(*model, edge::with_blobs_to_come(*model, bare, formats), formats, empty);
    for (size_t cut = 0; cut < exact.download_bytes.size(); ++cut) {
      const auto bytes = static_cast<double>(exact.download_bytes[cut]);
      EXPECT_NEAR(static_cast<double>(told.download_bytes[cut]), bytes, 0.03 * bytes)
          << format << " at cut " << cut;
    }
  }
}

TEST(EdgePlan, PricesEveryPlaceAndDownloadsNothing) {
  GatedCloud demo("demo");
  const TemporaryFolder cache;
  const auto plan = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {cat("--server=", demo.url()), cat("--cache=", cache.path.string()),
                               "--plan", "--json", "--device=cpu", "--threads=1"});
    const Outcome outcome = run_edge(more);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.json();
  };
  const auto known = plan({});
  EXPECT_EQ(demo.blobs, 0);
  for (const char* name : {"rtt_ms", "down_mbit", "edge", "cloud", "exact"}) {
    EXPECT_TRUE(known.at(name).is_null()) << name;
  }
  EXPECT_EQ(known["pick"]["cut"], "cloud");
  EXPECT_EQ(known["pick"]["reason"], "nothing else was measured");
  const auto measured = plan({"--measure", "--goal=offload"});
  EXPECT_EQ(measured["model"], "demo");
  EXPECT_EQ(measured["goal"], "offload");
  EXPECT_GT(measured["rtt_ms"], 0);
  EXPECT_GT(measured["down_mbit"], 0);
  EXPECT_GT(measured["edge"]["block_ms"], 0);
  ASSERT_EQ(measured["cuts"].size(), 10u);  // the cloud, and 0 to 8
  EXPECT_EQ(measured["cuts"][0]["cut"], "cloud");
  uint64_t before = UINT64_MAX;
  for (int cut = 0; cut <= 8; ++cut) {
    const auto& place = measured["cuts"][static_cast<size_t>(cut) + 1];
    EXPECT_EQ(place["cut"], cut);
    const uint64_t bytes = place["download_bytes"];
    EXPECT_LT(bytes, before);
    EXPECT_EQ(place["missing_bytes"], bytes);  // not even what was fetched to measure
    before = bytes;
  }
  EXPECT_GT(measured["cuts"][1]["token_ms"], 0);
  EXPECT_EQ(measured["pick"]["cut"], 0);
  // This cloud measured nothing, so that no cut has a price.
  EXPECT_EQ(measured["pick"]["reason"], "nothing else was measured");
  EXPECT_EQ(run_edge({cat("--server=", demo.url()), "--prompt=a", "--measure"}).code, 2);
}

TEST_F(EdgeCache, HasADefaultPlace) {
  const auto root = [](std::map<std::string, std::string> environment) {
    return edge::cache_root("", [&](const char* name) -> const char* {
      const auto at = environment.find(name);
      return at == environment.end() ? nullptr : at->second.c_str();
    });
  };
  EXPECT_EQ(root({{"XDG_CACHE_HOME", "/x"}, {"HOME", "/h"}}), "/x/splitcompute");
  EXPECT_EQ(root({{"XDG_CACHE_HOME", "x"}, {"HOME", "/h"}}), "/h/.cache/splitcompute");
  EXPECT_THROW(root({}), Error);
}

TEST_F(EdgeCache, SaysOnceWhereItsLimitCannotBeKept) {
  const TemporaryFolder folder;
  const Outcome got = run_with(folder.path, {"--cache-limit=1K"});
  EXPECT_EQ(got.code, 0) << got.err;
  const size_t at = got.err.find("--cache-limit: expected room for the weights in use, ");
  ASSERT_NE(at, std::string::npos) << got.err;
  EXPECT_NE(got.err.find("got 1.0 kB", at), std::string::npos) << got.err;
  EXPECT_EQ(got.err.find("--cache-limit: expected", at + 1), std::string::npos) << got.err;
  EXPECT_EQ(run_with(folder.path, {"--cache-limit=1G"}).err.find("--cache-limit"),
            std::string::npos);
}

}  // namespace
}  // namespace split::test
