// The functions of splitcompute.h for the worker. Each call starts a fibre and returns; the fibre
// answers by calling functions of the page.
#include <cstdlib>
#include <map>
#include <string>
#include <thread>

#include "base/web/page.h"
#include "edge_client/api/edge.h"
#include "edge_client/api/splitcompute.h"

extern "C" {
#define PAGE(name) __attribute__((import_module("page"), import_name(name)))
PAGE("opened") void page_opened(sc_edge* edge, const char* error);
PAGE("status") void page_status(int id, int status);
PAGE("event") void page_event(int id, const char* json, size_t size);
PAGE("ended") void page_ended(int id);
#undef PAGE
#define EXPORTED(name) __attribute__((export_name(name)))
}

namespace {

std::map<int, sc_answer*> running;  // keyed by the page's number

void answer(int id, sc_answer* asked) {
  page_status(id, sc_status(asked));
  size_t size = 0;
  while (const char* const json = sc_next(asked, &size)) page_event(id, json, size);
  running.erase(id);
  sc_free(asked);
  page_ended(id);
}

}  // namespace

extern "C" {

// Memory for the page's arguments, which it frees.
EXPORTED("web_take") void* web_take(size_t bytes) { return std::malloc(bytes); }
EXPORTED("web_give") void web_give(void* at) { std::free(at); }

EXPORTED("web_open") void web_open(const char* options) {
  std::thread([options = std::string(options)] {
    char error[1024] = "";
    split::edge::hear_log(split::page::say);
    sc_edge* const edge = sc_open(options.c_str(), error, sizeof error);
    page_opened(edge, error);
  }).detach();
}

EXPORTED("web_ask")
void web_ask(int id, sc_edge* edge, const char* method, const char* path, const char* body,
             size_t size) {
  sc_answer* const asked = sc_ask(edge, method, path, body, size);
  running[id] = asked;
  std::thread([id, asked] { answer(id, asked); }).detach();
}

EXPORTED("web_cancel") void web_cancel(int id) {
  if (const auto one = running.find(id); one != running.end()) sc_cancel(one->second);
}

}  // extern "C"
