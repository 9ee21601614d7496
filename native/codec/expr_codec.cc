#include "codec/expr_codec.h"

#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

#include <string>

#include "codec/expr_table.h"
#include "codec/names.h"

namespace nftp {

namespace {

constexpr size_t AttrBound(size_t payload) { return kAttrHeader + Align4(payload); }

size_t ExprBound(const Expr& expr);

size_t ValueBound(const AttrValue& value) {
  switch (value.desc->kind) {
    case AttrKind::U8:
    case AttrKind::U16:
    case AttrKind::U32:
    case AttrKind::U32Host:
    case AttrKind::U64:
      return AttrBound(8);
    case AttrKind::String:
      return AttrBound(value.text.size() + 1);
    case AttrKind::Value:
    case AttrKind::Data:
      return value.verdict ? VerdictDataBound(*value.verdict) : kAttrHeader + AttrBound(value.bytes.size());
    case AttrKind::Exprs:
      return kAttrHeader + ExprListBound(value.exprs);
    case AttrKind::Numbers:
      return kAttrHeader + value.numbers.size() * AttrBound(4);
    case AttrKind::Padding:
      return 0;
  }
  return 0;
}

size_t ExprBound(const Expr& expr) {
  size_t bound = kAttrHeader + AttrBound(expr.name.size() + 1) + kAttrHeader + Align4(expr.opaque.size());
  for (const AttrValue& value : expr.attrs) bound += ValueBound(value);
  for (const UnknownAttr& extra : expr.extra) bound += AttrBound(extra.bytes.size());
  return bound;
}

void EncodeValueData(AttrWriter& writer, uint16_t type, const Bytes& bytes) {
  nlattr* nest = writer.Nest(type);
  writer.Put(NFTA_DATA_VALUE, bytes.data(), bytes.size());
  writer.EndNest(nest);
}

void EncodeAttr(AttrWriter& writer, const AttrValue& value) {
  const uint16_t type = value.desc->nfta;
  switch (value.desc->kind) {
    case AttrKind::U8:
      return writer.U8(type, static_cast<uint8_t>(value.number));
    case AttrKind::U16:
      return writer.U16(type, static_cast<uint16_t>(value.number));
    case AttrKind::U32:
      return writer.U32(type, static_cast<uint32_t>(value.number));
    case AttrKind::U32Host: {
      const auto number = static_cast<uint32_t>(value.number);
      return writer.Put(type, &number, sizeof number);
    }
    case AttrKind::U64:
      return writer.U64(type, value.number);
    case AttrKind::String:
      return writer.String(type, value.text);
    case AttrKind::Value:
    case AttrKind::Data:
      if (value.verdict) return EncodeVerdictData(writer, type, *value.verdict);
      return EncodeValueData(writer, type, value.bytes);
    case AttrKind::Exprs:
      // Kernels before 5.11 know only the single form; later ones use it in dumps if there is one expression.
      if (value.exprs.size() == 1) return EncodeExpr(writer, type, value.exprs.front());
      return EncodeExprList(writer, value.desc->list_nfta, value.exprs);
    case AttrKind::Numbers: {
      nlattr* nest = writer.Nest(type);
      for (size_t i = 0; i < value.numbers.size(); ++i) {
        if (value.numbers[i]) writer.U32(static_cast<uint16_t>(i + 1), *value.numbers[i]);
      }
      return writer.EndNest(nest);
    }
    case AttrKind::Padding:
      return;
  }
}

const AttrDesc* FindAttr(const ExprDesc& desc, uint16_t type) {
  for (const AttrDesc& attr : desc) {
    if (attr.nfta == type || (attr.list_nfta != 0 && attr.list_nfta == type)) return &attr;
  }
  return nullptr;
}

// Decodes a nested NFTA_DATA_*. Returns false unless its form is exactly the one that we write.
bool DecodeData(const AttrView& nest, bool verdict_allowed, AttrValue* value) {
  bool found = false;
  for (AttrReader reader(nest); reader.Next();) {
    const AttrView& attr = reader.attr();
    if (found) return false;
    found = true;
    if (attr.type() == NFTA_DATA_VALUE) {
      value->bytes = attr.Copy();
    } else if (attr.type() == NFTA_DATA_VERDICT && verdict_allowed) {
      Verdict verdict;
      if (!DecodeVerdict(attr, &verdict)) return false;
      value->verdict = std::move(verdict);
    } else {
      return false;
    }
  }
  return found;
}

// Decodes nested attributes of 32 bits. Returns false if one has another form, or a number that no protocol has.
bool DecodeNumbers(const AttrView& nest, std::vector<std::optional<uint32_t>>* numbers) {
  for (AttrReader reader(nest); reader.Next();) {
    const AttrView& attr = reader.attr();
    if (attr.raw_type == 0 || attr.raw_type > kMaxNumbers || attr.length != sizeof(uint32_t)) return false;
    if (numbers->size() < attr.raw_type) numbers->resize(attr.raw_type);
    std::optional<uint32_t>& number = (*numbers)[attr.raw_type - 1u];
    if (number) return false;
    number = attr.U32();
  }
  return true;
}

// Returns false if the bytes are not of the kind in the table; the caller then keeps them unchanged.
bool DecodeAttr(const AttrView& attr, uint32_t depth, AttrValue* value) {
  switch (value->desc->kind) {
    case AttrKind::U8:
      if (attr.length != 1) return false;
      value->number = attr.U8();
      return true;
    case AttrKind::U16:
      if (attr.length != 2) return false;
      value->number = attr.U16();
      return true;
    case AttrKind::U32:
      if (attr.length != 4) return false;
      value->number = attr.U32();
      return true;
    case AttrKind::U32Host:
      if (attr.length != 4) return false;
      value->number = Load32(attr.data);
      return true;
    case AttrKind::U64:
      if (attr.length != 8) return false;
      value->number = attr.U64();
      return true;
    case AttrKind::String: {
      const std::string_view text = attr.Text();
      // Require exactly one NUL, at the end: any other text would not survive the round trip.
      if (text.empty() || text.size() + 1 != attr.length) return false;
      value->text = std::string(text);
      return true;
    }
    case AttrKind::Value:
      return DecodeData(attr, false, value);
    case AttrKind::Data:
      return DecodeData(attr, true, value);
    case AttrKind::Exprs:
      if (depth + 1 >= kMaxExprDepth) return false;
      if (attr.type() == value->desc->list_nfta) {
        value->exprs = DecodeExprList(attr, depth + 1);
      } else {
        value->exprs.push_back(DecodeExpr(attr, depth + 1));
      }
      return true;
    case AttrKind::Numbers:
      return DecodeNumbers(attr, &value->numbers);
    case AttrKind::Padding:
      return true;
  }
  return false;
}

bool Has(const Expr& expr, const AttrDesc* desc) {
  for (const AttrValue& value : expr.attrs) {
    if (value.desc == desc) return true;
  }
  return false;
}

// Fills attrs and extra of a known expression. Returns false if a required attribute is missing or unreadable.
bool DecodeKnown(const AttrView& data, uint32_t depth, Expr* expr) {
  for (AttrReader reader(data); reader.Next();) {
    const AttrView& attr = reader.attr();
    const AttrDesc* desc = FindAttr(*expr->desc, attr.type());
    if (desc != nullptr && desc->kind == AttrKind::Padding) continue;
    AttrValue value;
    value.desc = desc;
    if (desc != nullptr && !Has(*expr, desc) && DecodeAttr(attr, depth, &value)) {
      expr->attrs.push_back(std::move(value));
    } else {
      expr->extra.push_back(UnknownAttr{attr.raw_type, attr.Copy()});
    }
  }
  for (const AttrDesc& desc : *expr->desc) {
    if (desc.required && !Has(*expr, &desc)) return false;
  }
  return true;
}

// Fills the expression as its desc says. If that is impossible, or there is no desc, the expression becomes opaque.
void DecodeAttrs(const AttrView& data, uint32_t depth, Expr* expr) {
  if (expr->desc != nullptr && DecodeKnown(data, depth, expr)) return;
  expr->desc = nullptr;
  expr->attrs.clear();
  expr->extra.clear();
  expr->opaque = data.Copy();
}

}  // namespace

size_t ExprListBound(const std::vector<Expr>& exprs) {
  size_t bound = 0;
  for (const Expr& expr : exprs) bound += ExprBound(expr);
  return bound;
}

void EncodeExpr(AttrWriter& writer, uint16_t type, const Expr& expr) {
  nlattr* nest = writer.Nest(type);
  writer.String(NFTA_EXPR_NAME, expr.name);
  const bool empty = expr.desc == nullptr ? expr.opaque.empty() : expr.desc->count == 0 && expr.extra.empty();
  if (!empty) EncodeExprData(writer, NFTA_EXPR_DATA, expr);
  writer.EndNest(nest);
}

void EncodeExprData(AttrWriter& writer, uint16_t type, const Expr& expr) {
  if (expr.desc == nullptr) return writer.Put(type | NLA_F_NESTED, expr.opaque.data(), expr.opaque.size());
  nlattr* data = writer.Nest(type);
  for (const AttrValue& value : expr.attrs) EncodeAttr(writer, value);
  for (const UnknownAttr& extra : expr.extra) writer.Put(extra.type, extra.bytes.data(), extra.bytes.size());
  writer.EndNest(data);
}

void EncodeExprList(AttrWriter& writer, uint16_t type, const std::vector<Expr>& exprs) {
  nlattr* list = writer.Nest(type);
  for (const Expr& expr : exprs) EncodeExpr(writer, NFTA_LIST_ELEM, expr);
  writer.EndNest(list);
}

Expr DecodeExpr(const AttrView& nest, uint32_t depth) {
  Expr expr;
  AttrView data;
  for (AttrReader reader(nest); reader.Next();) {
    const AttrView& attr = reader.attr();
    if (attr.type() == NFTA_EXPR_NAME) expr.name = std::string(attr.Text());
    if (attr.type() == NFTA_EXPR_DATA) data = attr;
  }
  expr.desc = FindExpr(expr.name);
  DecodeAttrs(data, depth, &expr);
  return expr;
}

Expr DecodeObjectData(uint32_t type, const AttrView& data) {
  Expr expr;
  expr.desc = FindObject(type);
  expr.name = expr.desc == nullptr ? "object-" + std::to_string(type) : expr.desc->name;
  DecodeAttrs(data, 0, &expr);
  return expr;
}

std::vector<Expr> DecodeExprList(const AttrView& list, uint32_t depth) {
  std::vector<Expr> exprs;
  for (AttrReader reader(list); reader.Next();) {
    if (reader.attr().type() == NFTA_LIST_ELEM) exprs.push_back(DecodeExpr(reader.attr(), depth));
  }
  return exprs;
}

size_t VerdictDataBound(const Verdict& verdict) {
  return kAttrHeader + kAttrHeader + AttrBound(4) + (verdict.chain.empty() ? 0 : AttrBound(verdict.chain.size() + 1));
}

void EncodeVerdictData(AttrWriter& writer, uint16_t type, const Verdict& verdict) {
  nlattr* data = writer.Nest(type);
  nlattr* nest = writer.Nest(NFTA_DATA_VERDICT);
  writer.U32(NFTA_VERDICT_CODE, static_cast<uint32_t>(verdict.code));
  if (!verdict.chain.empty()) writer.String(NFTA_VERDICT_CHAIN, verdict.chain);
  writer.EndNest(nest);
  writer.EndNest(data);
}

bool DecodeVerdict(const AttrView& nest, Verdict* verdict) {
  bool code = false;
  for (AttrReader reader(nest); reader.Next();) {
    const AttrView& attr = reader.attr();
    if (attr.type() == NFTA_VERDICT_CODE && attr.length == 4) {
      verdict->code = static_cast<int32_t>(attr.U32());
      code = true;
    } else if (attr.type() == NFTA_VERDICT_CHAIN) {
      verdict->chain = std::string(attr.Text());
    } else {
      return false;
    }
  }
  const bool has_chain = verdict->code == NFT_JUMP || verdict->code == NFT_GOTO;
  return code && NameOf(kVerdicts, verdict->code) != "?" && has_chain != verdict->chain.empty();
}

}  // namespace nftp
