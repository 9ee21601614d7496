// Reads and checks single JS values. Shared by the readers.
#pragma once

#include <napi.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "js/reader.h"

namespace nftp {

// Throws Napi::Error with the pending JS exception.
void Check(Napi::Env env, napi_status status);

napi_valuetype TypeOf(Napi::Env env, napi_value value);
bool IsAbsent(Napi::Env env, napi_value value);
void WantObject(Napi::Env env, napi_value value, const Where& where);
napi_value Get(Napi::Env env, napi_value object, const char* field);

double ReadInteger(Napi::Env env, napi_value value, double low, double high, const Where& where);
uint32_t ReadU32(Napi::Env env, napi_value value, const Where& where);
uint64_t ReadU64(Napi::Env env, napi_value value, const Where& where);
bool ReadBool(Napi::Env env, napi_value value, const Where& where);
// No NUL, 1..`longest` bytes as UTF-8.
std::string ReadText(Napi::Env env, napi_value value, size_t longest, const Where& where);
Bytes ReadByteCopy(Napi::Env env, napi_value value, size_t longest, const Where& where);
// The numbers of a Uint32Array, each below `end`.
std::vector<uint32_t> ReadIndices(Napi::Env env, napi_value value, uint64_t end, const Where& where);
uint32_t ReadArrayLength(Napi::Env env, napi_value value, uint32_t longest, const Where& where);
napi_value GetElement(Napi::Env env, napi_value array, uint32_t index);

std::optional<uint32_t> OptionalU32(Napi::Env env, napi_value object, const char* field, const Where& where);
std::optional<uint64_t> OptionalU64(Napi::Env env, napi_value object, const char* field, const Where& where);
std::optional<Bytes> OptionalBytes(Napi::Env env, napi_value object, const char* field, size_t longest,
                                   const Where& where);
bool OptionalBool(Napi::Env env, napi_value object, const char* field, const Where& where);
std::string RequiredName(Napi::Env env, napi_value object, const char* field, const Where& where);
uint32_t RequiredU32(Napi::Env env, napi_value object, const char* field, const Where& where);

std::vector<Expr> ReadExprs(Napi::Env env, napi_value value, uint32_t depth, const Where& where);
// The data of a named object of a kind (NFT_OBJECT_*).
Expr ReadObjectData(Napi::Env env, napi_value value, uint32_t type, const Where& where);
Verdict ReadVerdict(Napi::Env env, napi_value value, const Where& where);

}  // namespace nftp
