// Converts batches and messages of nf_tables from and to bytes.
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "codec/message_decoder.h"
#include "js/batch.h"
#include "js/exports.h"
#include "js/reader.h"
#include "js/writer.h"
#include "messages.h"

namespace nftp {

namespace {

std::shared_ptr<Batch> EncodedBatch(Napi::Env env, Napi::Value ops, Napi::Value options) {
  JsBatch prepared(env, ops, options);
  while (!prepared.Prepare(env, std::chrono::hours(1))) {
  }
  std::shared_ptr<Batch> batch = prepared.Take();
  if (!batch->Encode(1, LargestBatch())) throw BatchTooLarge();
  return batch;
}

Napi::Value EncodeBatch(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const std::shared_ptr<Batch> batch = EncodedBatch(env, info[0], info[1]);
  Napi::Uint8Array bytes = Napi::Uint8Array::New(env, batch->size());
  std::memcpy(bytes.Data(), batch->data(), batch->size());
  return bytes;
}

Napi::Value DecodeMessages(const Napi::CallbackInfo& info) {
  const ByteView view = ReadBytes(info.Env(), info[0], Where(std::string("bytes")));
  return MessagesToJs(info.Env(), view.data, view.length);
}

// decodeElements(set, bytes): the elements of a buffer of messages, as a dump collects them.
Napi::Value DecodeElements(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  ElementCollector collector(ReadSetInfo(env, info[0]));
  const ByteView view = ReadBytes(env, info[1], Where(std::string("bytes")));
  ForEachMessage(view.data, view.length, [&](const nlmsghdr* message) { collector.Add(message); });
  return ElementsToJs(env, std::move(collector));
}

// faultsOf(ops, bytes): the faults of a batch, whose first sequence number is 1, from a buffer of error replies.
Napi::Value FaultsOf(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const std::shared_ptr<Batch> batch = EncodedBatch(env, info[0], env.Undefined());
  const ByteView view = ReadBytes(env, info[1], Where(std::string("bytes")));
  std::vector<Fault> faults;
  std::string described;
  ForEachMessage(view.data, view.length, [&](const nlmsghdr* message) {
    const ErrorReply reply = DecodeError(message);
    const std::optional<Fault> fault = batch->FaultOf(reply);
    if (!fault) return;
    described += batch->Describe(*fault, reply.offset) + "\n";
    faults.push_back(*fault);
  });
  return ErrorToJs(env, Failure("refused", described, 0, std::move(faults)), "faultsOf").Value();
}

}  // namespace

void AddCodec(Napi::Object exports) {
  Export(exports, {{"encodeBatch", Guarded<EncodeBatch>},
                   {"decodeMessages", Guarded<DecodeMessages>},
                   {"decodeElements", Guarded<DecodeElements>},
                   {"faultsOf", Guarded<FaultsOf>}});
}

}  // namespace nftp
