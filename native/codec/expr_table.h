// The single description of every expression that the codec knows, and of the data of every kind of named object. The
// encoder, the decoder and both JS conversions walk it.
#pragma once

#include <cstdint>
#include <string_view>

namespace nftp {

enum class AttrKind : uint8_t {
  U8,
  U16,      // network order in the message
  U32,      // network order in the message
  U32Host,  // host order in the message
  U64,      // network order in the message, BigInt in JS
  String,   // NUL-terminated
  Value,    // nested NFTA_DATA_VALUE
  Data,     // nested NFTA_DATA_VALUE or NFTA_DATA_VERDICT
  Exprs,    // one nested expression in `nfta`; several as a list in `list_nfta`
  Numbers,  // nested attributes 1, 2, ... of 32 bits, network order; a list in JS, with undefined for absent ones
  Padding,  // 64-bit alignment filler; carries nothing
};

// Highest attribute in AttrKind::Numbers. The kernel's protocols have at most CTA_TIMEOUT_TCP_MAX (14).
constexpr uint16_t kMaxNumbers = 32;

struct AttrDesc {
  const char* js;  // field name in src/nft/kernel/kernel.ts
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

// Returns the attributes in NFTA_OBJ_DATA of a kind of named object (NFT_OBJECT_*), or nullptr if the codec does not
// know it.
const ExprDesc* FindObject(uint32_t type);

}  // namespace nftp
