// What a dump need not hand over: entries whose original destination matters to nobody, and those that are answered as
// they should be. Made by src/conntrack/screen.ts; the layout is described in src/conntrack/types.ts (ConntrackScreen).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "conntrack_record.h"

namespace nftp {

class ConntrackScreen {
 public:
  // `family` is AF_INET or AF_INET6.
  ConntrackScreen(int family, std::vector<uint8_t> destinations, std::vector<uint8_t> lists,
                  std::vector<uint8_t> endpoints);

  // Checks and indexes what the constructor took; once, on whatever thread comes first. Throws Failure "invalid".
  void Prepare();
  // After Prepare. True: nobody asks for this entry.
  bool LeavesOut(const ConntrackRecord& record) const;

 private:
  // An address, protocol and zero, port in network order; of an endpoint: an address, port, two zeros.
  using Key = std::array<uint8_t, 20>;

  size_t KeyBytes() const { return address_bytes_ + 4; }
  size_t DestinationBytes() const { return address_bytes_ + 8; }
  uint32_t ListOf(const uint8_t* destination) const;
  void Check() const;
  void Index();
  void SortLists();
  // False: some destination of this key does not list the source.
  bool InOrder(const Key& key, const Key& source) const;

  const int family_;
  const size_t address_bytes_;
  const std::vector<uint8_t> destinations_;
  const std::vector<uint8_t> list_bytes_;
  std::vector<uint8_t> endpoints_;
  std::vector<uint32_t> lists_;
  // Open addressing: number of a destination + 1; 0: free. Empty: not prepared.
  std::vector<uint32_t> slots_;
  std::mutex mutex_;
};

}  // namespace nftp
