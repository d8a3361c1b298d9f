// edge_client with weights in every format: what it downloads, that it computes with exactly that,
// and what a server may not send.
#include <gtest/gtest.h>

#include "edge_client/weights/local_tail.h"
#include "io/quantize.h"
#include "run/text/generate.h"
#include "support/edge_world.h"

namespace split::test {
namespace {

class EdgeFormats : public testing::TestWithParam<const char*> {
 protected:
  Outcome run(std::vector<std::string> arguments) {
    for (const std::string& argument :
         {cat("--server=", cloud.url()), cat("--cache=", cache.path.string()),
          std::string("--device=cpu"), std::string("--threads=1"), std::string("--seed=11"),
          std::string("--temperature=0.9"), std::string("--max-tokens=12"),
          std::string("--ignore-eos"), std::string("--json"),
          "--prompt-ids=" + joined(golden.values<int32_t>("p0.ids"))}) {
      arguments.insert(arguments.begin(), argument);
    }
    return run_edge(arguments);
  }
  // The text of one machine that holds its weights in these formats.
  std::vector<int32_t> alone(const std::string& formats, Profile profile = Profile::kF32) {
    const auto device = make_cpu_device(1);
    ShardOptions options = options_for(*golden.model);
    options.profile = profile;
    options.formats = StageFormats::parse(formats);
    Shard shard(*device, *golden.model, golden.weights(), options);
    Batcher batcher(shard);
    LocalForward forward(batcher);
    GenerateOptions generating;
    generating.max_tokens = 12;
    generating.sampling.temperature = 0.9f;
    generating.sampling.seed = 11;
    generating.ignore_end = true;
    return generate(forward, golden.model->config(), nullptr, golden.values<int32_t>("p0.ids"),
                    generating, {})
        .tokens;
  }

