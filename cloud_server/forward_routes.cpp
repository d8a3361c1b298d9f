// Partial state without a session: any range of the model from a prompt or a hidden state; and
// whole completions.
#include <algorithm>
#include <cmath>

#include "cloud_server/job.h"
#include "cloud_server/routes.h"
#include "run/generate.h"
#include "serve/completions.h"
#include "wire/fields.h"

namespace split::cloud {
namespace {

using http::HttpError;
using wire::Fields;

constexpr size_t kMaxAnswerBytes = 64 << 20;
constexpr size_t kJsonBytesAFloat = 14;  // "-1.2345678e-05", on average less
constexpr size_t kJsonBytesATop = 24;    // "[50256,-12.345678],", at most

struct ForwardRequest {
  std::vector<int32_t> tokens;
  wire::Matrix hidden;  // instead of tokens
  int from = 0, to = 0;
  Wanted wanted = Wanted::kAll;
  std::vector<uint32_t> list;
  int top = 0;
};

// "rows" as a word or as "0,5,7" (of a query), or a JSON list.
void read_rows(ForwardRequest& request, const std::string& text) {
  if (text == "all") {
    request.wanted = Wanted::kAll;
  } else if (text == "last") {
    request.wanted = Wanted::kLast;
  } else {
    request.wanted = Wanted::kList;
    size_t at = 0;
    while (at <= text.size()) {
      const size_t end = std::min(text.find(',', at), text.size());
      const auto row = parse_u64(std::string_view(text).substr(at, end - at), 0, 1 << 30);
      if (!row) Fields::refuse("rows", "expected \"all\", \"last\" or a list of rows");
      request.list.push_back(static_cast<uint32_t>(*row));
      at = end + 1;
    }
  }
}

ForwardRequest read_json(ServedModel& model, const std::string& body) {
  const ModelConfig& config = model.config();
  Fields fields(body);
  ForwardRequest request;
  const bool special = fields.boolean_or("special", true);
  if (fields.has("prompt") && fields.has("tokens")) {
    Fields::refuse("prompt", "expected one of \"prompt\" and \"tokens\", got both");
  }
  if (fields.has("tokens")) {
    request.tokens =
        fields.integers("tokens", 0, config.vocab - 1, static_cast<size_t>(config.context));
    if (request.tokens.empty()) Fields::refuse("tokens", "expected at least one");
  } else {
    request.tokens = prompt_ids(config, model.tokenizer(), fields.text_or("prompt", ""), special);
  }
  if (fields.integer_or("from", 0, config.layers, 0) > 0) {
    Fields::refuse("from",
                   "over 0 only with `hidden`: send safetensors as application/octet-stream");
  }
  request.to = config.layers + 2;
  if (fields.has("to")) {
    const Json& to = fields.raw("to");
    const bool word = to.is_string() && (to == "norm" || to == "head");
    const bool number = to.is_number_unsigned() && to.get<uint64_t>() <= INT32_MAX;
    request.to = point_named(word     ? to.text()
                             : number ? cat(to.get<uint64_t>())
                                      : "",
                             config.layers);
  }
  request.wanted = request.to == config.layers + 2 ? Wanted::kLast : Wanted::kAll;
  if (fields.has("rows")) {
    if (fields.raw("rows").is_string()) {
      const std::string text = fields.text("rows");
      if (text != "all" && text != "last") {
        Fields::refuse("rows", "expected \"all\", \"last\" or a list of rows");
      }
      read_rows(request, text);
    } else {
      request.wanted = Wanted::kList;
      for (const int32_t row :
           fields.integers("rows", 0, INT32_MAX, static_cast<size_t>(config.context))) {
        request.list.push_back(static_cast<uint32_t>(row));
      }
    }
  }
  request.top = static_cast<int>(fields.integer_or("top", 1, config.vocab, 0));
  fields.finish();
  return request;
}

ForwardRequest read_tensors(ServedModel& model, const http::Request& http) {
  const ModelConfig& config = model.config();
  ForwardRequest request;
  wire::check_query(http.query_params, {"from", "to", "rows", "top"});
  const auto from =
      parse_u64(http.query("from").value_or("0"), 0, static_cast<uint64_t>(config.layers));
  if (!from) Fields::refuse("from", cat("expected 0..", config.layers));
  request.from = static_cast<int>(*from);
  request.to = point_named(http.query("to").value_or("head"), config.layers);
  request.wanted = request.to == config.layers + 2 ? Wanted::kLast : Wanted::kAll;
  if (const auto rows = http.query("rows")) read_rows(request, *rows);
  if (const auto text = http.query("top")) {
    const auto top = parse_u64(*text, 1, static_cast<uint64_t>(config.vocab));
    if (!top) Fields::refuse("top", cat("expected a whole number in 1..", config.vocab));
    request.top = static_cast<int>(*top);
  }
  request.hidden =
      wire::parse_frame(as_bytes_of(http.body), "hidden", static_cast<uint32_t>(config.channels),
                        static_cast<uint32_t>(config.context));
  return request;
}

std::string as_json(const ForwardRequest& request, const ModelConfig& config, size_t rows,
                    size_t width, std::span<const float> out) {
  const bool logits = request.to == config.layers + 2;
  std::string json = "{";
  if (!request.tokens.empty()) json += cat("\"tokens\":", Json(request.tokens).dump(), ",");
  json += cat("\"shape\":[", rows, ",", width, "],\"dtype\":\"f32\",");
  json += request.top > 0 ? "\"top\":[" : logits ? "\"logits\":[" : "\"hidden\":[";
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
  ForwardRequest request =
      sends_tensors(http) ? read_tensors(model, http) : read_json(model, http.body);
  if (request.to < request.from)
    Fields::refuse("to", cat("expected a point at or after ", request.from));
  if (request.top > 0 && request.to != shard.head_point()) {
    Fields::refuse("top", "is for logits: \"to\" is \"head\"");
  }
  const auto rows =
      static_cast<uint32_t>(request.tokens.empty() ? request.hidden.rows : request.tokens.size());
  for (size_t i = 0; i < request.list.size(); ++i) {
    if (request.list[i] >= rows || (i > 0 && request.list[i] <= request.list[i - 1])) {
      Fields::refuse("rows", cat("expected ascending rows in 0..", rows - 1));
    }
  }
  if (request.wanted == Wanted::kList && request.list.empty()) {
    Fields::refuse("rows", "expected at least one");
  }
  const size_t wanted = request.wanted == Wanted::kAll    ? rows
                        : request.wanted == Wanted::kLast ? 1
                                                          : request.list.size();
  const size_t width = shard.width(request.to);
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
  Job job;
  job.from = request.from;
  job.to = request.to;
  job.sequence = sequence.id;
  job.rows = rows;
  job.tokens = request.tokens.empty() ? nullptr : request.tokens.data();
  job.hidden = request.tokens.empty() ? request.hidden.values.data() : nullptr;
  job.wanted = request.wanted;
  job.list = request.list;
  std::vector<float> out(wanted * width);
  job.out = out.data();
  run_job(cloud, http, model, job);
  if (!all_finite(out)) refuse_overflow(request.tokens.empty());

  http::Response response;
  if (tensors && request.top == 0) {
    response.content_type = wire::kTensorType;
    response.body = wire::frame(request.to == shard.head_point() ? "logits" : "hidden",
                                static_cast<uint32_t>(wanted), static_cast<uint32_t>(width), out);
  } else {
    response = http::Response::json(200, as_json(request, config, wanted, width, out));
  }
  describe_run(response, job);
  return response;
}

// The rows of a completion are its key's.
class CountedForward : public LocalForward {
 public:
  CountedForward(Batcher& batcher, const serve::ApiKeys& keys, const Requester& requester)
      : LocalForward(batcher, requester), keys_(keys), name_(requester.owner) {}
  std::span<const float> run(uint32_t past, std::span<const int32_t> tokens, Phase phase,
                             bool all) override {
    keys_.took_rows(name_, tokens.size());
    return LocalForward::run(past, tokens, phase, all);
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
