// cloud_server/: what it says of itself, its models, their files and weights.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "io/quantize.h"
#include "io/weight_file.h"
#include "support/cloud_fixture.h"
#include "wire/protocol.h"

namespace split::cloud {
namespace {

// A curl line as a shell would take it apart: words, single quotes, a comment.
std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words;
  std::string word;
  bool quoted = false, any = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '\'') {
      quoted = !quoted;
      any = true;
    } else if (!quoted && (c == ' ' || (c == '#' && !any))) {
      if (any) words.push_back(word);
      word.clear();
      any = false;
      if (c == '#') break;
    } else {
      word += c;
      any = true;
    }
  }
  EXPECT_FALSE(quoted) << line;
  if (any) words.push_back(word);
  return words;
}

class CloudHints : public testing::TestWithParam<const char*> {};

TEST_P(CloudHints, TenCurlLinesThatWork) {
  TestCloud cloud({GetParam()});
  cloud.cloud.ready = true;
  const http::Reply root = cloud.ask().get("/");
  ASSERT_EQ(root.status, 200);
  std::istringstream lines(root.body);
  std::string line;
  int count = 0;
  while (std::getline(lines, line)) {
    ++count;
    const auto words = words_of(line);
    ASSERT_GE(words.size(), 2u) << line;
    ASSERT_EQ(words[0], "curl") << line;
    std::string path, body;
    for (size_t i = 1; i < words.size(); ++i) {
      if (words[i].starts_with(cloud.url())) {
        path = words[i].substr(cloud.url().size());
      } else if (words[i] == "-d") {
        body = words[++i];
      } else if (words[i] == "-o") {
        ++i;
      } else {
        EXPECT_EQ(words[i], "-N") << line;
      }
    }
    const http::Reply reply =
        body.empty() ? cloud.ask().get(path)
                     : cloud.ask().send("POST", path, body, "application/x-www-form-urlencoded");
    EXPECT_EQ(reply.status, path == "/v1/sessions" ? 201 : 200) << line << "\n" << reply.body;
  }
  EXPECT_EQ(count, 10);
}
INSTANTIATE_TEST_SUITE_P(Models, CloudHints, testing::Values("demo", "rand-c"),
                         [](const auto& info) { return std::string(info.index ? "Ids" : "Text"); });

TEST(CloudDescription, ShowsNoHostThatAShellWouldTakeApart) {
  TestCloud cloud({"rand-a"});
  http::Peer peer(cloud.port());
  peer.say("GET / HTTP/1.1\r\nHost: x$(reboot)\r\n\r\n");
  const std::string answer = peer.answer();
  EXPECT_EQ(answer.find("reboot"), std::string::npos) << answer;
}

TEST(CloudDescription, IsReadyOnceWarm) {
  TestCloud cloud({"rand-a"});
  EXPECT_EQ(cloud.ask().get("/livez").status, 200);
  EXPECT_EQ(cloud.ask().get("/readyz").status, 503);
  cloud.cloud.models[0]->warm_up();
  EXPECT_EQ(cloud.pages().in_use(), 0u);
  cloud.cloud.ready = true;
  EXPECT_EQ(cloud.ask().get("/readyz").status, 200);
}

// The server lives while it loads its models, and says what there is to wait for.
TEST(CloudDescription, SaysThatItIsLoading) {
  TestCloud cloud({});
  EXPECT_EQ(cloud.ask().get("/livez").status, 200);
  EXPECT_EQ(cloud.ask().get("/readyz").status, 503);
  EXPECT_EQ(cloud.ask().get("/metrics").status, 200);
  EXPECT_EQ(cloud.ask().get("/openapi.json").status, 200);
  for (const char* path : {"/", "/v1/models", "/v1/models/rand-a", "/v1/models/rand-a/stages/norm",
                           "/get_model_config"}) {
    const http::Reply reply = cloud.ask().get(path);
    expect_error(reply, 503, "loading", "");
    EXPECT_EQ(reply.headers.get("Retry-After"), "1");
  }
  TestCloud with({"rand-a"});
  cloud.cloud.models = std::move(with.cloud.models);
  open_models(cloud.cloud);
  EXPECT_EQ(wire::parse_model_list(cloud.ask().get("/v1/models").body),
            (std::vector<wire::ListedModel>{{"rand-a", "f32"}}));
  EXPECT_NE(cloud.ask().get("/metrics").body.find("{model=\"rand-a\"}"), std::string::npos);
  EXPECT_EQ(cloud.ask().get("/readyz").status, 503);
}

