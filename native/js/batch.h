// A batch while JS hands it over: in slices, so that the event loop is never blocked for long.
#pragma once

#include <napi.h>

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "codec/batch.h"

namespace nftp {

class JsBatch {
 public:
  // Keeps a reference to the array of operations until they are all read.
  JsBatch(Napi::Env env, Napi::Value ops, Napi::Value options);

  // Reads operations and copies element bytes for about `budget`; it may stop within an operation. Returns true when
  // nothing is left to do. Throws Failure and Napi::Error, after which the batch is unusable.
  bool Prepare(Napi::Env env, std::chrono::microseconds budget);
  bool prepared() const { return state_ == State::Ready; }
  // Hands over the batch, once.
  std::shared_ptr<Batch> Take();

 private:
  enum class State { Reading, Copying, Ready, Taken, Broken };
  struct Source {
    Napi::ObjectReference array;
    uint32_t op;
    size_t length;
  };
  bool Advance(Napi::Env env, std::chrono::steady_clock::time_point deadline);
  void ReadNext(Napi::Env env);
  void ReadNextVerdicts(Napi::Env env);
  void Add();
  void CopyNext(Napi::Env env);

  State state_ = State::Reading;
  bool busy_ = false;  // a getter of an operation may call us
  Napi::ObjectReference ops_;
  uint32_t count_ = 0;
  uint32_t next_ = 0;
  // The operation next_, while its verdicts are read.
  std::optional<Op> op_;
  Napi::ObjectReference verdicts_;
  uint32_t verdict_count_ = 0;
  std::vector<Source> sources_;
  size_t source_ = 0;
  size_t copied_ = 0;       // bytes of the current source
  size_t destination_ = 0;  // bytes of all earlier sources
  std::shared_ptr<Batch> batch_;
};

}  // namespace nftp
