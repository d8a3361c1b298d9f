// Any bytes as what an edge sends and gets at each step: a session's or a step's JSON, and a hidden
// state. Refused with Error(kInput), or said again as the same.
#include <cmath>

#include "fuzz.h"
#include "wire/step.h"

using namespace split;  // NOLINT(google-build-using-namespace): a program of its own

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  fuzz::refused_or([&] {
    const wire::SessionRequest request = wire::parse_session_request(text);
    CHECK(to_json(wire::parse_session_request(to_json(request))) == to_json(request));
  });
  fuzz::refused_or([&] {
    ModelConfig config;
    config.layers = 12;
    config.context = 1024;
    const auto said = [](const wire::StepRequest& step) {
      return wire::step_json(step.received.rows, step);
    };
    const wire::StepRequest step = wire::parse_step(text, config);
    CHECK(step.received.rows.tokens.size() <= wire::kMaxStepTokens);
    CHECK(step.fill == (step.count > 0) && step.count <= 1024);
    const std::string again = said(step);
    CHECK(said(wire::parse_step(again, config)) == again);
  });
  fuzz::refused_or([&] {
    const wire::Matrix hidden =
        wire::parse_frame(std::as_bytes(std::span(data, size)), "hidden", 4, 1024);
    CHECK(hidden.rows >= 1 && hidden.rows <= 1024 &&
          hidden.values.size() == size_t{hidden.rows} * 4);
    for (const float value : hidden.values) CHECK(std::isfinite(value));
    const std::string again = wire::frame("hidden", hidden.rows, 4, hidden.values);
    CHECK(wire::parse_frame(std::as_bytes(std::span(again)), "hidden", 4, 1024).values ==
          hidden.values);
  });
  return 0;
}