TEST(CloudDescription, SaysWhatEachPathDoes) {
  TestCloud cloud({});
  const Json paths = json_of(cloud.ask().get("/openapi.json"))["paths"];
  EXPECT_EQ(paths["/app"]["get"]["summary"], "Leads to the edge for browsers, /app/.");
  EXPECT_EQ(paths["/app/ops"]["get"]["summary"], "Leads to the tensor library's page, /app/ops/.");
}

TEST(CloudModels, AreListedInOrder) {
  TestCloud cloud({"rand-b", "rand-a"});
  const http::Reply reply = cloud.ask().get("/v1/models");
  ASSERT_EQ(reply.status, 200);
  EXPECT_EQ(wire::parse_model_list(reply.body),
            (std::vector<wire::ListedModel>{{"rand-b", "f32"}, {"rand-a", "f32"}}));
  EXPECT_EQ(json_of(reply)["object"], "list");
  expect_error(cloud.ask().get("/v1/models/none"), 404, "model_not_found", "model");
}

// Asks as llama-server's clients do.
TEST(CloudModels, AreDescribedByPropsAndHealth) {
  TestCloud cloud({"rand-b", "rand-a"});
  const Json error = json_of(cloud.ask().get("/health"), 503)["error"];
  EXPECT_EQ(error["code"], "not_ready");
  cloud.cloud.ready = true;
  EXPECT_EQ(json_of(cloud.ask().get("/health")), (Json{{"status", "ok"}}));
  const Json props = json_of(cloud.ask().get("/props"));
  EXPECT_EQ(props["model_alias"], "rand-b");
  const int context = cloud.cloud.models[0]->config().context;
  EXPECT_EQ(props["n_ctx"], context);
  EXPECT_EQ(props["default_generation_settings"]["n_ctx"], context);
  EXPECT_EQ(props["default_generation_settings"]["params"]["temperature"], 1.0);
  EXPECT_GE(props["total_slots"], 1);
}

TEST(CloudModels, AWrongOneIsToldWhichThereAre) {
  TestCloud cloud({"rand-b", "rand-a"});
  const std::string named = R"({"model":"gpt-4","prompt":[1],"cut":1})";
  for (const auto& [method, path] : {std::pair("POST", "/v1/completions"),
                                     {"POST", "/v1/models/gpt-4/forward"},
                                     {"GET", "/v1/models/gpt-4"},
                                     {"GET", "/v1/models/gpt-4/load"}}) {
    const http::Reply reply =
        cloud.ask().send(method, path, std::string(method) == "GET" ? "" : named);
    expect_error(reply, 404, "model_not_found", "model", path);
    EXPECT_NE(reply.body.find("expected rand-b, rand-a; edge_client --serve --any-model "),
              std::string::npos)
        << reply.body;
  }
  const http::Reply opened = cloud.ask().send("PUT", wire::session_path(std::string(32, '1')),
                                              R"({"model":"gpt-4","cut":1})");
  expect_error(opened, 404, "model_not_found", "model");
  EXPECT_NE(opened.body.find("expected rand-b, rand-a; edge_client --serve --any-model "),
            std::string::npos)
      << opened.body;
}

TEST(CloudModels, FilesComeAsTheyAre) {
  TestCloud cloud({"demo", "rand-a"});
  for (const char* name : {"config.json", "vocab.json", "merges.txt"}) {
    const std::string path = cat("/v1/models/demo/files/", name);
    const http::Reply reply = cloud.ask().get(path);
    ASSERT_EQ(reply.status, 200);
    EXPECT_EQ(reply.body, read_file(model_dir("demo") + "/" + name, 64 << 20));
    const std::string etag(reply.headers.get("ETag").value_or(""));
    EXPECT_EQ(cloud.ask().get(path, {{"If-None-Match", etag}}).status, 304);
  }
  for (const char* name : {"model.safetensors", "..%2Fconfig.json", "%2e%2e", "README.md",
                           "config.json%00", "CONFIG.JSON"}) {
    const http::Reply reply = cloud.ask().get(cat("/v1/models/demo/files/", name));
    EXPECT_TRUE(reply.status == 404 || reply.status == 400) << name << " " << reply.status;
  }
  expect_error(cloud.ask().get("/v1/models/rand-a/files/vocab.json"), 404, "not_found", "");
}

