#include "js/batch.h"

#include <algorithm>

#include "js/reader.h"
#include "js/values.h"

namespace nftp {

namespace {

constexpr uint32_t kMaxOps = 1 << 24;
// Bytes to copy between two checks of the clock.
constexpr size_t kCopyStep = 1 << 20;
// Verdicts to read between two checks of the clock; each takes 1.5 µs.
constexpr uint32_t kVerdictStep = 128;

}  // namespace

JsBatch::JsBatch(Napi::Env env, Napi::Value ops, Napi::Value options)
    : batch_(std::make_shared<Batch>(ReadBatchOptions(env, options))) {
  count_ = ReadArrayLength(env, ops, kMaxOps, Where(std::string("ops")));
  ops_ = Napi::Persistent(ops.As<Napi::Object>());
}

void JsBatch::ReadNext(Napi::Env env) {
  const Napi::HandleScope scope(env);
  LongParts parts;
  op_ = ReadOp(env, GetElement(env, ops_.Value(), next_), next_, &parts);
  if (parts.bytes != nullptr) {
    const auto& body = std::get<ElementsOp>(op_->body);
    sources_.push_back(Source{Napi::Persistent(Napi::Object(env, parts.bytes)), next_,
                              static_cast<size_t>(body.count) * body.layout.stride()});
  }
  if (parts.verdict_count == 0) return Add();
  verdict_count_ = parts.verdict_count;
  verdicts_ = Napi::Persistent(Napi::Object(env, parts.verdicts));
}

void JsBatch::ReadNextVerdicts(Napi::Env env) {
  const Napi::HandleScope scope(env);
  auto& elements = std::get<ElementsOp>(op_->body);
  const auto from = static_cast<uint32_t>(elements.verdicts.size());
  const uint32_t to = std::min(verdict_count_, from + kVerdictStep);
  ReadVerdicts(env, verdicts_.Value(), from, to, next_, &elements);
  if (to < verdict_count_) return;
  verdicts_.Reset();
  Add();
}

void JsBatch::Add() {
  batch_->AddOp(*std::move(op_));
  op_.reset();
  ++next_;
}

void JsBatch::CopyNext(Napi::Env env) {
  const Napi::HandleScope scope(env);
  Source& source = sources_[source_];
  // Look the buffer up each time: JS may have detached or resized it since.
  const ByteView view =
      ReadBytes(env, source.array.Value(), Where("op " + std::to_string(source.op) + ": elements.bytes"));
  if (view.length != source.length) {
    throw Failure::Invalid("op " + std::to_string(source.op) +
                           ": elements.bytes: changed its length during the commit");
  }
  const size_t step = std::min(kCopyStep, source.length - copied_);
  if (step != 0) std::memcpy(batch_->Source() + destination_ + copied_, view.data + copied_, step);
  copied_ += step;
  if (copied_ < source.length) return;
  source.array.Reset();
  destination_ += source.length;
  copied_ = 0;
  ++source_;
}

bool JsBatch::Advance(Napi::Env env, std::chrono::steady_clock::time_point deadline) {
  while (state_ != State::Ready) {
    if (op_) {
      ReadNextVerdicts(env);
    } else if (state_ == State::Reading && next_ < count_) {
      ReadNext(env);
    } else if (state_ == State::Reading) {
      batch_->Reserve();
      ops_.Reset();
      state_ = State::Copying;
    } else if (source_ < sources_.size()) {
      CopyNext(env);
    } else {
      sources_.clear();
      state_ = State::Ready;
    }
    if (std::chrono::steady_clock::now() >= deadline) break;
  }
  return state_ == State::Ready;
}

bool JsBatch::Prepare(Napi::Env env, std::chrono::microseconds budget) {
  if (busy_ || state_ == State::Taken || state_ == State::Broken)
    throw Failure::Invalid("the batch is in use or was already committed");
  busy_ = true;
  try {
    const bool done = Advance(env, std::chrono::steady_clock::now() + budget);
    busy_ = false;
    return done;
  } catch (...) {
    busy_ = false;
    state_ = State::Broken;
    throw;
  }
}

std::shared_ptr<Batch> JsBatch::Take() {
  if (state_ != State::Ready) throw Failure::Invalid("the batch is not prepared, or was already committed");
  state_ = State::Taken;
  return std::move(batch_);
}

}  // namespace nftp
