#include "wire/sampling.h"

#include "base/error.h"

namespace split::wire {

void write_sampling(const SamplingOptions& sampling, Json& body) {
  body["temperature"] = sampling.temperature;
  body["top_p"] = sampling.top_p;
  body["seed"] = static_cast<int64_t>(sampling.seed);
  if (sampling.top_k != 0) body["top_k"] = sampling.top_k;
  if (sampling.repetition_penalty != 1) {
    body["repetition_penalty"] = sampling.repetition_penalty;
    body["repeat_last_n"] = sampling.repeat_last_n;
  }
  if (sampling.min_p != 0) body["min_p"] = sampling.min_p;
  if (sampling.presence_penalty != 0) body["presence_penalty"] = sampling.presence_penalty;
  if (sampling.frequency_penalty != 0) body["frequency_penalty"] = sampling.frequency_penalty;
  if (sampling.logit_bias.empty()) return;
  Json biases = Json::object();
  for (const auto& [id, bias] : sampling.logit_bias) biases.add(cat(id), bias);
  body["logit_bias"] = std::move(biases);
}

}  // namespace split::wire
