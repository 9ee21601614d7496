// Converts expressions to netlink attributes and back. Pure: no sockets, no JS.
#pragma once

#include <cstddef>
#include <vector>

#include "codec/attr.h"
#include "codec/model.h"

namespace nftp {

// Expressions may contain expressions (dynset). Deeper nesting is rejected when encoding and kept as opaque bytes when
// decoding.
constexpr uint32_t kMaxExprDepth = 4;

// Maximum number of bytes that EncodeExprList writes for these expressions, without its list's header.
size_t ExprListBound(const std::vector<Expr>& exprs);

// Appends `exprs` as NFTA_LIST_ELEMs inside a nested attribute `type`.
void EncodeExprList(AttrWriter& writer, uint16_t type, const std::vector<Expr>& exprs);
// Appends one expression as a nested attribute `type`.
void EncodeExpr(AttrWriter& writer, uint16_t type, const Expr& expr);

// Appends an expression's attributes, or a named object's data, as a nested attribute `type`.
void EncodeExprData(AttrWriter& writer, uint16_t type, const Expr& expr);

// The expressions of a list attribute. Lossless: anything that has no field in `Expr` becomes `extra` or opaque.
std::vector<Expr> DecodeExprList(const AttrView& list, uint32_t depth = 0);
Expr DecodeExpr(const AttrView& nest, uint32_t depth = 0);
// The payload of NFTA_OBJ_DATA of a named object (NFT_OBJECT_*). Also lossless.
Expr DecodeObjectData(uint32_t type, const AttrView& data);

// Encodes the attributes of NFTA_DATA_VERDICT in a nested attribute `type`.
size_t VerdictDataBound(const Verdict& verdict);
void EncodeVerdictData(AttrWriter& writer, uint16_t type, const Verdict& verdict);

// Decodes the payload of an NFTA_DATA_VERDICT. Returns false if a Verdict cannot hold it, or src/nft/kernel/kernel.ts
// has no form for it.
bool DecodeVerdict(const AttrView& nest, Verdict* verdict);

}  // namespace nftp
