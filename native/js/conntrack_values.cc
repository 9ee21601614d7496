#include "js/conntrack_values.h"

#include <cstring>
#include <string>

#include "js/conntrack.h"
#include "js/handle.h"
#include "js/reader.h"
#include "js/values.h"

namespace nftp {

namespace {

// Maximum number of entries that one call deletes; some 100 MB.
constexpr size_t kMaxKeys = 1 << 20;

}  // namespace

ConntrackTablePtr TableOf(const Napi::CallbackInfo& info) {
  return Unwrap<ConntrackTable>(info.Env(), info[0], kConntrackTableTag, "conntrack table");
}

ConntrackFilter ReadFilter(Napi::Env env, napi_value value) {
  const ByteView view = ReadBytes(env, value, Where(std::string("filter")));
  return ConntrackFilter(view.data, view.length);
}

ConntrackRecords ReadRecords(Napi::Env env, napi_value value, size_t stride, const char* what) {
  const ByteView view = ReadBytes(env, value, Where(std::string(what)));
  if (view.length % stride != 0 || view.length / stride > kMaxKeys) {
    throw Failure::Invalid(std::string(what) + ": not a list of records");
  }
  ConntrackRecords records(view.length / stride);
  for (size_t i = 0; i < records.size(); ++i) std::memcpy(&records[i], view.data + i * stride, stride);
  return records;
}

Napi::Number Number(Napi::Env env, uint64_t value) { return Napi::Number::New(env, static_cast<double>(value)); }

Napi::Object BlockToJs(Napi::Env env, const ConntrackBlock& block) {
  Napi::Uint8Array bytes = Napi::Uint8Array::New(env, block.bytes.size());
  if (!block.bytes.empty()) std::memcpy(bytes.Data(), block.bytes.data(), block.bytes.size());
  Napi::Object object = Napi::Object::New(env);
  object.Set("stride", Number(env, block.stride));
  object.Set("bytes", bytes);
  return object;
}

Napi::Array BlocksToJs(Napi::Env env, const std::vector<ConntrackBlock>& blocks) {
  Napi::Array array = Napi::Array::New(env, blocks.size());
  for (uint32_t i = 0; i < blocks.size(); ++i) {
    const Napi::HandleScope scope(env);
    array.Set(i, BlockToJs(env, blocks[i]));
  }
  return array;
}

Napi::Array RecordsToJs(Napi::Env env, const ConntrackRecords& records) {
  ConntrackPacker packer;
  for (const ConntrackRecord& record : records) packer.Add(record);
  return BlocksToJs(env, packer.Take());
}

}  // namespace nftp
