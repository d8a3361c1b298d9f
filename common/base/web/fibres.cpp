// Fibres over three functions of the page (page/fibres.js): block, the only one that suspends the
// WebAssembly stack, wake, and start. A fibre also switches what WebAssembly does not suspend: its
// stack in memory, the exceptions in its handlers, and its number.
#include "base/web/fibres.h"

#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/resources/fibres.h"
#include "base/web/exceptions.h"
#include "base/web/page.h"

extern "C" {
// Cheaper than a clock of the library, which goes through nanoseconds.
__attribute__((import_module("fibres"), import_name("now"))) double page_now();
}

namespace split::fibres {
namespace {

constexpr size_t kStackBytes = 512 << 10;
// Fills a stack's last 16 KiB. An overrun changes one of these, checked at each switch, before it
// reaches what lies behind.
constexpr uint64_t kGuard = 0x5350'4c49'5421'5350;
constexpr size_t kGuards = 256, kGuardStep = 64;
constexpr size_t kMostSpare = 8;

struct Fibre {
  std::function<void()> run;
  uint64_t number = 0;
  char* stack = nullptr;
};

Fibre* now = nullptr;
uint64_t started = 0;
double turn_began = 0;  // ms of page_now()
std::vector<char*> spare_stacks;

char* take_stack() {
  char* stack = nullptr;
  while (spare_stacks.size() > kMostSpare) {
    std::free(spare_stacks.back());
    spare_stacks.pop_back();
  }
  if (!spare_stacks.empty()) {
    stack = spare_stacks.back();
    spare_stacks.pop_back();
  } else {
    stack = static_cast<char*>(std::aligned_alloc(16, kStackBytes));
  }
  if (stack == nullptr) throw std::bad_alloc();
  for (size_t i = 0; i < kGuards; ++i) std::memcpy(stack + kGuardStep * i, &kGuard, sizeof kGuard);
  return stack;
}

void expect_stack(const Fibre& fibre) {
  for (size_t i = 0; i < kGuards; ++i) {
    if (std::memcmp(fibre.stack + kGuardStep * i, &kGuard, sizeof kGuard) != 0) {
      page::fail("a fibre has overrun its stack");
    }
  }
}

void go_on(Fibre* fibre) {
  now = fibre;
  turn_began = page_now();
}

}  // namespace

extern "C" {

__attribute__((import_module("fibres"), import_name("wake"))) void page_wake(const void* key,
                                                                             int all);
__attribute__((import_module("fibres"), import_name("start"))) void page_start(void* fibre,
                                                                               char* stack_top);

// The stack pointer of the module: a global, set to a fibre's own stack while it runs, and to the
// first stack for the page's calls.
extern void* page_stack;
int block_with_stack(const void* key, double until_ms);
asm(R"(
  .globaltype __stack_pointer, i32
  .functype page_block (i32, f64) -> (i32)
  .import_module page_block, fibres
  .import_name page_block, block
  .functype run_fibre (i32) -> ()

  .globl block_with_stack
  .type block_with_stack, @function
block_with_stack:
  .functype block_with_stack (i32, f64) -> (i32)
  .local i32
  global.get __stack_pointer
  local.set 2
  i32.const 0
  i32.load page_stack
  global.set __stack_pointer
  local.get 0
  local.get 1
  call page_block
  local.get 2
  global.set __stack_pointer
  end_function

  .globl fibre_main
  .type fibre_main, @function
  .export_name fibre_main, fibre_main
fibre_main:
  .functype fibre_main (i32, i32) -> ()
  i32.const 0
  global.get __stack_pointer
  i32.store page_stack
  local.get 1
  global.set __stack_pointer
  local.get 0
  call run_fibre
  i32.const 0
  i32.load page_stack
  global.set __stack_pointer
  end_function
)");

void* page_stack = nullptr;

// Called by fibre_main, which the page calls as a promise.
void run_fibre(void* given) {
  std::unique_ptr<Fibre> fibre(static_cast<Fibre*>(given));
  go_on(fibre.get());
  const ExceptionState outside = exchange_exceptions({});
  fibre->run();
  fibre->run = nullptr;
  exchange_exceptions(outside);
  expect_stack(*fibre);
  now = nullptr;
  spare_stacks.push_back(fibre->stack);  // still in use; freed by the next fibre that starts
}

}  // extern "C"

bool block(const void* key, double until_ms) {
  Fibre* const self = std::exchange(now, nullptr);
  if (self == nullptr) page::fail("something waits that is no fibre");
  expect_stack(*self);
  const ExceptionState mine = exchange_exceptions({});
  const LogNames named = exchange_log_names({});
  const bool woken = block_with_stack(key, until_ms) != 0;
  exchange_log_names(named);
  exchange_exceptions(mine);
  go_on(self);
  return woken;
}

void wake(const void* key, bool all) { page_wake(key, all ? 1 : 0); }

void start(std::function<void()> run) {
  auto fibre = std::make_unique<Fibre>();
  fibre->run = std::move(run);
  fibre->number = ++started;
  fibre->stack = take_stack();
  char* const top = fibre->stack + kStackBytes;
  page_start(fibre.release(), top);
}

uint64_t current() { return now == nullptr ? 0 : now->number; }

void wait_for_wake(const void* key) { block(key); }

void yield() {
  if (now == nullptr || page_now() - turn_began < kTurn.count()) return;
  block(nullptr, 0);  // nobody wakes this key: the page resumes it after the others had their turn
}

}  // namespace split::fibres

namespace std::this_thread {
void yield() { split::fibres::block(nullptr, 0); }
}  // namespace std::this_thread
