// An addon that returns the number of malloc's bytes in use in this process, in all threads.
#include <malloc.h>
#include <napi.h>

namespace {

Napi::Value InUse(const Napi::CallbackInfo& info) {
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
  const struct mallinfo2 usage = mallinfo2();
  return Napi::Number::New(info.Env(), static_cast<double>(usage.uordblks + usage.hblkhd));
#else
  return info.Env().Undefined();
#endif
}

Napi::Object Init(Napi::Env env, Napi::Object exports) {
  exports.Set("inUse", Napi::Function::New(env, InUse));
  return exports;
}

}  // namespace

NODE_API_MODULE(malloc_usage, Init)
