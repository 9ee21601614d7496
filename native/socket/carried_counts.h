// Counters of elements that a transaction replaces: read right before it is sent, for the new elements to begin with.
#pragma once

#include <linux/netlink.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "codec/batch.h"

namespace nftp {

class CarriedCounts {
 public:
  // Of a batch that is not encoded yet.
  explicit CarriedCounts(const Batch& batch);

  size_t size() const { return elements_.size(); }
  // Writes requests for the elements from `first` on, numbered from `seq` up. Returns how many go at once.
  size_t Request(size_t first, uint32_t seq, std::vector<uint8_t>* requests) const;
  // Puts the answer for this element into its record. Without an answer the record keeps its count.
  void Read(size_t element, const nlmsghdr* answer) const;

 private:
  struct Element {
    uint32_t op = 0;
    uint64_t record = 0;
  };

  const Batch& batch_;
  std::vector<Element> elements_;
};

}  // namespace nftp
