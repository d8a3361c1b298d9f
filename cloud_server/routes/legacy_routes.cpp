// The requests of the original project's web page to its Flask server (--legacy-routes): the first
// model's sizes, one weight at a time, and the input of the blocks that the page computes in the
// browser.
#include <algorithm>
#include <cstring>

#include "base/base64.h"
#include "base/json.h"
#include "cloud_server/routes/form.h"
#include "cloud_server/routes/job.h"
#include "cloud_server/routes/routes.h"
#include "run/text/generate.h"
#include "tensor/blocks.h"
#include "wire/codes.h"

namespace split::cloud {
namespace {

using http::HttpError;

// Whether to transpose: the page computes x w^T with torch.nn.Linear's [out, in]; the checkpoint
// has Conv1D's [in, out], unless in blocks, which have outputs as rows.
bool is_turned(std::string_view name, const TensorView& weight) {
  return name.starts_with("h.") && name.ends_with(".weight") && name.find(".c_") != name.npos &&
         !is_quantised(weight.dtype);
}

// Writes a weight's JSON, rows of out [out, in] or of the matrix as it is, in pieces: the
// vocabulary of GPT-2 XL is 0.4 GB of base64.
class WeightText {
 public:
  WeightText(const TensorView& weight, bool turned)
      : weight_(weight),
        turned_(turned),
        in_(static_cast<size_t>(turned ? weight.dims[0] : weight.dims.back())),
        out_(static_cast<size_t>(*element_count(weight.dims)) / in_),
        strip_(std::clamp<size_t>(kPiece / in_, 1, out_)) {}
  WeightText(const WeightText&) = delete;
  WeightText& operator=(const WeightText&) = delete;

  http::Streamed make(http::Sink& sink) {
    while (first_ < out_) {
      add_strip();
      const bool taken = sink.write(text_);
      text_.clear();
      if (!taken) return http::Streamed::kDone;
      if (sink.full()) return http::Streamed::kMore;
    }
    base64_.finish();
    sink.write(text_ + "\"}\n");
    return http::Streamed::kDone;
  }

 private:
  static constexpr size_t kPiece = 1 << 16;  // floats, 256 KiB

  void add_strip() {
    const size_t n = std::min(strip_, out_ - first_);
    std::vector<float> rows(n * in_), line(turned_ ? n : 0);
    if (!turned_) {
      widen(first_ * in_, n * in_, rows.data());
    } else {
      for (size_t i = 0; i < in_; ++i) {
        widen(i * out_ + first_, n, line.data());
        for (size_t o = 0; o < n; ++o) rows[o * in_ + i] = line[o];
      }
    }
    base64_.add(std::as_bytes(std::span(rows)));
    first_ += n;
  }

  // Widens elements [at, at + n) to floats; blocks by whole rows.
  void widen(size_t at, size_t n, float* to) const {
    if (is_quantised(weight_.dtype)) {
      const size_t row_bytes = weight_.bytes.size() / out_;
      for (size_t done = 0; done < n; done += in_) {
        dequantise_row(weight_.dtype, weight_.bytes.data() + (at + done) / in_ * row_bytes, in_,
                       to + done);
      }
      return;
    }
    const size_t element = dtype_size(weight_.dtype);
    convert({weight_.dtype,
             {static_cast<int64_t>(n)},
             weight_.bytes.subspan(at * element, n * element)},
            DType::kF32, std::as_writable_bytes(std::span(to, n)));
  }

