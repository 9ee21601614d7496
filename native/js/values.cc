#include "js/values.h"

#include <cmath>
#include <utility>

#include "codec/op_codec.h"

namespace nftp {

std::string Where::Text() const {
  if (parent_ == nullptr) return root_;
  const std::string parent = parent_->Text();
  if (field_ == nullptr) return parent + "[" + std::to_string(index_) + "]";
  // The root ends in ": ".
  return parent_->parent_ == nullptr ? parent + field_ : parent + "." + field_;
}

void Where::Fail(const std::string& what) const {
  // A root such as "op 3: " brings its own colon.
  const bool ends = parent_ == nullptr && root_.size() >= 2 && root_.compare(root_.size() - 2, 2, ": ") == 0;
  throw Failure::Invalid(Text() + (ends ? "" : ": ") + what);
}

void Check(Napi::Env env, napi_status status) {
  if (status != napi_ok) throw Napi::Error::New(env);
}

napi_valuetype TypeOf(Napi::Env env, napi_value value) {
  napi_valuetype type;
  Check(env, napi_typeof(env, value, &type));
  return type;
}

bool IsAbsent(Napi::Env env, napi_value value) { return TypeOf(env, value) == napi_undefined; }

void WantObject(Napi::Env env, napi_value value, const Where& where) {
  if (TypeOf(env, value) != napi_object) where.Fail("expected an object");
}

napi_value Get(Napi::Env env, napi_value object, const char* field) {
  napi_value value;
  Check(env, napi_get_named_property(env, object, field, &value));
  return value;
}

double ReadInteger(Napi::Env env, napi_value value, double low, double high, const Where& where) {
  double number = 0;
  if (TypeOf(env, value) != napi_number) where.Fail("expected a number");
  Check(env, napi_get_value_double(env, value, &number));
  if (!(number >= low && number <= high) || std::floor(number) != number) {
    where.Fail("expected an integer from " + std::to_string(static_cast<int64_t>(low)) + " to " +
               std::to_string(static_cast<int64_t>(high)));
  }
  return number;
}

uint32_t ReadU32(Napi::Env env, napi_value value, const Where& where) {
  return static_cast<uint32_t>(ReadInteger(env, value, 0, UINT32_MAX, where));
}

uint64_t ReadU64(Napi::Env env, napi_value value, const Where& where) {
  uint64_t number = 0;
  bool lossless = false;
  if (TypeOf(env, value) != napi_bigint) where.Fail("expected a bigint");
  Check(env, napi_get_value_bigint_uint64(env, value, &number, &lossless));
  if (!lossless) where.Fail("expected a bigint from 0 to 2^64 - 1");
  return number;
}

bool ReadBool(Napi::Env env, napi_value value, const Where& where) {
  bool result = false;
  if (TypeOf(env, value) != napi_boolean) where.Fail("expected a boolean");
  Check(env, napi_get_value_bool(env, value, &result));
  return result;
}

std::string ReadText(Napi::Env env, napi_value value, size_t longest, const Where& where) {
  if (TypeOf(env, value) != napi_string) where.Fail("expected a string");
  size_t length = 0;
  Check(env, napi_get_value_string_utf8(env, value, nullptr, 0, &length));
  if (length == 0) where.Fail("expected a non-empty string");
  if (length > longest) where.Fail("expected at most " + std::to_string(longest) + " bytes");
  std::string text(length + 1, '\0');
  Check(env, napi_get_value_string_utf8(env, value, text.data(), text.size(), &length));
  text.resize(length);
  if (text.find('\0') != std::string::npos) where.Fail("expected a string without NUL");
  return text;
}

namespace {

// Fails with `expected` unless the value is a typed array of this type. A detached buffer counts as no entries.
template <typename T>
std::pair<const T*, size_t> ReadTypedArray(Napi::Env env, napi_value value, napi_typedarray_type wanted,
                                           const char* expected, const Where& where) {
  bool is_typed_array = false;
  Check(env, napi_is_typedarray(env, value, &is_typed_array));
  if (!is_typed_array) where.Fail(expected);
  napi_typedarray_type type;
  void* data = nullptr;
  size_t length = 0;
  Check(env, napi_get_typedarray_info(env, value, &type, &length, &data, nullptr, nullptr));
  if (type != wanted) where.Fail(expected);
  return {static_cast<const T*>(data), data == nullptr ? 0 : length};
}

}  // namespace

ByteView ReadBytes(Napi::Env env, napi_value value, const Where& where) {
  const auto [data, length] = ReadTypedArray<uint8_t>(env, value, napi_uint8_array, "expected a Uint8Array", where);
  return {data, length};
}

std::vector<uint32_t> ReadIndices(Napi::Env env, napi_value value, uint64_t end, const Where& where) {
  const auto [data, length] = ReadTypedArray<uint32_t>(env, value, napi_uint32_array, "expected a Uint32Array", where);
  std::vector<uint32_t> indices(data, data + length);
  for (const uint32_t index : indices) {
    if (index >= end) where.Fail("expected numbers below " + std::to_string(end));
  }
  return indices;
}

Bytes ReadByteCopy(Napi::Env env, napi_value value, size_t longest, const Where& where) {
  const ByteView view = ReadBytes(env, value, where);
  if (view.length > longest) where.Fail("expected at most " + std::to_string(longest) + " bytes");
  return Bytes(view.data, view.data + view.length);
}

uint32_t ReadArrayLength(Napi::Env env, napi_value value, uint32_t longest, const Where& where) {
  bool is_array = false;
  uint32_t length = 0;
  Check(env, napi_is_array(env, value, &is_array));
  if (!is_array) where.Fail("expected an array");
  Check(env, napi_get_array_length(env, value, &length));
  if (length > longest) where.Fail("expected at most " + std::to_string(longest) + " entries");
  return length;
}

napi_value GetElement(Napi::Env env, napi_value array, uint32_t index) {
  napi_value value;
  Check(env, napi_get_element(env, array, index, &value));
  return value;
}

std::optional<uint32_t> OptionalU32(Napi::Env env, napi_value object, const char* field, const Where& where) {
  const napi_value value = Get(env, object, field);
  if (IsAbsent(env, value)) return std::nullopt;
  return ReadU32(env, value, Where(where, field));
}

std::optional<uint64_t> OptionalU64(Napi::Env env, napi_value object, const char* field, const Where& where) {
  const napi_value value = Get(env, object, field);
  if (IsAbsent(env, value)) return std::nullopt;
  return ReadU64(env, value, Where(where, field));
}

std::optional<Bytes> OptionalBytes(Napi::Env env, napi_value object, const char* field, size_t longest,
                                   const Where& where) {
  const napi_value value = Get(env, object, field);
  if (IsAbsent(env, value)) return std::nullopt;
  return ReadByteCopy(env, value, longest, Where(where, field));
}

bool OptionalBool(Napi::Env env, napi_value object, const char* field, const Where& where) {
  const napi_value value = Get(env, object, field);
  return !IsAbsent(env, value) && ReadBool(env, value, Where(where, field));
}

std::string RequiredName(Napi::Env env, napi_value object, const char* field, const Where& where) {
  return ReadText(env, Get(env, object, field), kMaxName, Where(where, field));
}

uint32_t RequiredU32(Napi::Env env, napi_value object, const char* field, const Where& where) {
  return ReadU32(env, Get(env, object, field), Where(where, field));
}

}  // namespace nftp
