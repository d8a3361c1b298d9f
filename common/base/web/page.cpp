#include "base/web/page.h"

#include <cstddef>
#include <cstdint>

#include "base/log.h"

extern "C" {
__attribute__((import_module("page"), import_name("say"))) void page_say(const char* line,
                                                                         size_t size);
__attribute__((import_module("page"), import_name("fail"))) void page_fail(const char* line,
                                                                           size_t size);
// Debian's compiler runtime refers to these where it was built with stack protection.
uintptr_t __stack_chk_guard = 0x5350'4c49;
[[noreturn]] void __stack_chk_fail() { split::page::fail("a stack was overrun"); }
}

namespace split::page {

void fail(std::string_view line) {
  page_fail(line.data(), line.size());
  __builtin_trap();
}
void say(std::string_view line) { page_say(line.data(), line.size()); }

}  // namespace split::page