// The description names each file's bytes and hash, of what the server itself has read: whatever is
// put in its place, until the server is started again.
TEST(CloudModels, FilesAreDescribedAndStayAsTheyWereAtTheStart) {
  const TemporaryDir folder;
  for (const auto& entry : std::filesystem::directory_iterator(model_dir("models/st-labse"))) {
    std::filesystem::copy(entry.path(), folder.path / entry.path().filename(),
                          std::filesystem::copy_options::recursive);
  }
  TestCloud cloud({folder.path.string()});
  const std::string path = cat("/v1/models/", folder.path.filename().string());
  const auto files = [&] { return json_of(cloud.ask().get(path))["files"]; };
  const Json before = files();
  ASSERT_GE(before.size(), 5u);
  const auto expect_served = [&] {
    for (const Json& file : before) {
      const std::string name = file["name"];
      const http::Reply reply = cloud.ask().get(cat(path, "/files/", name));
      ASSERT_EQ(reply.status, 200) << name;
      EXPECT_EQ(file["bytes"], reply.body.size()) << name;
      EXPECT_EQ(file["sha256"], Sha256::hex_of(as_bytes_of(reply.body))) << name;
      EXPECT_EQ(reply.headers.get("ETag"), cat("\"", file["sha256"].get<std::string>(), "\""));
    }
  };
  expect_served();
  write_file(folder.path / "config.json", as_bytes_of("{}"));
  std::filesystem::remove(folder.path / "1_Pooling/config.json");
  EXPECT_EQ(files(), before);
  expect_served();
}

// The checkpoint's tensor as a format should show it.
std::vector<std::byte> expected_bytes(const Checkpoint& checkpoint, const std::string& name,
                                      DType dtype) {
  const TensorView view = checkpoint.at(name);
  if (view.dtype == dtype) return {view.bytes.begin(), view.bytes.end()};
  const OwnedTensor owned = converted(view, dtype);
  return {owned.view.bytes.begin(), owned.view.bytes.end()};
}

class CloudWeights : public testing::TestWithParam<const char*> {};

