// Decides which entries a dump need not hand over: entries whose original destination is no service, and entries
// answered by an endpoint of their service. src/conntrack/reconcile/prefilter.ts makes it; ConntrackPrefilter in
// src/nft/conntrack/conntrack-table.ts describes the layout.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "conntrack/record.h"

namespace nftp {

class ConntrackPrefilter {
 public:
  // `family` is AF_INET or AF_INET6.
  ConntrackPrefilter(int family, std::vector<uint8_t> destinations, std::vector<uint8_t> lists,
                     std::vector<uint8_t> endpoints);

  // Checks and indexes the constructor's arguments, once, on whichever thread comes first. Throws Failure "invalid".
  void Prepare();
  // Whether this entry need not be handed over. Call Prepare first.
  bool Skips(const ConntrackRecord& record) const;

 private:
  size_t KeyBytes() const { return address_bytes_ + 4; }
  size_t DestinationBytes() const { return address_bytes_ + 8; }
  uint32_t ListOf(const uint8_t* destination) const;
  void Check() const;
  template <size_t kAddress>
  void SortLists();
  template <size_t kAddress>
  void Index();
  template <size_t kAddress>
  bool SkipsIn(const ConntrackRecord& record) const;
  // Returns false if some destination with this key does not list the source.
  template <size_t kAddress>
  bool InOrder(const uint8_t* key, const uint8_t* source) const;
  template <size_t kAddress>
  bool Lists(uint32_t list, const uint8_t* source) const;

  const int family_;
  const size_t address_bytes_;
  const std::vector<uint8_t> destinations_;
  const std::vector<uint8_t> list_bytes_;
  std::vector<uint8_t> endpoints_;
  std::vector<uint32_t> lists_;
  // Open addressing: number of a destination + 1, or 0 if free. Empty before Prepare.
  std::vector<uint32_t> slots_;
  // Ports, in network order, that some destination has at any address.
  std::bitset<UINT16_MAX + 1> any_address_;
  std::mutex mutex_;
};

}  // namespace nftp
