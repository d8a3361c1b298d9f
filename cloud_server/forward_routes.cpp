// Partial state without a session: any range of the model from a prompt or a hidden state; and
// whole completions.
#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "cloud_server/job.h"
#include "cloud_server/routes.h"
#include "run/generate.h"
#include "serve/completions.h"
#include "wire/step.h"

namespace split::cloud {
namespace {

using http::HttpError;

constexpr size_t kMaxAnswerBytes = 64 << 20;
constexpr size_t kJsonBytesAFloat = 14;  // "-1.2345678e-05", on average less
constexpr size_t kJsonBytesATop = 24;    // "[50256,-12.345678],", at most

std::string as_json(const wire::ForwardRequest& request, size_t rows, size_t width,
                    std::span<const float> out) {
  const SequenceRows& asked = request.received.rows;
  std::string json = "{";
  if (!asked.tokens.empty()) json += cat("\"tokens\":", Json(asked.tokens).dump(), ",");
  json += cat("\"shape\":[", rows, ",", width, "],\"dtype\":\"f32\",");
  json += cat("\"", request.top > 0 ? "top" : wire::result_name(asked.range.to), "\":[");
  char number[32];
  for (size_t r = 0; r < rows; ++r) {
    if (r > 0) json += ',';
    const auto row = out.subspan(r * width, width);
    if (request.top == 0) {
      wire::append_floats(json, row);
      continue;
    }
    std::vector<int32_t> ids(width);
    for (size_t i = 0; i < width; ++i) ids[i] = static_cast<int32_t>(i);
    const auto k = static_cast<ptrdiff_t>(request.top);
    std::partial_sort(ids.begin(), ids.begin() + k, ids.end(), [&](int32_t a, int32_t b) {
      const float x = row[static_cast<size_t>(a)], z = row[static_cast<size_t>(b)];
      return x != z ? x > z : a < b;
    });
    json += '[';
    for (ptrdiff_t i = 0; i < k; ++i) {
      const int32_t id = ids[static_cast<size_t>(i)];
      const float value = row[static_cast<size_t>(id)];
      std::string text;
      wire::append_floats(text, std::span(&value, 1));
      std::snprintf(number, sizeof number, "%s[%d,", i > 0 ? "," : "", id);
      json += number + text.substr(1, text.size() - 2) + "]";
    }
    json += ']';
  }
  return json + "]}\n";
}

http::Response forward(Cloud& cloud, const http::Request& http) {
  ServedModel& model = cloud.find(http.path_params[0]);
  const ModelConfig& config = model.config();
  Shard& shard = model.batcher().shard();
  const auto encode = [&](const std::string& prompt, bool special) {
    return prompt_ids(config, model.tokenizer(), prompt, special);
  };
  const wire::ForwardRequest request =
      sends_tensors(http) ? wire::parse_forward(http.query_params, as_bytes_of(http.body), config)
                          : wire::parse_forward(http.body, config, encode);
  const SequenceRows& rows = request.received.rows;
  const size_t wanted = rows.wanted_count(), width = shard.width(rows.range.to);
  const bool tensors = wants_tensors(http);
  // At most 2^20 rows of 2^24 columns: nothing here overflows.
  const auto top = static_cast<size_t>(request.top);
  const size_t row_bytes = top > 0   ? top * kJsonBytesATop
                           : tensors ? width * sizeof(float)
                                     : width * kJsonBytesAFloat;
  if (wanted * row_bytes > kMaxAnswerBytes ||
      wanted * width * sizeof(float) > 4 * kMaxAnswerBytes) {
    throw HttpError(400, "answer_too_large",
                    cat("the answer would be over ", kMaxAnswerBytes >> 20,
                        " MiB: ask for fewer `rows`, or for Accept: application/octet-stream"),
                    "rows");
  }

  const OneSequence sequence(shard.pages());
  std::vector<float> out(wanted * width);
  Job job{sequence.id, rows, out.data()};
  run_job(cloud, http, model, job);
  if (!all_finite(out)) refuse_overflow(!rows.hidden.empty());

  http::Response response;
  if (tensors && request.top == 0) {
    response.content_type = wire::kTensorType;
    response.body = wire::frame(wire::result_name(rows.range.to), static_cast<uint32_t>(wanted),
                                static_cast<uint32_t>(width), out);
  } else {
    response = http::Response::json(200, as_json(request, wanted, width, out));
  }
  describe_run(response, job);
  return response;
}

// The rows of a completion are its key's.
class CountedForward : public LocalForward {
 public:
  CountedForward(Batcher& batcher, const serve::ApiKeys& keys, const Requester& requester)
      : LocalForward(batcher, requester), keys_(keys), name_(requester.owner) {}
  std::span<const float> run(const SequenceRows& rows) override {
    keys_.took_rows(name_, rows.count());
    return LocalForward::run(rows);
  }

 private:
  const serve::ApiKeys& keys_;
  const std::string name_;
};

http::Response completions(Cloud& cloud, const http::Request& request) {
  cloud.keys.expect_rows(request.principal);
  return serve::completions(request, [&](const std::string& id) {
    ServedModel& model = cloud.find(id);
    serve::TextModel work = serve::local_backend(
        model.id(), model.config(), model.tokenizer(),
        [&cloud, &model, requester = requester_of(request)] {
          return std::make_unique<CountedForward>(model.batcher(), cloud.keys, requester);
        },
        model.device().name());
    work.spare = &cloud.spare;
    return work;
  });
}

}  // namespace

Routes forward_routes(Cloud& cloud) {
  return {{.method = "POST",
           .path = "/v1/models/{id}/forward",
           .summary = "any range of a model, without a session",
           .statuses = {200, 404},
           .query = {{"from", "integer", "with hidden states: the point that they enter at"},
                     {"to", "string", "with hidden states, as in the body"},
                     {"rows", "string", "with hidden states, as in the body"},
                     {"top", "integer", "with hidden states, as in the body"}},
           .body = {{"prompt", "string", "a text, or"},
                    {"tokens", "array", "ids"},
                    {"special", "boolean", "special tokens in the prompt are read as such"},
                    {"from", "integer", "0"},
                    {"to", "", "a point: 0..L, norm or head"},
                    {"rows", "", "all, last or a list of rows"},
                    {"top", "integer", "only the likeliest tokens"}},
           .other_body_types = {wire::kTensorType},
           .handler = std::bind_front(forward, std::ref(cloud))},
          {.method = "POST",
           .path = "/v1/completions",
           .summary = "texts in OpenAI's shape",
           .statuses = {200, 404},
           .body = serve::completion_fields(),
           .handler = std::bind_front(completions, std::ref(cloud))}};
}

}  // namespace split::cloud
