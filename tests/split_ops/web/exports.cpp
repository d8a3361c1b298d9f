// The goldens in a browser's tab: a module of functions for the worker (page/worker.js), which
// brings the files, and then takes one case after another. No fibre, no socket and no store: any
// browser with exceptions in WebAssembly runs it.
#include <cstdlib>
#include <memory>

#include "base/web/page.h"
#include "tests/split_ops/cases.h"
#include "tests/split_ops/reference.h"

extern "C" {
__attribute__((import_module("page"), import_name("told"))) void page_told(const char* json,
                                                                           size_t size);
#define EXPORTED(name) __attribute__((export_name(name)))
}

namespace split::ops {
namespace {

struct Run {
  std::map<std::string, Bytes> files;
  std::string list;  // operations.def
  std::optional<Goldens> goldens;
  std::optional<array::Runtime> runtime;
  Json index;
  size_t next = 0;
  std::set<std::string> begun;  // operations
};
Run& run() {
  static Run one;
  return one;
}

void tell(const Json& event) {
  const std::string text = event.dump();
  page_told(text.data(), text.size());
}

// Calls what may throw: an error is the page's to show.
int told(const auto& call) {
  try {
    return call();
  } catch (const std::exception& error) {
    page::fail(error.what());
  }
}

int begin() {
  Run& of = run();
  of.goldens.emplace(of.files);
  of.runtime.emplace(1u);
  of.index = of.goldens->json("index.json");
  Json all = Json::array();
  for (const auto& [name, about] : operations_of(of.index)) {
    Json types = Json::array();
    for (const std::string& type : about.types) types.push_back(type);
    const Code code = code_of(name, about, of.list);
    all.push_back(Json{{"name", name},
                       {"place", about.place},
                       {"cases", about.cases},
                       {"gradients", about.gradients},
                       {"types", std::move(types)},
                       {"forward", code.forward},
                       {"gradient", code.gradient}});
  }
  tell(Json{{"operations", std::move(all)}, {"cases", of.index.at("cases").size()}});
  return 0;
}

// Returns whether there was a case.
int step() {
  Run& of = run();
  const Json& cases = of.index.at("cases");
  if (of.next == cases.size()) return 0;
  const Json& entry = cases[of.next++];
  const std::string& operation = entry.at("op").text();
  Report report;
  run_case(*of.goldens, *of.runtime, entry, Layouts::kDense, report);
  const Report::Case& one = report.all[0];
  Json event{{"operation", operation}, {"case", one.name}, {"worst", one.worst}};
  if (one.failed) {
    const Json failed = report.json().at("failed")[0];
    const std::string& differs = report.failed[0].worst.differs;
    event["failed"] = differs.empty()
                          ? cat(failed.at("case").text(), ": error ", failed.at("error").dump(),
                                ", allowed ", failed.at("tolerance").dump())
                          : cat(failed.at("case").text(), ": ", differs);
  }
  if (of.begun.insert(operation).second) {
    const Plot plot = plot_of(entry, *of.runtime);
    if (!plot.forward.empty()) {
      event["plot"] = Json{{"forward", plot.forward}, {"gradient", plot.gradient}};
    }
  }
  tell(event);
  return 1;
}

}  // namespace
}  // namespace split::ops

extern "C" {

// Memory for a file or a name, which stays.
EXPORTED("ops_take") void* ops_take(size_t bytes) { return std::malloc(bytes); }
EXPORTED("ops_file")
void ops_file(const char* name, size_t length, const std::byte* at, size_t size) {
  const std::string file(name, length);
  split::ops::Run& of = split::ops::run();
  if (file == "operations.def") {
    of.list.assign(reinterpret_cast<const char*>(at), size);
  } else {
    of.files[file] = {at, size};
  }
}
EXPORTED("ops_begin") void ops_begin() { split::ops::told(split::ops::begin); }
EXPORTED("ops_step") int ops_step() { return split::ops::told(split::ops::step); }

}  // extern "C"