  GatedCloud cloud{GetParam()};
  Golden golden{GetParam()};
  TemporaryFolder cache;
};

TEST_P(EdgeFormats, GiveTheTextOfOneMachineWithTheseWeights) {
  std::set<std::vector<int32_t>> texts;
  for (const char* formats : {"auto", "f32", "f16", "q8_0", "q4_0", "q4_0,head=q4_0",
                              "head=q8_0,block=q4_0", "block=q8_0", "q4_0,embed=f32,norm=f32"}) {
    const Outcome got = run({"--cut=0", cat("--format=", formats)});
    ASSERT_EQ(got.code, 0) << got.err;
    const auto tokens = got.json()["tokens"].get<std::vector<int32_t>>();
    // Halves of a checkpoint of floats are rounded by the server, and not by a Shard.
    const bool rounded =
        std::string_view(formats) == "f16" && cloud.model().checkpoint().dtype() != DType::kF16;
    if (!rounded) {
      EXPECT_EQ(tokens, alone(formats)) << formats;
    }
    texts.insert(tokens);
  }
  EXPECT_GE(texts.size(), 3u) << "formats that give one text are one format";
}

// Weights in q8_0 where no format is named.
TEST_P(EdgeFormats, TheInt8ProfileGivesTheTextOfOneMachineWithIt) {
  for (const char* formats : {"q8_0", "q4_0", "head=q4_0"}) {
    const auto expected = alone(formats, Profile::kInt8);
    const Outcome got = run({"--cut=0", "--profile=int8", cat("--format=", formats)});
    ASSERT_EQ(got.code, 0) << got.err;
    EXPECT_EQ(got.json()["tokens"].get<std::vector<int32_t>>(), expected) << formats;
    if (std::string_view(formats) != "q8_0") continue;
    EXPECT_EQ(run({"--cut=0", "--profile=int8"}).json()["tokens"], expected);
  }
}

// The head in blocks, the rest as it is: one text wherever the blocks run.
TEST_P(EdgeFormats, AQuantisedHeadIsTheSameForEveryCut) {
  const auto expected = alone("head=q4_0");
  for (int cut = 0; cut <= golden.model->config().layers; cut += 2) {
    const Outcome got = run({cat("--cut=", cut), "--format=head=q4_0"});
    ASSERT_EQ(got.code, 0) << got.err;
    EXPECT_EQ(got.json()["tokens"].get<std::vector<int32_t>>(), expected) << cut;
  }
}

// One text on every set of kernels, wherever it runs and moves, without a flag here but --exact.
TEST(EdgeProfile, IsTheServersInt8UnlessTheEdgeNamesOne) {
  for (const std::string name : {"demo", "models/llama3", "rand-b"}) {
    GatedCloud cloud(name, Profile::kInt8);
    const TemporaryFolder cache;
    const auto run = [&](std::vector<std::string> more) {
      for (const std::string& argument :
           {cat("--server=", cloud.url()), cat("--cache=", cache.path.string()),
            std::string("--device=cpu"), std::string("--seed=3"), std::string("--temperature=0.9"),
            std::string("--max-tokens=16"), std::string("--ignore-eos"), std::string("--json"),
            std::string("--prompt-ids=3,1,4,1,5")}) {
        more.push_back(argument);
      }
      const Outcome got = run_edge(more);
      EXPECT_EQ(got.code, 0) << got.err;
      return got.json();
    };
    const auto expected = run({"--cut=cloud"})["tokens"];
    for (const char* isa : {"scalar", "avx2", "amx"}) {
      ::setenv("SPLIT_CPU_ISA", isa, 1);
      for (const char* cut : {"0", "1", "2"}) {
        const auto got = run({cat("--cut=", cut), "--exact", "--moves=3:2,7:0,11:1"});
        EXPECT_EQ(got["tokens"], expected) << name << " on " << isa << " at " << cut;
        EXPECT_EQ(got["receipt"]["exact"], true);
        EXPECT_GE(got["receipt"]["moves"].size(), 2u);
      }
    }
    ::unsetenv("SPLIT_CPU_ISA");
    EXPECT_EQ(run({"--cut=1", "--moves=3:0", "--format=f32"})["receipt"]["exact"], false);
    EXPECT_EQ(run({"--cut=1", "--moves=3:0", "--profile=f32"})["receipt"]["exact"], false);
  }
}

TEST_P(EdgeFormats, DownloadOnlyWhatIsMissing) {
  const auto info = wire::parse_model_info(
      Client(cloud.url()).request("GET", cat("/v1/models/", GetParam()), {}, {}, {}).body);
  const auto bytes_of = [&](const std::string& stage, const std::string& format) {
    uint64_t bytes = 0;
    for (const wire::StageInfo& one : info.stages) {
      for (const wire::BlobInfo& blob : one.blobs) {
        if (one.name == stage && blob.format == format) bytes += blob.bytes;
      }
    }
    EXPECT_GT(bytes, 0u) << stage << " " << format;
    return bytes;
  };
  const int last = golden.model->config().layers - 1;
  const std::string cut = cat("--cut=", last), block = cat("block.", last);
  const auto downloaded = [&](const char* formats) {
    const Outcome got = run({cut, cat("--format=", formats)});
    EXPECT_EQ(got.code, 0) << got.err;
    return got.json()["receipt"]["bytes_downloaded"].get<uint64_t>();
  };
  EXPECT_EQ(downloaded("q4_0"),
            bytes_of(block, "q4_0") + bytes_of("head", "q8_0") + bytes_of("norm", info.format));
  EXPECT_EQ(downloaded("q4_0"), 0u);
  EXPECT_EQ(downloaded("q8_0"), bytes_of(block, "q8_0"));
  EXPECT_EQ(downloaded("q4_0,head=q4_0"), bytes_of("head", "q4_0"));
  EXPECT_EQ(downloaded("auto"), bytes_of(block, info.format) + bytes_of("head", info.format));
}

INSTANTIATE_TEST_SUITE_P(Models, EdgeFormats, testing::Values("rand-a", "rand-b"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST(EdgeFormat, SaysWhatIsWrongInOneLine) {
  GatedCloud cloud("rand-a");
  const TemporaryFolder cache;
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"--format=q5_0"}, "--format: expected auto, f32, f16, q8_0 or q4_0, got 'q5_0'"},
      {{"--format=head=q8_0,tail=f16"},
       "--format: expected a format of embed, block, norm or head"},
      {{"--format=embed=q8_0"}, "--format: expected auto, f32 or f16 for embed"},
      {{"--format=embed=f16,head=f32", "--cut=0"}, "'wte' of 'rand-a' is in head and in another"},
      {{"--profile=int8", "--format=f16"},
       "--profile int8: expected --format q8_0 or q4_0, got 'f16'"},
      {{"--profile=int8", "--format=auto"}, "expected --format q8_0 or q4_0, got 'auto'"},
      {{"--profile=q8_0"}, "--profile"},
  };
  for (const auto& [extra, message] : cases) {
    std::vector<std::string> arguments = {cat("--server=", cloud.url()),
                                          cat("--cache=", cache.path.string()), "--device=cpu",
                                          "--prompt-ids=1,2", "--quiet"};
    arguments.insert(arguments.end(), extra.begin(), extra.end());
    const Outcome got = run_edge(arguments);
    EXPECT_EQ(got.code, 2) << got.err;
    EXPECT_NE(got.err.find(message), std::string::npos) << got.err;
    EXPECT_EQ(std::ranges::count(got.err, '\n'), 1) << got.err;
  }
}

TEST(EdgeFormat, IsOneThatTheServerHas) {
  cloud::Cloud cloud;
  cloud::ModelOptions options;
  options.id = "rand-a";
  options.path = source("tests/golden/rand-a");
  options.device = "cpu";
  options.threads = 1;
  options.kv_budget = 64 << 20;
  options.formats = cloud::parse_formats("q8_0");
  cloud.models.push_back(std::make_unique<cloud::ServedModel>(options));
  const Running server([&](http::Server& s) { cloud::add_routes(s, cloud); });
  const TemporaryFolder cache;
  const auto run = [&](const char* format) {
    return run_edge({cat("--server=", server.url()), cat("--cache=", cache.path.string()),
                     "--device=cpu", "--prompt-ids=1,2", "--quiet", "--max-tokens=1", "--cut=2",
                     cat("--format=", format)});
  };
  EXPECT_EQ(run("auto").code, 0);
  EXPECT_EQ(run("q8_0").code, 0);
  const Outcome got = run("q4_0");
  EXPECT_EQ(got.code, 2);
  EXPECT_NE(got.err.find("the server does not offer 'q4_0' for block.2 of 'rand-a' (see --plan)"),
            std::string::npos)
      << got.err;
  EXPECT_EQ(run("f16").code, 2);
}

// A text that begins on the cloud does not begin with what it could not go on with.
TEST(EdgeFormat, FlagsThatCannotWorkAreRefusedAtEveryCut) {
  cloud::Cloud cloud;
  cloud::ModelOptions options;
  options.id = "rand-a";
  options.path = source("tests/golden/rand-a");
  options.device = "cpu";
  options.threads = 1;
  options.kv_budget = 64 << 20;
  options.formats = cloud::parse_formats("q8_0");
  cloud.models.push_back(std::make_unique<cloud::ServedModel>(options));
  const Running server([&](http::Server& s) { cloud::add_routes(s, cloud); });
  const TemporaryFolder cache;
  const std::string folder = cat("--cache=", cache.path.string()),
                    file = cat("--cache=", source("README.md"));
  struct Case {
    std::vector<std::string> flags;
    int code;
    const char* said;
  };
  const Case cases[] = {
      {{"--device=vulkan:99", folder}, 6, "vulkan:99: this machine has"},
      {{"--device=cpu", file}, 4, "cannot write to "},
      {{"--device=cpu", "--cache=/proc/none"}, 4, "cannot write to /proc/none"},
      {{"--device=cpu", folder, "--format=q4_0"}, 2, "the server does not offer 'q4_0'"}};
  for (const auto& [flags, code, said] : cases) {
    for (const std::vector<std::string>& mode :
         {std::vector<std::string>{"--prompt-ids=1,2", "--quiet", "--max-tokens=1"},
          {"--prompt=a", "--quiet", "--max-tokens=1"},
          {"--serve=127.0.0.1:0", "--quiet"}}) {
      // rand-a has no tokenizer: a text of words is refused later than a flag.
      std::vector<Outcome> got;
      for (const char* cut : {"--cut=0", "--cut=auto"}) {
        std::vector<std::string> all = {cat("--server=", server.url()), cut};
        all.insert(all.end(), flags.begin(), flags.end());
        all.insert(all.end(), mode.begin(), mode.end());
        got.push_back(run_edge(all));
        const bool words = mode[0] == "--prompt=a" && got.size() == 1;
        if (words) continue;
        EXPECT_EQ(got.back().code, code) << cut << mode[0] << got.back().err;
        EXPECT_NE(got.back().err.find(said), std::string::npos) << got.back().err;
        EXPECT_EQ(got.back().out, "") << cut;
      }
      if (mode[0] != "--prompt=a") {
        EXPECT_EQ(got[0].err, got[1].err);
      }
    }
  }
}

// Files whose hash was right and whose server is wrong all the same.
TEST(EdgeFormat, RefusesBlobsThatAreNotWhatTheirFormatSays) {
  const Golden golden("rand-a");
  const TemporaryFolder folder;
  const int layers = golden.model->config().layers;
  const WeightSource weights = golden.weights();
  Interrupt interrupt;
  const auto tail = [&](const std::string& formats, const std::string& file) {
    wire::BlobSummer summer;
    summer.update(as_bytes_of(file));
    const wire::BlobInfo blob{summer.finish(), "h.2", "q8_0"};
    const edge::ShardCache shards(folder.path);
    std::filesystem::create_directories(shards.path_of(blob.sha256).parent_path());
    write_file(shards.path_of(blob.sha256), as_bytes_of(file));
    const edge::BlobOrigin nobody{"http://127.0.0.1:1", "/", std::chrono::milliseconds(1)};
    auto load = std::make_unique<edge::BlobLoad>(shards, nobody, std::vector{blob},
                                                 edge::LoadOptions{}, interrupt);
    edge::LocalTail(make_cpu_device(1), *golden.model, {layers - 1, layers},
                    StageFormats::parse(formats), Profile::kF32, std::span(&blob, 1),
                    std::move(load));
  };
  std::vector<OwnedTensor> made;
  std::vector<NamedTensor> tensors;
  for (const WeightDecl& decl : golden.model->blob("h.2").weights) {
    TensorView view = weights.view(decl.name);
    if (decl.product != Product::kNone) {
      made.push_back(quantised(view, DType::kQ8_0, true, decl.name));
      view = made.back().view;
    }
    tensors.push_back({decl.name, view});
  }
  const auto with = [&](const std::string& name, const TensorView& view) {
    std::vector<NamedTensor> changed = tensors;
    for (NamedTensor& tensor : changed) {
      if (tensor.name == name) tensor.view = view;
    }
    return write_weight_file(changed);
  };
  EXPECT_NO_THROW(tail("q8_0", write_weight_file(tensors)));
  EXPECT_NO_THROW(tail("auto", write_weight_file(tensors)));
  const std::string name = "h.2.mlp.c_fc.weight";
  const std::string whole = write_weight_file(tensors);
  const TensorView good = parse_weight_file(as_bytes_of(whole), "x").at(name);
  std::vector<std::byte> bytes(good.bytes.begin(), good.bytes.end());
  bytes[34 * 5 + 1] = std::byte{0x7c};
  const OwnedTensor four = quantised(weights.view(name), DType::kQ4_0, true, name);
  std::string undescribed = whole;
  undescribed.replace(undescribed.find("h.2.mlp.c_fc.weight\":\"q8_0"), 3, "h.9");
  const std::pair<std::string, const char*> bad[] = {
      {with(name, {DType::kQ8_0, good.dims, bytes}), "a scale is not finite"},
      {with(name, {DType::kQ8_0, {good.dims[1], good.dims[0]}, good.bytes}), "expected [384, 96]"},
      {with(name, four.view), "expected Q8_0, got Q4_0"},
      {undescribed, "expected F32, F16 or BF16, got U8"},
  };
  for (const auto& [file, message] : bad) {
    try {
      tail("q8_0", file);
      ADD_FAILURE() << message;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kIntegrity) << error.what();
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace split::test
