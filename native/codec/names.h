// The names in src/nft/kernel/kernel.ts of verdicts, families, verbs and kinds of objects.
#pragma once

#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

#include <cstdint>
#include <string_view>
#include <variant>

#include "codec/model.h"

namespace nftp {

template <typename Number>
struct Named {
  std::string_view name;
  Number number;
};

inline constexpr Named<int32_t> kVerdicts[] = {
    {"accept", NF_ACCEPT},  {"drop", NF_DROP},   {"continue", NFT_CONTINUE}, {"break", NFT_BREAK},
    {"return", NFT_RETURN}, {"queue", NF_QUEUE}, {"jump", NFT_JUMP},         {"goto", NFT_GOTO},
};

inline constexpr Named<uint8_t> kFamilies[] = {
    {"inet", NFPROTO_INET}, {"ip", NFPROTO_IPV4},       {"ip6", NFPROTO_IPV6},
    {"arp", NFPROTO_ARP},   {"bridge", NFPROTO_BRIDGE}, {"netdev", NFPROTO_NETDEV},
};

inline constexpr Named<Verb> kVerbs[] = {
    {"add", Verb::Add},       {"create", Verb::Create},   {"insert", Verb::Insert}, {"replace", Verb::Replace},
    {"delete", Verb::Delete}, {"destroy", Verb::Destroy}, {"flush", Verb::Flush},
};

// Returns the entry of this name, or nullptr.
template <typename Number, size_t kCount>
const Named<Number>* FindName(const Named<Number> (&names)[kCount], std::string_view name) {
  for (const Named<Number>& named : names) {
    if (named.name == name) return &named;
  }
  return nullptr;
}

// Returns the name of this number, or "?".
template <typename Number, size_t kCount>
std::string_view NameOf(const Named<Number> (&names)[kCount], Number number) {
  for (const Named<Number>& named : names) {
    if (named.number == number) return named.name;
  }
  return "?";
}

// A kind of object, with its NFT_MSG_* and the NFTA_* that identify an object in them (0: none).
struct ObjectKind {
  std::string_view name;
  uint8_t add;
  uint8_t remove;
  uint8_t destroy;  // Linux 6.3; older headers lack the names
  uint16_t table;
  uint16_t object;
  uint16_t handle;

  bool Has(uint8_t operation) const { return operation == add || operation == remove || operation == destroy; }
};

// In the order of Op::body.
inline constexpr ObjectKind kObjectKinds[] = {
    {"table", NFT_MSG_NEWTABLE, NFT_MSG_DELTABLE, 26, NFTA_TABLE_NAME, 0, NFTA_TABLE_HANDLE},
    {"chain", NFT_MSG_NEWCHAIN, NFT_MSG_DELCHAIN, 27, NFTA_CHAIN_TABLE, NFTA_CHAIN_NAME, NFTA_CHAIN_HANDLE},
    {"rule", NFT_MSG_NEWRULE, NFT_MSG_DELRULE, 28, NFTA_RULE_TABLE, NFTA_RULE_CHAIN, NFTA_RULE_HANDLE},
    {"set", NFT_MSG_NEWSET, NFT_MSG_DELSET, 29, NFTA_SET_TABLE, NFTA_SET_NAME, NFTA_SET_HANDLE},
    {"elements", NFT_MSG_NEWSETELEM, NFT_MSG_DELSETELEM, 30, NFTA_SET_ELEM_LIST_TABLE, NFTA_SET_ELEM_LIST_SET, 0},
    {"flowtable", NFT_MSG_NEWFLOWTABLE, NFT_MSG_DELFLOWTABLE, 32, NFTA_FLOWTABLE_TABLE, NFTA_FLOWTABLE_NAME,
     NFTA_FLOWTABLE_HANDLE},
    {"object", NFT_MSG_NEWOBJ, NFT_MSG_DELOBJ, 31, NFTA_OBJ_TABLE, NFTA_OBJ_NAME, NFTA_OBJ_HANDLE},
};
static_assert(std::size(kObjectKinds) == std::variant_size_v<decltype(Op::body)>);

// Returns the kind whose message this NFT_MSG_* is, or nullptr.
inline const ObjectKind* FindKind(uint8_t operation) {
  for (const ObjectKind& kind : kObjectKinds) {
    if (kind.Has(operation)) return &kind;
  }
  return nullptr;
}

}  // namespace nftp
