// Reads expressions and verdicts from JS, using the codec's table.
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

#include <algorithm>
#include <iterator>

#include "codec/expr_codec.h"
#include "codec/expr_table.h"
#include "codec/names.h"
#include "codec/op_codec.h"
#include "js/values.h"

namespace nftp {

namespace {

// Maximum size of an attribute that the codec does not know, or of an opaque expression.
constexpr size_t kMaxRaw = 60000;
constexpr uint32_t kMaxExtra = 64;

std::vector<UnknownAttr> ReadExtra(Napi::Env env, napi_value value, const Where& where) {
  std::vector<UnknownAttr> extra;
  const uint32_t length = ReadArrayLength(env, value, kMaxExtra, where);
  for (uint32_t i = 0; i < length; ++i) {
    const Where at(where, i);
    const napi_value entry = GetElement(env, value, i);
    WantObject(env, entry, at);
    UnknownAttr attr;
    attr.type = static_cast<uint16_t>(ReadInteger(env, Get(env, entry, "type"), 0, UINT16_MAX, Where(at, "type")));
    attr.bytes = ReadByteCopy(env, Get(env, entry, "bytes"), kMaxRaw, Where(at, "bytes"));
    extra.push_back(std::move(attr));
  }
  return extra;
}

AttrValue ReadAttr(Napi::Env env, napi_value value, const AttrDesc& desc, uint32_t depth, const Where& where) {
  AttrValue attr;
  attr.desc = &desc;
  switch (desc.kind) {
    case AttrKind::U8:
      attr.number = static_cast<uint64_t>(ReadInteger(env, value, 0, UINT8_MAX, where));
      break;
    case AttrKind::U16:
      attr.number = static_cast<uint64_t>(ReadInteger(env, value, 0, UINT16_MAX, where));
      break;
    case AttrKind::U32:
    case AttrKind::U32Host:
      attr.number = ReadU32(env, value, where);
      break;
    case AttrKind::U64:
      attr.number = ReadU64(env, value, where);
      break;
    case AttrKind::String:
      attr.text = ReadText(env, value, kMaxName, where);
      break;
    case AttrKind::Value:
      attr.bytes = ReadByteCopy(env, value, NFT_DATA_VALUE_MAXLEN, where);
      break;
    case AttrKind::Data: {
      bool bytes = false;
      Check(env, napi_is_typedarray(env, value, &bytes));
      if (bytes) {
        attr.bytes = ReadByteCopy(env, value, NFT_DATA_VALUE_MAXLEN, where);
      } else {
        attr.verdict = ReadVerdict(env, value, where);
      }
      break;
    }
    case AttrKind::Exprs:
      if (depth + 1 >= kMaxExprDepth) where.Fail("expressions nest too deeply");
      attr.exprs = ReadExprs(env, value, depth + 1, where);
      break;
    case AttrKind::Numbers:
      attr.numbers.resize(ReadArrayLength(env, value, kMaxNumbers, where));
      for (uint32_t i = 0; i < attr.numbers.size(); ++i) {
        const napi_value number = GetElement(env, value, i);
        if (!IsAbsent(env, number)) attr.numbers[i] = ReadU32(env, number, Where(where, i));
      }
      break;
    case AttrKind::Padding:
      break;
  }
  return attr;
}

// Whether the value is opaque: then fills the expression with its bytes.
bool ReadOpaque(Napi::Env env, napi_value value, const Where& where, Expr* expr) {
  WantObject(env, value, where);
  expr->name = RequiredName(env, value, "type", where);
  if (expr->name != "opaque") return false;
  expr->name = RequiredName(env, value, "name", where);
  expr->opaque = ReadByteCopy(env, Get(env, value, "data"), kMaxRaw, Where(where, "data"));
  return true;
}

// Fills an expression that has a desc.
void ReadKnown(Napi::Env env, napi_value value, uint32_t depth, const Where& where, Expr* expr) {
  for (const AttrDesc& desc : *expr->desc) {
    if (desc.kind == AttrKind::Padding) continue;
    const napi_value field = Get(env, value, desc.js);
    const Where at(where, desc.js);
    if (!IsAbsent(env, field)) {
      AttrValue attr = ReadAttr(env, field, desc, depth, at);
      // An empty list of expressions is encoded as no attribute.
      if (desc.kind != AttrKind::Exprs || !attr.exprs.empty()) expr->attrs.push_back(std::move(attr));
    } else if (desc.required) {
      at.Fail("is missing");
    }
  }
  const napi_value extra = Get(env, value, "extra");
  if (!IsAbsent(env, extra)) expr->extra = ReadExtra(env, extra, Where(where, "extra"));
}

Expr ReadExpr(Napi::Env env, napi_value value, uint32_t depth, const Where& where) {
  Expr expr;
  if (ReadOpaque(env, value, where, &expr)) return expr;
  expr.desc = FindExpr(expr.name);
  if (expr.desc == nullptr) Where(where, "type").Fail("unknown expression \"" + expr.name + "\"");
  ReadKnown(env, value, depth, where, &expr);
  return expr;
}

}  // namespace

Expr ReadObjectData(Napi::Env env, napi_value value, uint32_t type, const Where& where) {
  Expr expr;
  if (!ReadOpaque(env, value, where, &expr)) {
    expr.desc = FindObject(type);
    if (expr.desc == nullptr || expr.name != expr.desc->name) {
      Where(where, "type").Fail("\"" + expr.name + "\" is not the data of object type " + std::to_string(type));
    }
    ReadKnown(env, value, 0, where, &expr);
  }
  if (ExprListBound({expr}) > kMaxExprListBytes) where.Fail("exceeds " + std::to_string(kMaxExprListBytes) + " bytes");
  return expr;
}

std::vector<Expr> ReadExprs(Napi::Env env, napi_value value, uint32_t depth, const Where& where) {
  std::vector<Expr> exprs;
  const uint32_t length = ReadArrayLength(env, value, kMaxExprs, where);
  size_t bound = 0;
  for (uint32_t i = 0; i < length; ++i) {
    const Napi::HandleScope scope(env);
    exprs.push_back(ReadExpr(env, GetElement(env, value, i), depth, Where(where, i)));
    bound = ExprListBound(exprs);
    if (bound > kMaxExprListBytes) where.Fail("expressions exceed " + std::to_string(kMaxExprListBytes) + " bytes");
  }
  return exprs;
}

Verdict ReadVerdict(Napi::Env env, napi_value value, const Where& where) {
  WantObject(env, value, where);
  const std::string name = RequiredName(env, value, "verdict", where);
  const auto* known = FindName(kVerdicts, name);
  if (known == nullptr) Where(where, "verdict").Fail("unknown verdict \"" + name + "\"");
  Verdict verdict;
  verdict.code = known->number;
  if (verdict.code == NFT_JUMP || verdict.code == NFT_GOTO) verdict.chain = RequiredName(env, value, "chain", where);
  return verdict;
}

}  // namespace nftp
