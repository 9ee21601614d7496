// Maps verdicts and families to their names in src/netlink/kernel.ts.
#pragma once

#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

#include <cstdint>
#include <string_view>

namespace nftp {

struct VerdictName {
  std::string_view name;
  int32_t code;
};

inline constexpr VerdictName kVerdicts[] = {
    {"accept", NF_ACCEPT},  {"drop", NF_DROP},   {"continue", NFT_CONTINUE}, {"break", NFT_BREAK},
    {"return", NFT_RETURN}, {"queue", NF_QUEUE}, {"jump", NFT_JUMP},         {"goto", NFT_GOTO},
};

inline const VerdictName* FindVerdict(std::string_view name) {
  for (const VerdictName& verdict : kVerdicts) {
    if (verdict.name == name) return &verdict;
  }
  return nullptr;
}

inline std::string_view VerdictText(int32_t code) {
  for (const VerdictName& verdict : kVerdicts) {
    if (verdict.code == code) return verdict.name;
  }
  return "?";
}

struct FamilyName {
  std::string_view name;
  uint8_t number;
};

inline constexpr FamilyName kFamilies[] = {
    {"inet", NFPROTO_INET}, {"ip", NFPROTO_IPV4},       {"ip6", NFPROTO_IPV6},
    {"arp", NFPROTO_ARP},   {"bridge", NFPROTO_BRIDGE}, {"netdev", NFPROTO_NETDEV},
};

inline uint8_t FindFamily(std::string_view name) {
  for (const FamilyName& family : kFamilies) {
    if (family.name == name) return family.number;
  }
  return 0;
}

inline std::string_view FamilyText(uint8_t number) {
  for (const FamilyName& family : kFamilies) {
    if (family.number == number) return family.name;
  }
  return "?";
}

}  // namespace nftp
