// The single description of every expression that the codec knows. The encoder, the decoder and both JS conversions
// walk it.
#pragma once

#include <cstdint>
#include <string_view>

namespace nftp {

enum class AttrKind : uint8_t {
  U8,
  U16,      // network order in the message
  U32,      // network order in the message
  U64,      // network order in the message, BigInt in JS
  String,   // NUL-terminated
  Value,    // nested NFTA_DATA_VALUE
  Data,     // nested NFTA_DATA_VALUE or NFTA_DATA_VERDICT
  Exprs,    // one nested expression in `nfta`; several as a list in `list_nfta`
  Padding,  // 64-bit alignment filler; carries nothing
};

struct AttrDesc {
  const char* js;  // field name in src/netlink/kernel.ts
  uint16_t nfta;
  AttrKind kind;
  bool required = false;
  uint16_t list_nfta = 0;
};

struct ExprDesc {
  const char* name;
  const AttrDesc* attrs;
  uint32_t count;

  const AttrDesc* begin() const { return attrs; }
  const AttrDesc* end() const { return attrs + count; }
};

// Returns nullptr if the codec has no table for this expression.
const ExprDesc* FindExpr(std::string_view name);

}  // namespace nftp
