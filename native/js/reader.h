// Converts JS values to structs and checks each: type, range, size, depth. Main thread only. Throws Failure "invalid"
// that names the operation and the field, and Napi::Error if JS itself threw (a getter).
#pragma once

#include <napi.h>

#include <optional>
#include <string>
#include <vector>

#include "codec/batch.h"
#include "codec/model.h"
#include "socket/connection.h"
#include "socket/monitor.h"

namespace nftp {

// The path of a value, for messages: "exprs[2].data". Lives on the stack of the reader.
class Where {
 public:
  explicit Where(std::string root) : root_(std::move(root)) {}
  Where(const Where& parent, const char* field) : parent_(&parent), field_(field) {}
  Where(const Where& parent, uint32_t index) : parent_(&parent), index_(index) {}

  std::string Text() const;
  [[noreturn]] void Fail(const std::string& what) const;

 private:
  const Where* parent_ = nullptr;
  std::string root_;
  const char* field_ = nullptr;
  uint32_t index_ = 0;
};

// The parts of an operation with records that may be long. They are read piece by piece.
struct LongParts {
  napi_value bytes = nullptr;
  napi_value verdicts = nullptr;
  uint32_t verdict_count = 0;
};

// Reads one operation without its long parts, which go to `parts`.
Op ReadOp(Napi::Env env, napi_value value, uint32_t index, LongParts* parts);
// Appends the verdicts from `from` to `to` of LongParts::verdicts. `index` is that of the operation.
void ReadVerdicts(Napi::Env env, napi_value verdicts, uint32_t from, uint32_t to, uint32_t index, ElementsOp* op);
// The current bytes of a Uint8Array; the pointer is valid until JS runs again.
struct ByteView {
  const uint8_t* data = nullptr;
  size_t length = 0;
};
ByteView ReadBytes(Napi::Env env, napi_value value, const Where& where);

BatchOptions ReadBatchOptions(Napi::Env env, napi_value value);
ConnectionOptions ReadConnectionOptions(Napi::Env env, napi_value value);
MonitorOptions ReadMonitorOptions(Napi::Env env, napi_value value);
TableRef ReadTableRef(Napi::Env env, napi_value value);
SetInfo ReadSetInfo(Napi::Env env, napi_value value);
std::optional<std::string> ReadOptionalName(Napi::Env env, napi_value value, const char* what);
std::optional<std::vector<std::string>> ReadOptionalNames(Napi::Env env, napi_value value, const char* what);
// Returns 0 (every family) for undefined.
uint8_t ReadOptionalFamily(Napi::Env env, napi_value value);

}  // namespace nftp
