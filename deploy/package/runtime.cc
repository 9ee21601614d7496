// libc++ and libc++abi without streams, locales, files and regular expressions, in one unit, because most of each
// source is headers. If the addon begins to use another part of the library, it does not load, and test:package names
// the missing functions. The sources are in the compiler's directory (prebuild.ts).

// Two sources define these before their first header, which another source has read here.
#define _LIBCPP_ERROR_CATEGORY_DEFINE_LEGACY_INLINE_FUNCTIONS
#define _LIBCPP_SHARED_PTR_DEFINE_LEGACY_INLINE_FUNCTIONS

#include "libcxx/src/chrono.cpp"
#include "libcxx/src/condition_variable.cpp"
#include "libcxx/src/exception.cpp"
#include "libcxx/src/functional.cpp"
#include "libcxx/src/future.cpp"
#include "libcxx/src/hash.cpp"
#include "libcxx/src/memory.cpp"
#include "libcxx/src/mutex.cpp"
#include "libcxx/src/new_handler.cpp"
#include "libcxx/src/optional.cpp"
#include "libcxx/src/stdexcept.cpp"
#include "libcxx/src/string.cpp"
#include "libcxx/src/system_error.cpp"
#include "libcxx/src/thread.cpp"
#include "libcxx/src/typeinfo.cpp"
#include "libcxx/src/variant.cpp"
#include "libcxx/src/verbose_abort.cpp"
#include "libcxxabi/src/abort_message.cpp"
#include "libcxxabi/src/cxa_aux_runtime.cpp"
#include "libcxxabi/src/cxa_default_handlers.cpp"
#include "libcxxabi/src/cxa_exception.cpp"
#include "libcxxabi/src/cxa_exception_storage.cpp"
#include "libcxxabi/src/cxa_guard.cpp"
#include "libcxxabi/src/cxa_handlers.cpp"
#include "libcxxabi/src/cxa_personality.cpp"
#include "libcxxabi/src/cxa_virtual.cpp"
#include "libcxxabi/src/fallback_malloc.cpp"
#include "libcxxabi/src/private_typeinfo.cpp"
#include "libcxxabi/src/stdlib_exception.cpp"
#include "libcxxabi/src/stdlib_new_delete.cpp"
#include "libcxxabi/src/stdlib_stdexcept.cpp"
#include "libcxxabi/src/stdlib_typeinfo.cpp"
