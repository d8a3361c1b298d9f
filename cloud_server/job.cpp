#include "cloud_server/job.h"

#include "base/json.h"
#include "tensor/blocks.h"
#include "wire/fields.h"

namespace split::cloud {

Requester requester_of(const http::Request& request) {
  return {request.principal, request.client_gone};
}

void charge_rows(const Cloud& cloud, const http::Request& request, uint32_t rows) {
  cloud.keys.expect_rows(request.principal);
  cloud.keys.took_rows(request.principal, rows);
}

void run_job(const Cloud& cloud, const http::Request& request, ServedModel& model, Job& job) {
  charge_rows(cloud, request, job.rows.count());
  job.requester = requester_of(request);
  model.batcher().run(job);
}

void describe_run(http::Response& response, const Job& job) {
  response.headers.set("Cache-Control", "no-store");
  response.headers.set("Server-Timing",
                       cat("queue;dur=", job.queue_ms, ", compute;dur=", job.compute_ms));
}

void take_hidden(const http::Request& request) {
  if (sends_tensors(request))
    request.memory->take(2 * request.body.size());  // halves become floats
}

bool wants_tensors(const http::Request& request) {
  const auto accept = request.headers.get("Accept");
  return accept && accept->find(wire::kTensorType) != std::string_view::npos;
}

bool sends_tensors(const http::Request& request) {
  const auto type = request.headers.get("Content-Type");
  return type && type->starts_with(wire::kTensorType);
}

bool all_finite(std::span<const float> values) {
  return values_are_finite({DType::kF32, {}, std::as_bytes(values)});
}

void refuse_overflow(ServedModel& model, bool from_hidden) {
  if (const std::string& name = model.damaged_weight(); !name.empty()) {
    throw http::HttpError(500, "weights_damaged",
                          cat("the weights of the model ", shown(model.id()),
                              " are damaged: ", shown(name), " holds a value that is not finite"));
  }
  if (from_hidden)
    wire::Fields::refuse("hidden", "its values are so large that the result is not finite");
  throw Error(ErrorKind::kDevice, "[forward] the result is not finite");
}

}  // namespace split::cloud