  const TensorView& weight_;
  const bool turned_;
  const size_t in_, out_, strip_;
  size_t first_ = 0;  // next row
  std::string text_ = "{\"layer\":\"";
  Base64 base64_{text_};
};

http::Response weight_answer(const ServedModel& model, std::string_view name) {
  constexpr std::string_view kPrefix = "transformer.";
  const TensorView* weight = nullptr;
  if (name == "lm_head.weight") {
    const std::string& tied_to = model.model().weight(name).from;
    if (!tied_to.empty()) name = tied_to;
    weight = model.checkpoint().find(name);
  } else if (name.starts_with(kPrefix)) {
    name.remove_prefix(kPrefix.size());
    weight = model.checkpoint().find(name);
  }
  if (weight == nullptr) {
    throw HttpError(404, wire::codes::kNotFound,
                    "no weight of this name: expected one like transformer.h.0.ln_1.weight");
  }
  http::Response response;
  response.content_type = wire::kJsonType;
  const auto text = std::make_shared<WeightText>(*weight, is_turned(name, *weight));
  response.stream = [text](http::Sink& sink) { return text->make(sink); };
  return response;
}

std::string field(const FormFields& form, const char* name) {
  const auto at = std::ranges::find(form, name, &FormFields::value_type::first);
  if (at == form.end()) throw HttpError(400, "invalid_form", "the form: a field is missing", name);
  return at->second;
}

http::Response partial_state(Cloud& cloud, ServedModel& model, const http::Request& request) {
  cloud.expect_no_drain();
  const FormFields form =
      parse_form(request.headers.get("Content-Type").value_or(""), request.body);
  const ModelConfig& config = model.config();
  const std::string text = field(form, "input_text");
  if (text.empty()) throw HttpError(400, "invalid_form", "expected some text", "input_text");
  const auto offline =
      parse_u64(field(form, "offline_layers"), 0, static_cast<uint64_t>(config.layers));
  if (!offline) {
    throw HttpError(400, "invalid_form", cat("expected a whole number in 0..", config.layers),
                    "offline_layers");
  }
  // The original page rejected special tokens; here they are plain text.
  const std::vector<int32_t> tokens =
      prompt_ids(config, model.tokenizer(), text, false, request.memory.get());
  const Point to = config.layers - static_cast<int>(*offline);
  const size_t channels = model.batcher().shard().width(to);
  const OneSequence sequence(model.batcher().shard().pages());
  request.memory->take(tokens.size() * channels * 3 * sizeof(float));  // floats and base64
  std::vector<float> out(tokens.size() * channels);
  Job job{sequence.id, {.range = {.to = to}, .tokens = tokens, .wanted = Wanted::kAll}, out.data()};
  run_job(cloud, request, model, job);
  if (!all_finite(out)) refuse_overflow(model, false);

  // The hash only has to differ between queries; the page does not read it.
  std::string json = cat("{\"hash\":\"", Sha256::hex_of(as_bytes_of(text)).substr(0, 16),
                         "\",\"decoded_out\":\"\",\"partial_state_shape\":[1,", tokens.size(), ",",
                         channels, "],\"partial_state\":\"");
  Base64 base64(json);
  base64.add(std::as_bytes(std::span(out)));
  base64.finish();
  http::Response response = http::Response::json(200, json + "\"}\n");
  describe_run(response, job);
  return response;
}

http::Response model_config(Cloud&, ServedModel& model, const http::Request&) {
  const ModelConfig& config = model.config();
  return http::Response::json(200, Json{{"n_layer", config.layers},
                                        {"n_head", config.heads},
                                        {"n_embd", config.channels},
                                        {"vocab_size", config.vocab},
                                        {"block_size", config.context}}
                                           .dump() +
                                       "\n");
}

http::Response model_weight(Cloud&, ServedModel& model, const http::Request& request) {
  return weight_answer(model, request.path_params[0]);
}

}  // namespace

Routes legacy_routes(Cloud& cloud) {
  const auto with = [&cloud](auto&& answer) {
    return [&cloud, answer](const http::Request& request) -> http::Response {
      if (!cloud.legacy_routes) {
        throw HttpError(404, wire::codes::kNotFound,
                        "there is nothing at this path without --legacy-routes");
      }
      return answer(cloud, *cloud.models[0], request);
    };
  };
  return {{.method = "GET",
           .path = "/get_model_config",
           .summary = "Returns the config as the original web page reads it (--legacy-routes).",
           .statuses = {200, 404},
           .handler = with(model_config)},
          {.method = "GET",
           .path = "/get_model_weights/{name}",
           .summary = "Returns a weight as the original web page reads it (--legacy-routes).",
           .statuses = {200, 404},
           .handler = with(model_weight)},
          {.method = "POST",
           .path = "/",
           .summary = "Computes partial state for the original web page (--legacy-routes).",
           .statuses = {200, 404},
           .body = {{"input_text", "string", "The text so far.", true},
                    {"offline_layers", "integer", "The number of layers that the page computes.",
                     true}},
           .body_type = "application/x-www-form-urlencoded",
           .other_body_types = {"multipart/form-data"},
           .handler = with(partial_state)}};
}

}  // namespace split::cloud
