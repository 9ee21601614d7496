// Converts messages of ctnetlink from and to bytes.
#include <cstring>
#include <optional>
#include <vector>

#include "codec/message_decoder.h"
#include "conntrack/dump.h"
#include "conntrack/filter.h"
#include "conntrack/requests.h"
#include "conntrack/socket.h"
#include "conntrack/table.h"
#include "js/conntrack_piece.h"
#include "js/conntrack_values.h"
#include "js/exports.h"
#include "js/reader.h"
#include "messages.h"

namespace nftp {

namespace {

// conntrackDecode(filter, datagram): decodes a datagram like a dump with this filter.
Napi::Value Decode(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const ConntrackFilter filter = ReadFilter(env, info[0]);
  const ByteView view = ReadBytes(env, info[1], Where(std::string("bytes")));
  // Aligned like the kernel's buffers.
  const std::vector<uint8_t> bytes(view.data, view.data + view.length);
  ConntrackPieceBuilder builder;
  ConntrackReading reading;
  const bool more = reading.Read(bytes.data(), bytes.size(), filter,
                                 [&](const ConntrackRecord& record) { builder.Add(record, nullptr); });
  return ToJs(env, builder.Take(!more, reading));
}

// conntrackOpenError(message): the error of opening if this NLMSG_ERROR is the kernel's answer.
Napi::Value OpenError(const Napi::CallbackInfo& info) {
  const ByteView view = ReadBytes(info.Env(), info[0], Where(std::string("bytes")));
  std::optional<Failure> failure;
  ForEachMessage(view.data, view.length, [&](const nlmsghdr* message) {
    failure = ConntrackOpenFailure(ConntrackFailure(DecodeError(message).error));
  });
  if (!failure) throw Failure::Invalid("expected a message");
  return ErrorToJs(info.Env(), *failure, "open").Value();
}

// conntrackEncode(filter, records): the requests that look up, delete, create and change each record, and the one that
// dumps the filter.
Napi::Value Encode(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const ConntrackFilter filter = ReadFilter(env, info[0]);
  ConntrackRequests requests;
  uint32_t seq = 0;
  requests.Dump(filter.common(), false, ++seq);
  for (const ConntrackRecord& record : ReadRecords(env, info[1], sizeof(ConntrackRecord), "records")) {
    requests.Get(record, ++seq);
    requests.Delete(record, 0, ++seq);
    requests.Create(record, ++seq);
    requests.Change(record, {record.timeout, record.mark, UINT32_MAX}, ++seq);
  }
  Napi::Uint8Array bytes = Napi::Uint8Array::New(env, requests.size());
  std::memcpy(bytes.Data(), requests.data(), requests.size());
  return bytes;
}

}  // namespace

void AddConntrackCodec(Napi::Object exports) {
  Export(exports, {{"conntrackDecode", Guarded<Decode>},
                   {"conntrackOpenError", Guarded<OpenError>},
                   {"conntrackEncode", Guarded<Encode>}});
}

}  // namespace nftp
