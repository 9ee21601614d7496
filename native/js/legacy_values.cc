#include "js/legacy_values.h"

#include <optional>
#include <string>
#include <utility>

#include "codec/failure.h"
#include "js/reader.h"
#include "js/values.h"

namespace nftp {

namespace {

std::vector<std::string> RequiredNames(Napi::Env env, napi_value object, const char* field) {
  std::optional<std::vector<std::string>> names = ReadOptionalNames(env, Get(env, object, field), field);
  if (!names) throw Failure::Invalid(std::string(field) + ": expected an array");
  return std::move(*names);
}

}  // namespace

OwnChains ReadOwnChains(Napi::Env env, napi_value value) {
  WantObject(env, value, Where(std::string("own")));
  return {RequiredNames(env, value, "entries"), RequiredNames(env, value, "others"),
          RequiredNames(env, value, "prefixes")};
}

Napi::Object RemovalToJs(Napi::Env env, uint32_t chains, uint32_t jumps, const std::vector<KeptChain>& kept) {
  Napi::Array list = Napi::Array::New(env, kept.size());
  for (uint32_t i = 0; i < kept.size(); ++i) {
    Napi::Object chain = Napi::Object::New(env);
    chain.Set("chain", kept[i].chain);
    chain.Set("user", kept[i].user);
    list.Set(i, chain);
  }
  Napi::Object object = Napi::Object::New(env);
  object.Set("chains", Napi::Number::New(env, chains));
  object.Set("jumps", Napi::Number::New(env, jumps));
  object.Set("kept", list);
  return object;
}

}  // namespace nftp
