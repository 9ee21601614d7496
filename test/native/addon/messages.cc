#include "messages.h"

#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "codec/expr_codec.h"
#include "codec/message_decoder.h"
#include "codec/names.h"
#include "js/writer.h"

namespace nftp {

namespace {

using Napi::Env;
using Napi::Object;
using Napi::Value;

// The NFTA_DATA_* inside an element's data: bytes or a verdict, otherwise undefined.
Value DataToJs(Env env, const AttrView& nest) {
  for (AttrReader reader(nest); reader.Next();) {
    if (reader.attr().type() == NFTA_DATA_VALUE) return ToJs(env, reader.attr().Copy());
    Verdict verdict;
    if (reader.attr().type() == NFTA_DATA_VERDICT && DecodeVerdict(reader.attr(), &verdict)) return ToJs(env, verdict);
  }
  return env.Undefined();
}

Value ElementToJs(Env env, const AttrView& nest) {
  Object object = Object::New(env);
  for (AttrReader reader(nest); reader.Next();) {
    const AttrView& attr = reader.attr();
    switch (attr.type()) {
      case NFTA_SET_ELEM_KEY:
        object.Set("key", DataToJs(env, attr));
        break;
      case NFTA_SET_ELEM_KEY_END:
        object.Set("keyEnd", DataToJs(env, attr));
        break;
      case NFTA_SET_ELEM_DATA:
        object.Set("data", DataToJs(env, attr));
        break;
      case NFTA_SET_ELEM_FLAGS:
        object.Set("flags", Napi::Number::New(env, attr.U32()));
        break;
      case NFTA_SET_ELEM_TIMEOUT:
        object.Set("timeout", Napi::BigInt::New(env, attr.U64()));
        break;
      case NFTA_SET_ELEM_EXPIRATION:
        object.Set("expiration", Napi::BigInt::New(env, attr.U64()));
        break;
      default:
        break;
    }
  }
  return object;
}

Value ElementListToJs(Env env, const nlmsghdr* message) {
  Object object = Object::New(env);
  for (AttrReader reader(message); reader.Next();) {
    const AttrView& attr = reader.attr();
    const std::string text(attr.Text());
    if (attr.type() == NFTA_SET_ELEM_LIST_TABLE) object.Set("table", Napi::String::New(env, text));
    if (attr.type() == NFTA_SET_ELEM_LIST_SET) object.Set("set", Napi::String::New(env, text));
    if (attr.type() == NFTA_SET_ELEM_LIST_SET_ID) object.Set("setId", Napi::Number::New(env, attr.U32()));
    if (attr.type() != NFTA_SET_ELEM_LIST_ELEMENTS) continue;
    Napi::Array elements = Napi::Array::New(env);
    uint32_t index = 0;
    for (AttrReader list(attr); list.Next(); ++index) {
      const Napi::HandleScope scope(env);
      elements.Set(index, ElementToJs(env, list.attr()));
    }
    object.Set("elements", elements);
  }
  return object;
}

Value ErrorReplyToJs(Env env, const nlmsghdr* message) {
  const ErrorReply reply = DecodeError(message);
  Object object = Object::New(env);
  object.Set("errno", Napi::Number::New(env, reply.error));
  object.Set("seq", Napi::Number::New(env, reply.seq));
  if (!reply.text.empty()) object.Set("text", Napi::String::New(env, reply.text));
  if (reply.offset) object.Set("offset", Napi::Number::New(env, *reply.offset));
  return object;
}

struct DecodedBody {
  const char* kind;
  Value value;
};

DecodedBody BodyToJs(Env env, const nlmsghdr* message) {
  switch (message->nlmsg_type) {
    case NLMSG_ERROR:
      return {"error", ErrorReplyToJs(env, message)};
    case NLMSG_DONE:
      return {"done", Object::New(env)};
    case NFNL_MSG_BATCH_BEGIN:
      return {"begin", Object::New(env)};
    case NFNL_MSG_BATCH_END:
      return {"end", Object::New(env)};
    default:
      break;
  }
  if (NFNL_SUBSYS_ID(message->nlmsg_type) != NFNL_SUBSYS_NFTABLES) return {"unknown", Object::New(env)};
  const uint8_t operation = NFNL_MSG_TYPE(message->nlmsg_type);
  if (operation == NFT_MSG_NEWGEN) return {"generation", ToJs(env, DecodeGen(message))};
  if (operation == NFT_MSG_TRACE) return {"trace", ToJs(env, DecodeTrace(message))};
  const ObjectKind* const kind = FindKind(operation);
  if (kind == nullptr) return {"unknown", Object::New(env)};
  switch (kind->add) {
    case NFT_MSG_NEWTABLE:
      return {"table", ToJs(env, DecodeTable(message))};
    case NFT_MSG_NEWCHAIN:
      return {"chain", ToJs(env, DecodeChain(message))};
    case NFT_MSG_NEWRULE: {
      const RuleInfo info = DecodeRule(message);
      Object object = ToJs(env, info).As<Object>();
      if (info.position) object.Set("position", Napi::BigInt::New(env, *info.position));
      return {"rule", object};
    }
    case NFT_MSG_NEWSET: {
      const SetDump dump = DecodeSet(message);
      Object object = ToJs(env, dump).As<Object>();
      if (dump.id) object.Set("id", Napi::Number::New(env, *dump.id));
      return {"set", object};
    }
    case NFT_MSG_NEWOBJ:
      return {"object", ToJs(env, DecodeObject(message))};
    case NFT_MSG_NEWSETELEM:
      return {"elements", ElementListToJs(env, message)};
    default:
      return {"unknown", Object::New(env)};
  }
}

}  // namespace

void ForEachMessage(const uint8_t* data, size_t length, const std::function<void(const nlmsghdr*)>& on_message) {
  // An aligned copy, whatever the caller's view is, that no other code can change.
  std::vector<uint64_t> aligned((length + 7) / 8);
  if (length != 0) std::memcpy(aligned.data(), data, length);
  const auto* at = reinterpret_cast<const uint8_t*>(aligned.data());
  for (size_t left = length; left != 0;) {
    const auto* message = reinterpret_cast<const nlmsghdr*>(at);
    if (left < sizeof(nlmsghdr) || message->nlmsg_len < sizeof(nlmsghdr) || message->nlmsg_len > left) {
      throw Malformed("the message's length is out of bounds");
    }
    on_message(message);
    const size_t step = std::min(left, Align4(message->nlmsg_len));
    at += step;
    left -= step;
  }
}

Value MessagesToJs(Env env, const uint8_t* data, size_t length) {
  Napi::Array messages = Napi::Array::New(env);
  uint32_t index = 0;
  // Uses the monitor's grouper, so that the result is the monitor's.
  ChangeGrouper grouper{MonitorOptions{}};
  ForEachMessage(data, length, [&](const nlmsghdr* message) {
    const Napi::HandleScope scope(env);
    DecodedBody body = BodyToJs(env, message);
    Object object = Object::New(env);
    object.Set("kind", Napi::String::New(env, body.kind));
    object.Set("type", Napi::Number::New(env, message->nlmsg_type));
    object.Set("flags", Napi::Number::New(env, message->nlmsg_flags));
    object.Set("seq", Napi::Number::New(env, message->nlmsg_seq));
    object.Set("body", body.value);
    ChangeBatch batch;
    if (grouper.Add(message, &batch)) object.Set("changes", ToJs(env, batch));
    messages.Set(index++, object);
  });
  return messages;
}

}  // namespace nftp
