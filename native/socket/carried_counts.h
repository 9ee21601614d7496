// Counters of elements that a transaction replaces: read right before it is sent, for the new elements to begin with,
// and told by the kernel with the transaction (NLM_F_ECHO), as they were in the end. nf_tables_commit makes that
// message after packets see the new generation, and before the element goes (nf_tables_setelem_notify,
// nft_setelem_remove), on every kernel that has counters of elements.
#pragma once

#include <linux/netlink.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "codec/batch.h"

namespace nftp {

struct CarriedCount {
  // What the new element begins with.
  uint64_t packets = 0;
  uint64_t bytes = 0;
  // Packets that the former one counted after it was read.
  uint64_t missed = 0;
};

class CarriedCounts {
 public:
  // Of one operation, in the order of ElementsOp::carried.
  struct OfOp {
    uint32_t op = 0;
    std::vector<CarriedCount> counts;
  };

  // Of a batch that is not encoded yet.
  explicit CarriedCounts(Batch* batch);

  size_t size() const { return elements_.size(); }
  // Requests for those from `first` on, as many as go at once, numbered from `seq` up. Returns how many.
  size_t Request(size_t first, uint32_t seq, std::vector<uint8_t>* requests) const;
  // The answer for this element, which its record begins with. One that does not come leaves the record as it is.
  void Read(size_t element, const nlmsghdr* answer);
  // Deleted elements, as they were in the end. The batch may be encoded by then.
  void End(const nlmsghdr* deletion);
  std::vector<OfOp> Take();

 private:
  struct Element {
    uint32_t op = 0;
    uint64_t record = 0;
    CarriedCount count;
  };

  Batch* const batch_;
  std::vector<Element> elements_;
  // By set and key.
  std::unordered_map<std::string, size_t> by_key_;
};

}  // namespace nftp
