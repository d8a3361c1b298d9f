// The goldens' training runs: the losses of every step against PyTorch's.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "array/plan.h"
#include "tests/split_ops/goldens.h"
#include "tests/split_ops/report.h"

namespace split::ops {

Report run_training(Goldens& goldens, const std::filesystem::path& models, array::Runtime& runtime,
                    const std::function<bool(const std::string&)>& wanted = {});

}  // namespace split::ops
