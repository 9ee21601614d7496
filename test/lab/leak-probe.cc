// An addon for the leak tests alone. It counts malloc's allocated bytes and leaks on demand, so that a test can prove
// that leaks are found.
#include <dlfcn.h>
#include <malloc.h>
#include <node_api.h>

#include <cstddef>
#include <cstdlib>

namespace {

using Counter = size_t (*)();

// Bytes that malloc has allocated and that were not freed. AddressSanitizer has its own malloc and counts itself; the
// bare LeakSanitizer has a malloc that does not count.
size_t Allocated() {
  const auto counter = reinterpret_cast<Counter>(dlsym(RTLD_DEFAULT, "__sanitizer_get_current_allocated_bytes"));
  if (counter != nullptr) return counter();
  const struct mallinfo2 now = mallinfo2();
  return now.uordblks + now.hblkhd;
}

napi_value AllocatedBytes(napi_env env, napi_callback_info) {
  napi_value result = nullptr;
  napi_create_double(env, static_cast<double>(Allocated()), &result);
  return result;
}

// Not inlined, so that the report names it. Its result is dropped on purpose.
__attribute__((noinline)) void* ProbeLeaks(size_t bytes) { return std::malloc(bytes); }

napi_value Leak(napi_env env, napi_callback_info) {
  constexpr size_t kBytes = 1234;
  // More than one: a register or the stack may still hold the last one.
  for (int i = 0; i < 100; ++i) *static_cast<volatile char*>(ProbeLeaks(kBytes)) = 1;
  napi_value result = nullptr;
  napi_get_undefined(env, &result);
  return result;
}

void Add(napi_env env, napi_value exports, const char* name, napi_callback function) {
  napi_value value = nullptr;
  napi_create_function(env, name, NAPI_AUTO_LENGTH, function, nullptr, &value);
  napi_set_named_property(env, exports, name, value);
}

}  // namespace

NAPI_MODULE_INIT() {
  Add(env, exports, "allocatedBytes", AllocatedBytes);
  Add(env, exports, "leak", Leak);
  return exports;
}