TEST_P(CloudWeights, AreTheCheckpointsTensorsInEveryFormat) {
  TestCloud cloud({GetParam()});
  ServedModel& model = *cloud.cloud.models[0];
  const http::Reply reply = cloud.ask().get(cat("/v1/models/", GetParam()));
  ASSERT_EQ(reply.status, 200);
  const wire::ModelInfo info = wire::parse_model_info(reply.body);
  EXPECT_EQ(info.id, GetParam());
  EXPECT_EQ(info.profile, "f32");
  EXPECT_EQ(info.generate_phase, "narrow");
  EXPECT_EQ(Json::parse(info.config_json), Json::parse(model.checkpoint().config_json()));
  EXPECT_EQ(info.format, std::string(GetParam()) == "demo" ? "f16" : "f32");
  EXPECT_EQ(wire::to_json(wire::parse_model_info(wire::to_json(info))), wire::to_json(info));

  const int layers = model.config().layers;
  ASSERT_EQ(info.stages.size(), static_cast<size_t>(layers) + 3);
  EXPECT_EQ(info.stages[0].name, "embed");
  EXPECT_EQ(info.stages[1].name, "block.0");
  EXPECT_EQ(info.stages[static_cast<size_t>(layers) + 1].name, "norm");
  EXPECT_EQ(info.stages.back().name, "head");
  std::map<std::string, std::string> embed_and_head;
  std::set<std::string> seen;
  for (const wire::StageInfo& stage : info.stages) {
    for (const char* format : {"f32", "f16"}) {
      const DType dtype = std::string(format) == "f32" ? DType::kF32 : DType::kF16;
      const http::Reply whole =
          cloud.ask().get(cat("/v1/models/", info.id, "/stages/", stage.name, "?format=", format));
      ASSERT_EQ(whole.status, 200) << whole.body;
      const Safetensors all = Safetensors::parse(as_bytes_of(whole.body), stage.name);
      size_t tensors = 0;
      for (const wire::BlobInfo& blob : stage.blobs) {
        if (blob.format != format) continue;
        if (blob.name == "wte") embed_and_head[stage.name + format] = blob.sha256;
        const http::Reply file = cloud.ask().get(wire::blob_path(blob.sha256));
        ASSERT_EQ(file.status, 200);
        EXPECT_EQ(file.body.size(), blob.bytes);
        wire::BlobSummer summer;
        summer.update(as_bytes_of(file.body));
        EXPECT_EQ(summer.finish(), blob);
        for (const auto& [name, view] : Safetensors::parse(as_bytes_of(file.body), "").tensors()) {
          ++tensors;
          seen.insert(name);
          EXPECT_FALSE(name.starts_with("transformer.")) << name;
          EXPECT_EQ(view.dtype, dtype) << name;
          EXPECT_EQ(view.dims, model.checkpoint().at(name).dims) << name;
          const auto expected = expected_bytes(model.checkpoint(), name, dtype);
          ASSERT_TRUE(std::ranges::equal(view.bytes, expected)) << name << " " << format;
          const auto in_stage = all.tensors().find(name);
          ASSERT_NE(in_stage, all.tensors().end()) << name;
          ASSERT_TRUE(std::ranges::equal(in_stage->second.bytes, expected)) << name;
        }
      }
      EXPECT_EQ(all.tensors().size(), tensors) << stage.name;
      EXPECT_GT(tensors, 0u) << stage.name;
    }
  }
  // One blob of wte, whichever stage asks; the tied head has no name of its own.
  EXPECT_EQ(seen.count("wte.weight"), 1u);
  EXPECT_EQ(seen.count("lm_head.weight"), 0u);
  for (const char* format : {"f32", "f16"}) {
    EXPECT_EQ(embed_and_head[cat("embed", format)].size(), 64u);
    EXPECT_EQ(embed_and_head[cat("embed", format)], embed_and_head[cat("head", format)]);
  }
  EXPECT_EQ(seen.count("h.0.attn.bias"), 0u);
  EXPECT_EQ(seen.count("h.0.attn.c_attn.bias"), 1u);
}
TEST_P(CloudWeights, AreBlocksWhereTheyAreMatricesOfProducts) {
  TestCloud cloud({GetParam()});
  ServedModel& model = *cloud.cloud.models[0];
  const Checkpoint& checkpoint = model.checkpoint();
  const wire::ModelInfo info =
      wire::parse_model_info(cloud.ask().get(cat("/v1/models/", GetParam())).body);
  for (const DType dtype : {DType::kQ8_0, DType::kQ4_0}) {
    const std::string format(format_name(dtype));
    size_t stages = 0;
    for (const wire::StageInfo& stage : info.stages) {
      const std::string path =
          cat("/v1/models/", info.id, "/stages/", stage.name, "?format=", format);
      const bool quantises = stage.name == "head" || stage.name.starts_with("block.");
      std::vector<const wire::BlobInfo*> blobs;
      for (const wire::BlobInfo& blob : stage.blobs) {
        if (blob.format == format) blobs.push_back(&blob);
      }
      ASSERT_EQ(blobs.size(), quantises ? 1u : 0u) << stage.name;
      if (!quantises) {
        expect_error(cloud.ask().get(path), 400, "invalid_request", "format", stage.name);
        continue;
      }
      ++stages;
      const http::Reply file = cloud.ask().get(wire::blob_path(blobs[0]->sha256));
      ASSERT_EQ(file.status, 200);
      EXPECT_EQ(file.body.size(), blobs[0]->bytes);
      EXPECT_EQ(cloud.ask().get(path).body, file.body);
      const auto tensors = parse_weight_file(as_bytes_of(file.body), stage.name);
      ASSERT_EQ(tensors.size(), stage.name == "head" ? 1u : 12u);
      for (const auto& [name, view] : tensors) {
        const WeightDecl& decl = model.model().weight(name);
        const TensorView& own = checkpoint.at(decl.from.empty() ? name : decl.from);
        if (decl.product == Product::kNone) {
          EXPECT_EQ(view.dtype, own.dtype) << name;
          EXPECT_TRUE(std::ranges::equal(view.bytes, own.bytes)) << name;
          continue;
        }
        const OwnedTensor expected = quantised(own, dtype, decl.product == Product::kInOut, name);
        EXPECT_EQ(view.dtype, dtype) << name;
        EXPECT_EQ(view.dims, expected.view.dims) << name;
        EXPECT_TRUE(std::ranges::equal(view.bytes, expected.view.bytes)) << name;
      }
    }
    EXPECT_EQ(stages, static_cast<size_t>(model.config().layers) + 1);
    // A tied head's blocks are a blob of their own, which the embedding has no part in.
    const auto& head = info.stages.back().blobs;
    EXPECT_EQ(std::ranges::count(head, "lm_head", &wire::BlobInfo::name), 2);
  }
}

