#include "js/conntrack_values.h"

#include <cstring>
#include <string>

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

std::vector<ConntrackBlock> Packed(const ConntrackRecords& records) {
  ConntrackPacker packer;
  for (const ConntrackRecord& record : records) packer.Add(record);
  return packer.Take();
}

Napi::Value ToJs(Napi::Env env, const ConntrackBlock& block) {
  const Napi::Object object = Napi::Object::New(env);
  Put(object, "stride", static_cast<double>(block.stride));
  Put(object, "bytes", block.bytes);
  return object;
}

Napi::Value ToJs(Napi::Env env, const ConntrackTotals& totals) {
  const Napi::Object object = Napi::Object::New(env);
  Put(object, "entries", totals.entries);
  Put(object, "max", totals.max);
  return object;
}

Napi::Value ToJs(Napi::Env env, const ConntrackCounts& counts) {
  const Napi::Object object = Napi::Object::New(env);
  Put(object, "found", static_cast<double>(counts.found));
  Put(object, "invalid", static_cast<double>(counts.invalid));
  Put(object, "insert", static_cast<double>(counts.insert));
  Put(object, "insertFailed", static_cast<double>(counts.insert_failed));
  Put(object, "drop", static_cast<double>(counts.drop));
  Put(object, "earlyDrop", static_cast<double>(counts.early_drop));
  Put(object, "error", static_cast<double>(counts.error));
  return object;
}

Napi::Value ToJs(Napi::Env env, const ConntrackDeletion& deletion) {
  Napi::Object object = Napi::Object::New(env);
  Put(object, "deleted", static_cast<double>(deletion.deleted));
  Put(object, "absent", static_cast<double>(deletion.absent));
  object.Set("interrupted", deletion.interrupted);
  Put(object, "absentAt", deletion.absent_at);
  return object;
}

}  // namespace nftp
