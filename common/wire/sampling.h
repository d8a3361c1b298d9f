// The sampler's options as members of a request's body. serve/text_request.h reads them.
#pragma once

#include "base/json.h"
#include "text/sampler.h"

namespace split::wire {

void write_sampling(const SamplingOptions& sampling, Json& body);

}  // namespace split::wire
