// C++ exceptions on WebAssembly's own: Debian's libc++abi was built without them and has only
// stubs, all of which must be replaced here, as they would clash otherwise. Implements the Itanium
// C++ ABI, and that of clang for WebAssembly, which asks _Unwind_CallPersonality() at a landing pad
// which of its handlers the exception is for. There is one thread; fibres exchange its state.
#include "base/web/exceptions.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <typeinfo>
#include <utility>

namespace {

using Destroy = void* (*)(void*);  // a destructor returns its object in this ABI

// Precedes the thrown object; or stands alone, for one that a std::exception_ptr throws again: its
// object may be in handlers of several fibres at once.
struct alignas(16) Exception {
  std::type_info* type;
  Destroy destroy;
  int handlers;         // running ones; negative once one of them throws it again
  int holders;          // the throw, and each std::exception_ptr
  Exception* outer;     // exception whose handler threw this one
  void* adjusted;       // the object as the handler's type
  Exception* original;  // holds the object; null: this
  uint32_t unwind[3];   // an address that WebAssembly carries; unused
};
static_assert(sizeof(Exception) % 16 == 0);

Exception* of_object(void* object) { return static_cast<Exception*>(object) - 1; }
Exception* of_unwind(void* unwind) {
  return reinterpret_cast<Exception*>(static_cast<char*>(unwind) - offsetof(Exception, unwind));
}
Exception* original_of(Exception* exception) {
  return exception->original != nullptr ? exception->original : exception;
}
void* object_of(Exception* exception) { return original_of(exception) + 1; }

// libc++abi's type_info: whether a handler's type takes an object, and where that is as this type.
struct Catching : std::type_info {
  virtual void unused1() const;
  virtual void unused2() const;
  virtual bool can_catch(const Catching* thrown, void*& object) const = 0;
};

split::fibres::ExceptionState now;

Exception* caught() { return static_cast<Exception*>(now.caught); }

// Reads numbers of the handlers' tables, in LEB128.
class Table {
 public:
  explicit Table(const uint8_t* at) : at_(at) {}
  const uint8_t* at() const { return at_; }
  uint8_t byte() { return *at_++; }
  uintptr_t number() { return bits().value; }
  intptr_t signed_number() {
    const Bits read = bits();
    const bool negative = (read.last & 0x40) != 0 && read.count < 32;
    return static_cast<intptr_t>(negative ? read.value | ~uintptr_t{0} << read.count : read.value);
  }

 private:
  struct Bits {
    uintptr_t value;
    unsigned count;
    uint8_t last;
  };
  Bits bits() {
    Bits read{};
    do {
      read.last = byte();
      read.value |= static_cast<uintptr_t>(read.last & 0x7f) << read.count;
      read.count += 7;
    } while ((read.last & 0x80) != 0);
    return read;
  }
  const uint8_t* at_;
};

// Returns the number of the handler that takes the exception in a chain of actions; 0: none.
uintptr_t handler_in(const uint8_t* action, const uint8_t* types, Exception* exception) {
  for (;;) {
    Table table(action);
    const intptr_t type = table.signed_number();
    const uint8_t* const next_at = table.at();
    const intptr_t next = table.signed_number();
    if (type < 0) std::abort();  // an exception specification: no C++ since 2017
    if (type > 0) {
      const auto* const wanted = reinterpret_cast<const Catching* const*>(types)[-type];
      void* object = object_of(exception);
      if (wanted == nullptr ||
          wanted->can_catch(static_cast<const Catching*>(exception->type), object)) {
        exception->adjusted = object;
        return static_cast<uintptr_t>(type);
      }
    }
    if (next == 0) return 0;
    action = next_at + next;
  }
}

Exception* allocated(size_t bytes) {
  void* const memory = std::calloc(1, sizeof(Exception) + bytes);
  if (memory == nullptr) std::abort();
  return static_cast<Exception*>(memory);
}

void let_go(Exception* exception) {
  if (--exception->holders > 0) return;
  if (exception->original != nullptr) {
    let_go(exception->original);
  } else if (exception->destroy != nullptr) {
    exception->destroy(object_of(exception));
  }
  std::free(exception);
}

[[noreturn]] void raise(Exception* exception) {
  ++now.uncaught;
  __builtin_wasm_throw(0, exception->unwind);
}

}  // namespace

