// Expressions to netlink attributes and back. Pure: no sockets, no JS.
#pragma once

#include <cstddef>
#include <vector>

#include "codec/attr.h"
#include "codec/model.h"

namespace nftp {

// Expressions may hold expressions (dynset); deeper than this is refused on the way in and opaque on the way out.
constexpr uint32_t kMaxExprDepth = 4;

// Upper bound of the bytes that EncodeExprList writes for these, without its list's header.
size_t ExprListBound(const std::vector<Expr>& exprs);

// Appends `exprs` as NFTA_LIST_ELEMs inside a nested attribute `type`.
void EncodeExprList(AttrWriter& writer, uint16_t type, const std::vector<Expr>& exprs);
// Appends one expression as a nested attribute `type`.
void EncodeExpr(AttrWriter& writer, uint16_t type, const Expr& expr);

// The expressions of a list attribute. Lossless: what has no place in `Expr` becomes `extra` or opaque.
std::vector<Expr> DecodeExprList(const AttrView& list, uint32_t depth = 0);
Expr DecodeExpr(const AttrView& nest, uint32_t depth = 0);

// NFTA_DATA_VERDICT's attributes, in a nested attribute `type`.
size_t VerdictDataBound(const Verdict& verdict);
void EncodeVerdictData(AttrWriter& writer, uint16_t type, const Verdict& verdict);

// Does the verdict have a form in src/netlink/kernel.ts?
bool IsKnownVerdict(const Verdict& verdict);
// From the payload of an NFTA_DATA_VERDICT; false when it holds what a Verdict cannot.
bool DecodeVerdict(const AttrView& nest, Verdict* verdict);

}  // namespace nftp
