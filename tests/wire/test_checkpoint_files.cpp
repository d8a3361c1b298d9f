// The files of a checkpoint on their way to the edge: each is what the model's description says of
// it, or is refused as a blob is, with exit 5 and no text.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "edge_client/cloud/model_link.h"
#include "edge_client/options/command_line.h"
#include "edge_client/weights/model_choice.h"
#include "support/edge_world.h"

namespace split::test {
namespace {

using FileDamage = std::function<void(std::string&)>;

GatedCloud& demo_cloud() {
  static ForAllTests<GatedCloud> cloud;
  GatedCloud& one = cloud.get("demo");
  one.reset({});
  return one;
}

Outcome run_demo(GatedCloud& cloud, const std::vector<std::string>& more = {"--cut=4"}) {
  const TemporaryFolder cache;
  std::vector<std::string> arguments = {cat("--server=", cloud.url()),
                                        cat("--cache=", cache.path.string()),
                                        "--device=cpu",
                                        "--threads=1",
                                        "--prompt=Once upon a time",
                                        "--max-tokens=8",
                                        "--temperature=0",
                                        "--ignore-eos",
                                        "--quiet",
                                        "--retry-for=5"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return cloud.ended(run_edge(arguments));
}

// Changes the first `times` answers that are this file.
void damage_file(GatedCloud& cloud, const std::string& name, const FileDamage& change,
                 int times = 1000) {
  cloud.on_file = [&cloud, name, change, left = std::make_shared<std::atomic<int>>(times)](
                      const http::Request& request, int) -> std::optional<http::Response> {
    if (request.path_params[1] != name || --*left < 0) return std::nullopt;
    http::Response response = cloud.real(request);
    change(response.body);
    return response;
  };
}

void expect_damage(const Outcome& got, const std::string& part) {
  EXPECT_EQ(got.code, 5) << got.err;
  EXPECT_EQ(got.out, "");
  EXPECT_NE(got.err.find(part), std::string::npos) << got.err;
  EXPECT_EQ(std::ranges::count(got.err, '\n'), 1) << got.err;
}

TEST(EdgeFiles, OneFlippedBitOfAnyIsFound) {
  GatedCloud& cloud = demo_cloud();
  std::mutex mutex;
  std::set<std::string> read;
  cloud.on_file = [&](const http::Request& request, int) -> std::optional<http::Response> {
    const std::lock_guard lock(mutex);
    read.insert(request.path_params[1]);
    return std::nullopt;
  };
  const Outcome whole = run_demo(cloud);
  ASSERT_EQ(whole.code, 0) << whole.err;
  ASSERT_TRUE(read.contains("config.json"));
  ASSERT_GE(read.size(), 2u);  // and a tokenizer
  std::mt19937_64 random(1);
  for (const std::string& name : read) {
    const FileDamage flip = [&random](std::string& text) {
      const size_t bit = random() % (8 * text.size());
      text[bit / 8] = static_cast<char>(text[bit / 8] ^ 1 << bit % 8);
    };
    for (int round = 0; round < (std::getenv("SPLIT_LONG") ? 100 : 4); ++round) {
      demo_cloud();
      damage_file(cloud, name, flip);
      expect_damage(run_demo(cloud),
                    cat("file '", name, "' of the model 'demo': expected sha256 "));
    }
    demo_cloud();
    damage_file(cloud, name, [](std::string& text) { text.pop_back(); });
    expect_damage(run_demo(cloud), cat("file '", name, "' of the model 'demo': expected "));
    if (name == "config.json") continue;
    demo_cloud();  // once: it is asked for again, as a blob is
    damage_file(cloud, name, flip, 1);
    const Outcome again = run_demo(cloud);
    EXPECT_EQ(again.code, 0) << again.err;
    EXPECT_EQ(again.out, whole.out);
  }
}

// Each is a config of its own, that blobs of this model fit, or none; a wrong option is not told.
TEST(EdgeFiles, AConfigThatLiesIsFound) {
  GatedCloud& cloud = demo_cloud();
  const std::pair<const char*, nlohmann::json> lies[] = {{"n_layer", 5},
                                                         {"n_layer", 2},
                                                         {"n_layer", 1'000'000'000},
                                                         {"n_head", 1},
                                                         {"n_head", 320},
                                                         {"n_positions", 4},
                                                         {"vocab_size", 8191},
                                                         {"activation_function", "relu"},
                                                         {"n_embd", -1},
                                                         {"scale_attn_weights", false}};
  for (const auto& [key, value] : lies) {
    demo_cloud();
    damage_file(cloud, "config.json", [&key = key, &value = value](std::string& text) {
      nlohmann::json config = nlohmann::json::parse(text);
      config[key] = value;
      text = config.dump();
    });
    expect_damage(run_demo(cloud), "file 'config.json' of the model 'demo': expected ");
  }
  for (const char* text : {"", "{", "[]", "\xff"}) {
    demo_cloud();
    damage_file(cloud, "config.json", [&](std::string& body) { body = text; });
    expect_damage(run_demo(cloud), "file 'config.json' of the model 'demo': expected ");
  }
}

TEST(EdgeFiles, ADescriptionIsOfItsFiles) {
  GatedCloud& cloud = demo_cloud();
  const auto with = [&](const std::function<void(nlohmann::json&)>& edit, const char* cut) {
    cloud.reset({}, {}, [&, edit](const http::Request& request, int) {
      http::Response response = cloud.real(request);
      nlohmann::json json = nlohmann::json::parse(response.body);
      edit(json);
      response.body = json.dump();
      return std::optional(response);
    });
    const Outcome got = run_demo(cloud, {cut});
    cloud.reset({});
    return got;
  };
  for (const char* cut : {"--cut=4", "--cut=cloud"}) {
    expect_damage(with([](nlohmann::json& json) { json["config"]["n_layer"] = 9; }, cut),
                  "file 'config.json' of the model 'demo': another \"config\" in the model's");
    expect_damage(with([](nlohmann::json& json) { json["files"].erase(0); }, cut),
                  "file 'config.json' of the model 'demo': the model's description does not");
    // An earlier server's.
    const Outcome names = with(
        [](nlohmann::json& json) {
          for (nlohmann::json& file : json["files"]) file = nlohmann::json(file["name"]);
        },
        cut);
    EXPECT_EQ(names.code, 3);
    EXPECT_EQ(names.out, "");
    EXPECT_NE(names.err.find("'files': expected objects with \"name\", \"bytes\" and \"sha256\""),
              std::string::npos)
        << names.err;
  }
}

// Files that a server reads beside the tokenizer.
TEST(EdgeFiles, TemplatesAndPoolingsAreVerifiedToo) {
  const auto refused = [](const std::string& model, const std::string& name, const auto& read) {
    GatedCloud cloud(model);
    edge::Options options;
    options.server = cloud.url();
    options.connector = InProcess::connect;
    options.quiet = true;
    Interrupt interrupt;
    const auto look = [&] {
      edge::ModelChoice choice(
          options, options.placement, {}, [](const char*) { return nullptr; }, interrupt);
      choice.select_model();
      read(choice, choice.manifest(nullptr));
    };
    EXPECT_NO_THROW(look());
    damage_file(cloud, name, [](std::string& text) { text[text.size() / 2] = 0; });
    try {
      look();
      ADD_FAILURE() << "not refused: " << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kIntegrity) << error.what();
    }
    EXPECT_GE(cloud.files, 2) << name;
    cloud.reset({});
  };
  const auto chat = [](edge::ModelChoice& choice, const wire::ModelInfo& info) {
    choice.chat(info);
  };
  const auto pooling = [](edge::ModelChoice& choice, const wire::ModelInfo& info) {
    choice.sentences(info);
  };
  const TemporaryFolder folder;
  for (const char* file : {"config.json", "model.safetensors", "tokenizer.json"}) {
    std::filesystem::create_symlink(std::filesystem::path(model_dir("demo")) / file,
                                    folder.path / file);
  }
  write_file(folder.path / "chat_template.jinja",
             as_bytes_of("{% for m in messages %}{{ m.content }}{% endfor %}"));
  refused(folder.path.string(), "chat_template.jinja", chat);
  refused(model_dir("models/st-minilm"), "modules.json", pooling);
}

// A server was started again, or a balancer chose another one: the same name, other words.
TEST(EdgeFiles, AModelThatWasReplacedIsNoticedByWhateverIsAsked) {
  GatedCloud& cloud = demo_cloud();
  edge::Remote first(cloud.url(), std::chrono::seconds(20), in_process());
  const wire::ModelInfo same = first.model("demo");
  wire::ModelInfo old = same;
  old.files.back().sha256 = std::string(64, 'a');
  wire::ModelInfo in_other_bits = same;  // a device took another's place
  in_other_bits.bits = "exact1; of another device";
  in_other_bits.phases_alike = !same.phases_alike;
  Interrupt interrupt;
  const ModelConfig& config = cloud.model().config();
  const std::vector<int32_t> ids = {1, 2, 3};
  GenerateOptions options;
  options.max_tokens = 2;
  options.ignore_end = true;
  edge::Traffic traffic;
  edge::SplitCounts counts;
  const std::string session(32, 'a');
  SequenceRows rows{.tokens = ids, .wanted = Wanted::kLast};
  rows.range.to = 4;
  const std::function<void(edge::ModelLink&)> asks[] = {
      [&](edge::ModelLink& link) {
        link.ask({edge::Send::kOpen, session, {.range = {0, 4}}, &traffic});
      },
      [&](edge::ModelLink& link) {
        link.ask({edge::Send::kStep, session, rows, &traffic});
      },
      [&](edge::ModelLink& link) {
        link.ask({edge::Send::kForward, {}, rows, &traffic});
      },
      [&](edge::ModelLink& link) { link.complete(nullptr, ids, options, {}, counts); },
      [&](edge::ModelLink& link) {
        link.stream({std::string(32, 'b'), ids, options, &counts},
                    [](const ScoredToken&) { return false; });
      }};
  for (const auto& ask : asks) {
    const auto on = [&](const wire::ModelInfo& info) {
      const auto other_bits = std::make_shared<std::atomic<bool>>(false);
      edge::Remote remote(cloud.url(), std::chrono::seconds(20), in_process());
      edge::LinkOptions link_options{info, config, {}, interrupt};
      link_options.other_bits = other_bits;
      edge::ModelLink link(remote, link_options);
      ask(link);
      return other_bits->load();
    };
    EXPECT_FALSE(on(same));
    EXPECT_TRUE(on(in_other_bits));
    try {
      on(old);
      ADD_FAILURE() << "not noticed";
    } catch (const edge::RemoteError& error) {
      EXPECT_EQ(error.code, "model_mismatch") << error.what();
    }
  }
}

}  // namespace
}  // namespace split::test
