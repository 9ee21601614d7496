// The addon's functions for events of directories, inotify(7).
#include <sys/inotify.h>
#include <unistd.h>
#include <uv.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "codec/failure.h"
#include "js/exports.h"
#include "js/values.h"
#include "socket/socket.h"

namespace nftp {

namespace {

constexpr napi_type_tag kInotifyTag = {0x6e66742d70726f78, 0x696e6f7469667900};

// Bytes per read: some 1,000 events with short names, or 120 with the longest. Further events wait.
constexpr size_t kReadBytes = 32768;
static_assert(kReadBytes >= sizeof(inotify_event) + NAME_MAX + 1, "inotify(7) refuses to read less than one event");

// An inotify instance on the environment's event loop, without a separate thread. Main thread only.
class Inotify {
 public:
  static std::shared_ptr<Inotify> Open(Napi::Env env, Napi::Function ready) {
    uv_loop_s* loop = nullptr;
    Check(env, napi_get_uv_event_loop(env, &loop));
    std::shared_ptr<Inotify> opened(new Inotify(env, ready));
    const int failed = uv_poll_init(loop, &opened->poll_, opened->fd_.get());
    if (failed != 0) throw Failure::System("uv_poll_init", -failed);
    opened->poll_.data = opened.get();
    // The loop refers to poll_ until uv_close has finished.
    opened->self_ = opened;
    if (napi_add_async_cleanup_hook(env, OnEnvironmentEnd, opened.get(), &opened->hook_) != napi_ok) opened->Close();
    return opened;
  }

  ~Inotify() = default;
  Inotify(const Inotify&) = delete;
  Inotify& operator=(const Inotify&) = delete;

  // Returns the watch descriptor, or -1 if there is no such directory.
  int Add(const std::string& path, uint32_t mask) const {
    const int watch = inotify_add_watch(fd_.checked(), path.c_str(), mask);
    if (watch >= 0) return watch;
    if (errno == ENOENT || errno == ENOTDIR) return -1;
    throw Failure("system", "inotify_add_watch " + path + ": " + DescribeErrno(errno), errno);
  }

  // The kernel may have removed it already.
  void Remove(int watch) const { static_cast<void>(inotify_rm_watch(fd_.checked(), watch)); }

  // Calls `ready` once when there is something to read.
  void Await() {
    if (closing_) return;
    const int failed = uv_poll_start(&poll_, UV_READABLE, OnReadable);
    if (failed != 0) throw Failure::System("uv_poll_start", -failed);
  }

  Napi::Value Read(Napi::Env env) const {
    alignas(inotify_event) std::array<char, kReadBytes> buffer;
    const ssize_t got = read(fd_.checked(), buffer.data(), buffer.size());
    if (got < 0 && errno != EAGAIN && errno != EINTR) {
      throw Failure("system", "reading inotify events: " + DescribeErrno(errno), errno);
    }
    const Napi::Array events = Napi::Array::New(env);
    uint32_t count = 0;
    for (size_t at = 0; got > 0 && at + sizeof(inotify_event) <= static_cast<size_t>(got);) {
      inotify_event event;
      std::memcpy(&event, &buffer.at(at), sizeof event);
      const char* name = buffer.data() + at + sizeof event;
      const Napi::Object object = Napi::Object::New(env);
      object.Set("watch", Napi::Number::New(env, event.wd));
      object.Set("mask", Napi::Number::New(env, event.mask));
      object.Set("name", Napi::String::New(env, name, strnlen(name, event.len)));
      events.Set(count++, object);
      at += sizeof event + event.len;
    }
    return events;
  }

  void Close() {
    if (closing_) return;
    closing_ = true;
    ready_.Reset();
    uv_close(reinterpret_cast<uv_handle_t*>(&poll_), [](uv_handle_t* handle) {
      auto* closed = static_cast<Inotify*>(handle->data);
      if (closed->hook_ != nullptr) static_cast<void>(napi_remove_async_cleanup_hook(closed->hook_));
      const std::shared_ptr<Inotify> last = std::move(closed->self_);
    });
  }

 private:
  Inotify(Napi::Env env, Napi::Function ready)
      : env_(env),
        fd_(inotify_init1(IN_CLOEXEC | IN_NONBLOCK)),
        ready_(Napi::Persistent(ready)),
        context_(env, "nft-inotify") {
    if (!fd_.valid()) throw Failure("system", "inotify_init1: " + DescribeErrno(errno), errno);
  }

  static void OnEnvironmentEnd(napi_async_cleanup_hook_handle, void* self) { static_cast<Inotify*>(self)->Close(); }

  static void OnReadable(uv_poll_t* poll, int, int) {
    static_cast<void>(uv_poll_stop(poll));
    // The callback may close it.
    const std::shared_ptr<Inotify> self = static_cast<Inotify*>(poll->data)->self_;
    const Napi::HandleScope scope(self->env_);
    try {
      self->ready_.MakeCallback(self->env_.Global(), {}, self->context_);
    } catch (const Napi::Error& error) {
      static_cast<void>(napi_fatal_exception(self->env_, error.Value()));
    }
  }

  const Napi::Env env_;
  const Fd fd_;
  Napi::FunctionReference ready_;
  const Napi::AsyncContext context_;
  uv_poll_t poll_ = {};
  napi_async_cleanup_hook_handle hook_ = nullptr;
  bool closing_ = false;
  std::shared_ptr<Inotify> self_;
};

std::shared_ptr<Inotify> InotifyOf(const Napi::CallbackInfo& info) {
  return Unwrap<Inotify>(info.Env(), info[0], kInotifyTag, "directory watcher");
}

Napi::Value Open(const Napi::CallbackInfo& info) {
  if (!info[0].IsFunction()) throw Failure::Invalid("callback: expected a function");
  return Wrap(info.Env(), Inotify::Open(info.Env(), info[0].As<Napi::Function>()), kInotifyTag);
}

Napi::Value Add(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const std::string path = ReadText(env, info[1], PATH_MAX - 1, Where(std::string("path")));
  const uint32_t mask = ReadU32(env, info[2], Where(std::string("mask")));
  const int watch = InotifyOf(info)->Add(path, mask);
  return watch < 0 ? env.Undefined() : Napi::Number::New(env, watch);
}

Napi::Value Remove(const Napi::CallbackInfo& info) {
  const double watch = ReadInteger(info.Env(), info[1], 0, INT_MAX, Where(std::string("watch")));
  InotifyOf(info)->Remove(static_cast<int>(watch));
  return info.Env().Undefined();
}

Napi::Value Await(const Napi::CallbackInfo& info) {
  InotifyOf(info)->Await();
  return info.Env().Undefined();
}

Napi::Value Read(const Napi::CallbackInfo& info) { return InotifyOf(info)->Read(info.Env()); }

Napi::Value Close(const Napi::CallbackInfo& info) {
  InotifyOf(info)->Close();
  Release<Inotify>(info, kInotifyTag, "directory watcher");
  return info.Env().Undefined();
}

}  // namespace

void AddInotify(Napi::Object exports) {
  Export(exports, {{"inotifyOpen", Guarded<Open>},
                   {"inotifyAdd", Guarded<Add>},
                   {"inotifyRemove", Guarded<Remove>},
                   {"inotifyAwait", Guarded<Await>},
                   {"inotifyRead", Guarded<Read>},
                   {"inotifyClose", Guarded<Close>}});
}

}  // namespace nftp