TEST(CloudFormats, AreListedAsFarAsTheyAreAskedFor) {
  TestCloud cloud({"rand-a"});
  const auto listed = [&](const std::string& query) {
    std::set<std::string> formats;
    const auto info = wire::parse_model_info(cloud.ask().get("/v1/models/rand-a" + query).body);
    for (const wire::StageInfo& stage : info.stages) {
      for (const wire::BlobInfo& blob : stage.blobs) formats.insert(blob.format);
    }
    return formats;
  };
  using Set = std::set<std::string>;
  EXPECT_EQ(listed(""), (Set{"f32", "f16", "q8_0", "q4_0"}));
  EXPECT_EQ(listed("?format=auto"), (Set{"f32"}));
  EXPECT_EQ(listed("?format=q4_0"), (Set{"f32", "q4_0", "q8_0"}));
  EXPECT_EQ(listed("?format=q4_0&from=1&to=3"), (Set{"f32", "q4_0"}));
  EXPECT_EQ(listed("?from=3&to=3"), (Set{"f32"}));
  EXPECT_EQ(listed("?format=head=q8_0,embed=f16"), (Set{"f32", "f16", "q8_0"}));
  // Lists all stages in their own format, and which of them in f16 too.
  const auto stages = [&](const std::string& query) {
    std::string names;
    const auto info =
        wire::parse_model_info(cloud.ask().get("/v1/models/rand-a" + query + "&format=f16").body);
    EXPECT_EQ(info.stages.size(), 6u);
    for (const wire::StageInfo& stage : info.stages) {
      EXPECT_EQ(stage.format, "f32");
      EXPECT_EQ(stage.blobs[0].format, "f32");
      if (stage.blobs.back().format == "f16") names += stage.name + " ";
    }
    return names;
  };
  EXPECT_EQ(stages("?to=0"), "embed ");
  EXPECT_EQ(stages("?to=1"), "embed block.0 ");
  EXPECT_EQ(stages("?from=2"), "block.2 norm head ");
  EXPECT_EQ(stages("?from=1&to=norm"), "block.1 block.2 norm ");
  EXPECT_EQ(stages("?from=3&to=3"), "");
  EXPECT_EQ(stages("?from=3&to=head"), "norm head ");
  const std::pair<const char*, const char*> bad[] = {
      {"format=q5_0", "format"}, {"format=q8_0,", "format"},  {"format=", "format"},
      {"from=4", "from"},        {"from=-1", "from"},         {"to=4", "to"},
      {"from=2&to=1", "to"},     {"formats=q8_0", "formats"}, {"from=1&from=2", "from"}};
  for (const auto& [query, field] : bad) {
    expect_error(cloud.ask().get(cat("/v1/models/rand-a?", query)), 400, "invalid_request", field,
                 query);
  }
}

// A question that cannot be answered yet says how far it is, goes first from then on, and is
// answered in the end; an unknown hash is unknown once all are known.
TEST(CloudFormats, AreWaitedForByAskingAgain) {
  const Checkpoint checkpoint(model_dir("demo"));
  const std::unique_ptr<Model> model = make_model(checkpoint.config_json());
  WeightStore store(checkpoint, *model, parse_formats("f32,f16,q8_0,q4_0"), {},
                    std::chrono::milliseconds(0));
  const WeightStore::Listed head{{Point::norm(), Point::head()}, StageFormats::parse("q4_0")};
  std::set<std::string> said;
  const auto until_there = [&](auto&& ask) {
    for (;;) {
      try {
        return ask();
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kBusy) << error.what();
        said.insert(error.what());
      }
      std::this_thread::yield();
    }
  };
  const auto stages = until_there([&] { return store.stages(head); });
  const auto& blobs = stages.back().blobs;
  ASSERT_EQ(blobs.size(), 2u);
  EXPECT_EQ(blobs[1].name, "lm_head");
  EXPECT_EQ(blobs[1].format, "q8_0");
  ASSERT_FALSE(said.empty());
  for (const std::string& line : said) {  // how many are made by then is the scheduler's
    EXPECT_TRUE(line.starts_with("the server prepares ") && line.ends_with(" of 13")) << line;
  }
  EXPECT_TRUE(store.blob(blobs[1].sha256, false));
  EXPECT_FALSE(store.blob(std::string(64, '0'), false));
  EXPECT_FALSE(until_there([&] { return store.blob(std::string(64, '0')); }));
}

