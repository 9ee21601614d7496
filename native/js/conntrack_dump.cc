// Dumps of connection tracking, read on a separate thread.
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "conntrack/dump.h"
#include "conntrack/filter.h"
#include "conntrack/prefilter.h"
#include "conntrack/reader.h"
#include "conntrack/table.h"
#include "js/conntrack_piece.h"
#include "js/conntrack_values.h"
#include "js/exports.h"
#include "js/reader.h"
#include "js/values.h"

namespace nftp {

namespace {

constexpr napi_type_tag kDumpTag = {0x6e66742d70726f78, 0x636f6e6e74647564};

// One call of conntrackRead.
struct Read {
  explicit Read(Napi::Env env) : deferred(Napi::Promise::Deferred::New(env)) {}

  // Main thread only.
  void Settle(Napi::Env env) const {
    if (failure) {
      deferred.Reject(ErrorToJs(env, *failure, "dump").Value());
    } else {
      deferred.Resolve(ToJs(env, piece));
    }
  }

  Napi::Promise::Deferred deferred;
  ConntrackPieceBuilder builder;
  ConntrackPiece piece;
  std::optional<Failure> failure;
};

class Reads;

class JsDump : public ConntrackSource, public std::enable_shared_from_this<JsDump> {
 public:
  // Reports finished reads to `reads`.
  JsDump(Reads* reads, ConntrackTablePtr table, const ConntrackFilter& filter,
         std::unique_ptr<ConntrackPrefilter> prefilter)
      : owner_(reads), table_(std::move(table)), dump_(table_->Dump(filter)), prefilter_(std::move(prefilter)) {}

  // Returns true if it must be given turns.
  bool Add(std::unique_ptr<Read> read) {
    const std::lock_guard<std::mutex> lock(mutex_);
    reads_.push_back(std::move(read));
    return reads_.size() == 1;
  }

  bool Turn() override;

 private:
  // Returns true if the read is finished.
  bool Advance(Read* read);

  Reads* const owner_;
  const ConntrackTablePtr table_;
  const std::unique_ptr<ConntrackDump> dump_;
  const std::unique_ptr<ConntrackPrefilter> prefilter_;  // may be null
  std::mutex mutex_;
  std::deque<std::unique_ptr<Read>> reads_;
};

// A finished read.
struct Finished {
  std::unique_ptr<Read> read;
  Reads* reads;
};

void SettleRead(Napi::Env env, Napi::Function, std::nullptr_t*, Finished* finished);
using ToMain = Napi::TypedThreadSafeFunction<std::nullptr_t, Finished, SettleRead>;

// The reads of an environment, stored as its instance data.
class Reads {
 public:
  // Returns the reads of this environment.
  static Reads* Of(Napi::Env env) {
    auto* reads = env.GetInstanceData<Reads>();
    if (reads == nullptr) {
      reads = new Reads(env);
      env.SetInstanceData<Reads>(reads);
    }
    return reads;
  }

  explicit Reads(Napi::Env env) : to_main_(ToMain::New(env, "conntrack dump", 0, 1)) {
    to_main_.Unref(env);
    // Registered after the function's own hook, so it runs before that one: hooks run last in, first out.
    napi_add_env_cleanup_hook(env, OnEnvironmentEnd, this);
  }

  Napi::Value Add(Napi::Env env, const std::shared_ptr<JsDump>& dump) {
    auto read = std::make_unique<Read>(env);
    const Napi::Promise promise = read->deferred.Promise();
    if (running_++ == 0) to_main_.Ref(env);
    if (dump->Add(std::move(read))) reader_.Add(dump);
    return promise;
  }

  // Called on the reader's thread.
  void Deliver(std::unique_ptr<Read> read) {
    auto finished = std::make_unique<Finished>(Finished{std::move(read), this});
    if (to_main_.NonBlockingCall(finished.get()) == napi_ok) static_cast<void>(finished.release());
  }

  void Settled(Napi::Env env) {
    if (--running_ == 0) to_main_.Unref(env);
  }

 private:
  static void OnEnvironmentEnd(void* self) {
    static_cast<Reads*>(self)->reader_.Stop();
    static_cast<Reads*>(self)->to_main_.Release();
  }

  ToMain to_main_;
  size_t running_ = 0;
  ConntrackReader reader_;
};

void SettleRead(Napi::Env env, Napi::Function, std::nullptr_t*, Finished* data) {
  const std::unique_ptr<Finished> finished(data);
  // The environment is ending.
  if (env == nullptr) return;
  const Napi::HandleScope scope(env);
  finished->reads->Settled(env);
  finished->read->Settle(env);
}

bool JsDump::Turn() {
  std::unique_lock<std::mutex> lock(mutex_);
  Read* const read = reads_.front().get();
  lock.unlock();
  const bool over = Advance(read);
  lock.lock();
  if (!over) return true;
  std::unique_ptr<Read> done = std::move(reads_.front());
  reads_.pop_front();
  const bool more = !reads_.empty();
  lock.unlock();
  owner_->Deliver(std::move(done));
  return more;
}

bool JsDump::Advance(Read* read) {
  try {
    if (prefilter_) prefilter_->Prepare();
    dump_->Next([&](const ConntrackRecord& record) { read->builder.Add(record, prefilter_.get()); });
    read->builder.EndDatagram();
    if (!dump_->done() && !read->builder.full()) return false;
    read->piece = read->builder.Take(dump_->done(), dump_->reading());
  } catch (const Failure& failure) {
    read->failure.emplace(failure);
  } catch (const std::exception& error) {
    read->failure.emplace("system", error.what(), 0);
  }
  return true;
}

std::vector<uint8_t> CopyBytes(Napi::Env env, const Napi::Object& object, const char* field, const Where& where) {
  const ByteView view = ReadBytes(env, object.Get(field), Where(where, field));
  return view.length == 0 ? std::vector<uint8_t>() : std::vector<uint8_t>(view.data, view.data + view.length);
}

// Returns null for undefined.
std::unique_ptr<ConntrackPrefilter> ReadPrefilter(Napi::Env env, napi_value value) {
  if (Napi::Value(env, value).IsUndefined()) return nullptr;
  const Where where(std::string("prefilter"));
  WantObject(env, value, where);
  const Napi::Object object(env, value);
  const std::optional<uint32_t> family = OptionalU32(env, value, "family", where);
  return std::make_unique<ConntrackPrefilter>(
      static_cast<int>(family.value_or(0)), CopyBytes(env, object, "destinations", where),
      CopyBytes(env, object, "lists", where), CopyBytes(env, object, "endpoints", where));
}

Napi::Value Dump(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  ConntrackTablePtr table = TableOf(info);
  return Wrap(
      env,
      std::make_shared<JsDump>(Reads::Of(env), std::move(table), ReadFilter(env, info[1]), ReadPrefilter(env, info[2])),
      kDumpTag);
}

Napi::Value ReadPiece(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return Reads::Of(env)->Add(env, Unwrap<JsDump>(env, info[0], kDumpTag, "conntrack dump"));
}

}  // namespace

void AddConntrackDumps(Napi::Object exports) {
  Export(exports, {{"conntrackDump", Guarded<Dump>}, {"conntrackRead", Guarded<ReadPiece>}});
}

}  // namespace nftp