namespace split::fibres {
ExceptionState exchange_exceptions(const ExceptionState& state) {
  return std::exchange(now, state);
}
}  // namespace split::fibres

extern "C" {

// Filled by a landing pad, apart from the selector.
struct LandingPad {
  uintptr_t index;
  const uint8_t* lsda;
  uintptr_t selector;
};
LandingPad __wasm_lpad_context;

int _Unwind_CallPersonality(void* unwind) {
  constexpr uint8_t kNone = 0xff;
  LandingPad& pad = __wasm_lpad_context;
  pad.selector = 0;
  if (pad.lsda == nullptr) return 0;
  Table head(pad.lsda);
  if (head.byte() != kNone) std::abort();  // start of the landing pads
  const uint8_t* types = nullptr;
  if (head.byte() != kNone) {
    const uintptr_t offset = head.number();
    types = head.at() + offset;
  }
  head.byte();  // encoding of the sites
  const uintptr_t bytes = head.number();
  const uint8_t* const actions = head.at() + bytes;
  Table sites(head.at());
  for (uintptr_t i = 0; sites.at() < actions; ++i) {
    sites.number();  // the landing pad, whose number is its index here
    const uintptr_t action = sites.number();
    if (i != pad.index) continue;
    if (action > 0) pad.selector = handler_in(actions + action - 1, types, of_unwind(unwind));
    return 0;
  }
  return 0;
}
int __gxx_personality_wasm0(...) { return 0; }  // named by each function with a handler
void _Unwind_DeleteException(void*) {}

void* __cxa_allocate_exception(size_t bytes) noexcept { return object_of(allocated(bytes)); }
void __cxa_free_exception(void* object) noexcept { std::free(of_object(object)); }

// Renamed here: the library's header declares it with a type of its own.
void* init_primary(void* object, std::type_info* type, Destroy destroy) noexcept
    __asm__("__cxa_init_primary_exception");
void* init_primary(void* object, std::type_info* type, Destroy destroy) noexcept {
  Exception* const exception = of_object(object);
  exception->type = type;
  exception->destroy = destroy;
  return exception;
}
[[noreturn]] void __cxa_throw(void* object, std::type_info* type, Destroy destroy) {
  init_primary(object, type, destroy);
  of_object(object)->holders = 1;
  raise(of_object(object));
}

void* __cxa_get_exception_ptr(void* unwind) noexcept { return of_unwind(unwind)->adjusted; }
void* __cxa_begin_catch(void* unwind) noexcept {
  Exception* const exception = of_unwind(unwind);
  exception->handlers = (exception->handlers < 0 ? -exception->handlers : exception->handlers) + 1;
  if (exception != caught()) {
    exception->outer = caught();
    now.caught = exception;
  }
  --now.uncaught;
  return exception->adjusted != nullptr ? exception->adjusted : object_of(exception);
}
void __cxa_end_catch() {
  Exception* const exception = caught();
  if (exception == nullptr) return;
  const bool thrown_again = exception->handlers < 0;
  exception->handlers += thrown_again ? 1 : -1;
  if (exception->handlers != 0) return;
  now.caught = exception->outer;
  if (!thrown_again) let_go(exception);
}
[[noreturn]] void __cxa_rethrow() {
  Exception* const exception = caught();
  if (exception == nullptr) std::terminate();
  exception->handlers = -exception->handlers;
  raise(exception);
}

// Parts of std::exception_ptr.
void* __cxa_current_primary_exception() noexcept {
  Exception* const exception = caught();
  if (exception == nullptr) return nullptr;
  ++original_of(exception)->holders;
  return object_of(exception);
}
void __cxa_increment_exception_refcount(void* object) noexcept {
  if (object != nullptr) ++of_object(object)->holders;
}
void __cxa_decrement_exception_refcount(void* object) noexcept {
  if (object != nullptr) let_go(of_object(object));
}
[[noreturn]] void __cxa_rethrow_primary_exception(void* object) {
  Exception* const exception = allocated(0);
  exception->original = of_object(object);
  exception->type = exception->original->type;
  exception->holders = 1;
  ++exception->original->holders;
  raise(exception);
}

bool __cxa_uncaught_exception() noexcept { return now.uncaught > 0; }
unsigned __cxa_uncaught_exceptions() noexcept { return now.uncaught; }

// Destructors of static objects never run: the worker ends with its memory.
int __cxa_thread_atexit(void*, void*, void*) noexcept { return 0; }

}  // extern "C"