// One weight that no block can hold costs its stage that format, and nothing else.
TEST(CloudFormats, LeaveOutWhatAFormatCannotHold) {
  const TemporaryDir dir;
  write_flat_model(dir.path, 64, 300, 16);
  std::string file = read_file(dir.path / "model.safetensors", 64 << 20);
  const auto tensors = Safetensors::parse(as_bytes_of(file), "flat").tensors();
  const TensorView& view = tensors.at("h.0.mlp.c_fc.weight");
  const float infinity = std::numeric_limits<float>::infinity();
  std::memcpy(file.data() + (view.bytes.data() - as_bytes_of(file).data()) + 4 * 1000, &infinity,
              sizeof infinity);
  write_file(dir.path / "model.safetensors", as_bytes_of(file));
  TestCloud cloud({dir.path.string()});
  const std::string path = cat("/v1/models/", dir.path.filename().string());
  const wire::ModelInfo info = wire::parse_model_info(cloud.ask().get(path).body);
  const auto formats = [&](const wire::StageInfo& stage) {
    std::string all;
    for (const wire::BlobInfo& blob : stage.blobs) all += blob.format + " ";
    return all;
  };
  EXPECT_EQ(formats(info.stages[1]), "f32 f16 ");
  EXPECT_EQ(formats(info.stages[3]), "f32 f16 q8_0 q4_0 ");
  EXPECT_EQ(cloud.ask().get(path + "/stages/block.0?format=f32").status, 200);
  expect_error(cloud.ask().get(path + "/stages/block.0?format=q4_0"), 400, "invalid_request",
               "format");
}

TEST(CloudFormats, AreAListOfTheFour) {
  EXPECT_EQ(parse_formats("q4_0"), std::vector{DType::kQ4_0});
  EXPECT_EQ(parse_formats("q8_0,f32"), (std::vector{DType::kQ8_0, DType::kF32}));
  for (const char* bad : {"", "f32,", ",f32", "bf16", "i32", "f32 ", "F32", "f32,f32", "all"}) {
    EXPECT_THROW(parse_formats(bad), Error) << bad;
  }
}

// The cloud itself computing with blocks: near what it says without them, and the same each time.
TEST(CloudProfiles, ComputeWithQuantisedWeights) {
  const Golden golden("demo");
  const auto logits = [&](Profile profile) {
    TestCloud cloud({"demo"}, 64 << 20, {}, profile);
    const Json json = json_of(cloud.ask().post(
        "/v1/models/demo/forward", {{"tokens", golden.ids(0)}, {"to", "norm"}, {"rows", "last"}}));
    EXPECT_EQ(wire::parse_model_info(cloud.ask().get("/v1/models/demo").body).profile,
              profile_name(profile));
    return flat(json["hidden"]);
  };
  const std::vector<float> f32 = logits(Profile::kF32);
  const double q8 = relative(logits(Profile::kQ8_0), f32),
               q4 = relative(logits(Profile::kQ4_0), f32),
               int8 = relative(logits(Profile::kInt8), f32);
  EXPECT_LT(q8, 0.02);
  EXPECT_GT(q8, 1e-4) << "nothing was rounded";
  EXPECT_LT(q4, 0.25);
  EXPECT_GT(q4, 4 * q8);
  EXPECT_LT(int8, 0.04);
  EXPECT_GT(int8, q8);
}

