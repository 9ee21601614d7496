// Requests to ctnetlink, as messages. Pure. Based on net/netfilter/nf_conntrack_netlink.c.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "codec/attr.h"
#include "conntrack/filter.h"
#include "conntrack/record.h"

namespace nftp {

// The fields that CT_NEW without NLM_F_CREATE changes.
struct ConntrackChange {
  std::optional<uint32_t> timeout;
  std::optional<uint32_t> mark;
  uint32_t mark_mask = UINT32_MAX;
};

// Messages to ctnetlink, one after the other in one buffer.
class ConntrackRequests {
 public:
  ConntrackRequests() { buffer_.reserve(kRoom); }

  const uint8_t* data() const { return buffer_.data(); }
  size_t size() const { return buffer_.size(); }
  void Clear() { buffer_.clear(); }

  // IPCTNL_MSG_CT_GET_STATS, or a dump of IPCTNL_MSG_CT_GET_STATS_CPU.
  void GetTotals(uint32_t seq);
  void GetCounts(uint32_t seq);
  // Requests one entry by its original tuple.
  void Get(const ConntrackRecord& key, uint32_t seq);
  // Deletes by original tuple and id.
  void Delete(const ConntrackRecord& key, uint16_t flags, uint32_t seq);
  void Create(const ConntrackRecord& entry, uint32_t seq);
  void Change(const ConntrackRecord& key, const ConntrackChange& change, uint32_t seq);
  // Starts a dump with as much of the pattern as the kernel can filter by: it may send more entries, never fewer. With
  // `plain`, filters only by family.
  void Dump(const ConntrackPattern& pattern, bool plain, uint32_t seq);

 private:
  static constexpr size_t kRoom = 1024;

  std::vector<uint8_t> buffer_;
};

}  // namespace nftp