INSTANTIATE_TEST_SUITE_P(Models, CloudWeights, testing::Values("demo", "rand-a", "rand-b"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST(CloudWeights, StagesDefaultToTheCheckpointsFormatAndRefuseOthers) {
  TestCloud cloud({"demo"});
  const http::Reply own = cloud.ask().get("/v1/models/demo/stages/norm");
  EXPECT_EQ(own.body, cloud.ask().get("/v1/models/demo/stages/norm?format=f16").body);
  EXPECT_NE(own.body, cloud.ask().get("/v1/models/demo/stages/norm?format=f32").body);
  for (const char* format : {"", "F16", "f64", "bf16", "f16%20", "..%2f"}) {
    expect_error(cloud.ask().get(cat("/v1/models/demo/stages/norm?format=", format)), 400,
                 "invalid_request", "format", format);
  }
  for (const char* stage : {"block.8", "block.-1", "block.", "block.00", "tail", "block.1e0"}) {
    expect_error(cloud.ask().get(cat("/v1/models/demo/stages/", stage)), 404, "not_found", "",
                 stage);
  }
}

class Blobs : public testing::Test {
 protected:
  TestCloud cloud{{"rand-a"}};
  const wire::ModelInfo info = wire::parse_model_info(cloud.ask().get("/v1/models/rand-a").body);
  const wire::BlobInfo blob = info.stages[1].blobs[0];
  const std::string path = wire::blob_path(blob.sha256);
  const std::string whole = cloud.ask().get(path).body;
};

TEST_F(Blobs, AreImmutableAndConditional) {
  const http::Reply reply = cloud.ask().get(path);
  const std::string etag = "\"" + blob.sha256 + "\"";
  EXPECT_EQ(reply.headers.get("ETag"), etag);
  const std::string cache(reply.headers.get("Cache-Control").value_or(""));
  EXPECT_NE(cache.find("immutable"), std::string::npos);
  EXPECT_NE(cache.find("max-age=31536000"), std::string::npos);
  EXPECT_EQ(reply.headers.get("Content-Type"), "application/octet-stream");
  for (const std::string& tags : {etag, "\"x\", " + etag, std::string("*"), "W/" + etag}) {
    const http::Reply same = cloud.ask().get(path, {{"If-None-Match", tags}});
    EXPECT_EQ(same.status, 304) << tags;
    EXPECT_EQ(same.body, "");
    EXPECT_EQ(same.headers.get("ETag"), etag);
  }
  EXPECT_EQ(cloud.ask().get(path, {{"If-None-Match", "\"x\""}}).status, 200);
}

TEST_F(Blobs, ComeInRanges) {
  const size_t size = whole.size();
  const struct {
    std::string range;
    size_t from, count;
  } rows[] = {{"bytes=0-9", 0, 10},
              {"bytes=10-", 10, size - 10},
              {"bytes=-7", size - 7, 7},
              {cat("bytes=5-", size + 1000), 5, size - 5},  // clamped
              {cat("bytes=-", size + 1000), 0, size}};
  for (const auto& row : rows) {
    const http::Reply part = cloud.ask().get(path, {{"Range", row.range}});
    ASSERT_EQ(part.status, 206) << row.range;
    EXPECT_EQ(part.body, whole.substr(row.from, row.count)) << row.range;
    EXPECT_EQ(part.headers.get("Content-Range"),
              cat("bytes ", row.from, "-", row.from + row.count - 1, "/", size));
  }
  // Across the header's end, where the checkpoint's own bytes begin, and over two tensors.
  const size_t header = 8 + load_le64(as_bytes_of(whole).data());
  const http::Reply across =
      cloud.ask().get(path, {{"Range", cat("bytes=", header - 3, "-20000")}});
  EXPECT_EQ(across.body, whole.substr(header - 3, 20001 - (header - 3)));
  for (const std::string& past : {cat("bytes=", size, "-"), std::string("bytes=-0")}) {
    const http::Reply none = cloud.ask().get(path, {{"Range", past}});
    EXPECT_EQ(none.status, 416) << past;
    EXPECT_EQ(none.headers.get("Content-Range"), cat("bytes */", size));
  }
  const std::string etag = "\"" + blob.sha256 + "\"";
  EXPECT_EQ(cloud.ask().get(path, {{"Range", "bytes=0-9"}, {"If-Range", etag}}).status, 206);
  const http::Reply changed =
      cloud.ask().get(path, {{"Range", "bytes=0-9"}, {"If-Range", "\"other\""}});
  EXPECT_EQ(changed.status, 200);
  EXPECT_EQ(changed.body, whole);
}

TEST_F(Blobs, AnswerHead) {
  http::Peer peer(cloud.port());
  peer.say(cat("HEAD ", path, " HTTP/1.1\r\nHost: x\r\n\r\n"));
  const std::string head = peer.until("\r\n\r\n");
  EXPECT_TRUE(head.starts_with("HTTP/1.1 200")) << head;
  EXPECT_NE(head.find(cat("Content-Length: ", whole.size(), "\r\n")), std::string::npos) << head;
  EXPECT_NE(head.find("ETag: \"" + blob.sha256), std::string::npos) << head;
  peer.say("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n");  // no body came between
  EXPECT_TRUE(peer.answer().starts_with("HTTP/1.1 200"));
}

TEST_F(Blobs, AreNamedByExactlyTheirHash) {
  std::string upper = blob.sha256, other = blob.sha256;
  std::ranges::transform(upper, upper.begin(), [](char c) { return c >= 'a' ? c - 32 : c; });
  other[0] = other[0] == '0' ? '1' : '0';
  for (const std::string& hash :
       {upper, other, blob.sha256.substr(1), blob.sha256 + "0", std::string("..%2f..")}) {
    expect_error(cloud.ask().get(wire::blob_path(hash)), 404, "blob_not_found", "", hash);
  }
}

namespace fs = std::filesystem;

// Every blob of the server in the other format than the checkpoint's, as it is served.
std::map<std::string, std::string> converted_blobs(TestCloud& cloud) {
  std::map<std::string, std::string> blobs;
  const wire::ModelInfo info = wire::parse_model_info(cloud.ask().get("/v1/models/rand-a").body);
  for (const wire::StageInfo& stage : info.stages) {
    for (const wire::BlobInfo& blob : stage.blobs) {
      if (blob.format == info.format) continue;
      const http::Reply reply = cloud.ask().get(wire::blob_path(blob.sha256));
      EXPECT_EQ(reply.status, 200);
      EXPECT_EQ(Sha256::hex_of(as_bytes_of(reply.body)), blob.sha256) << blob.name;
      blobs[blob.sha256] = reply.body;
    }
  }
  return blobs;
}

TEST(BlobCache, KeepsConvertedBlobsByTheirHashAndMakesDamagedOnesAgain) {
  const TemporaryDir dir;
  std::map<std::string, std::string> first;
  {
    TestCloud cloud({"rand-a"}, 64 << 20, dir.path);
    first = converted_blobs(cloud);
  }
  const auto file_of = [&](const std::string& sha256) {
    return dir.path / "sha256" / sha256.substr(0, 2) / sha256;
  };
  ASSERT_GE(first.size(), 4u);
  std::map<std::string, ino_t> files;
  for (const auto& [sha256, bytes] : first) {
    EXPECT_EQ(read_file(file_of(sha256), 64 << 20), bytes);
    struct stat status {};
    ASSERT_EQ(::stat(file_of(sha256).c_str(), &status), 0);
    files[sha256] = status.st_ino;
  }
  const std::string flipped = first.begin()->first, shorter = std::next(first.begin())->first;
  const std::string missing = std::next(first.begin(), 2)->first;
  {
    const Fd file(::open(file_of(flipped).c_str(), O_RDWR | O_CLOEXEC));
    const char byte = static_cast<char>(first[flipped][100] ^ 1);
    ASSERT_EQ(::pwrite(file.get(), &byte, 1, 100), 1);
  }
  fs::resize_file(file_of(shorter), 10);
  fs::remove(file_of(missing));
  {
    TestCloud cloud({"rand-a"}, 64 << 20, dir.path);
    EXPECT_EQ(converted_blobs(cloud), first);
  }
  for (const auto& [sha256, inode] : files) {
    struct stat status {};
    ASSERT_EQ(::stat(file_of(sha256).c_str(), &status), 0);
    EXPECT_EQ(read_file(file_of(sha256), 64 << 20), first[sha256]);
    if (sha256 == missing) continue;                            // may get the number that it left
    const bool again = sha256 == flipped || sha256 == shorter;  // a new file in its place
    EXPECT_EQ(status.st_ino != inode, again) << sha256;
  }
}

TEST(BlobCache, ServesTheSameWithoutADirectory) {
  TestCloud memory({"rand-a"});
  const TemporaryDir dir;
  write_file(dir.path / "file", {});
  TestCloud refused({"rand-a"}, 64 << 20, dir.path / "file" / "cache");
  EXPECT_EQ(converted_blobs(refused), converted_blobs(memory));
}

}  // namespace
}  // namespace split::cloud
