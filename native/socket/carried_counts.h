// Counters of elements that a transaction replaces. They are read right before it is sent, as initial values of the new
// elements.
#pragma once

#include <linux/netlink.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "codec/batch.h"

namespace nftp {

class CarriedCounts {
 public:
  // The batch must not be encoded yet.
  explicit CarriedCounts(const Batch& batch);

  size_t size() const { return elements_.size(); }
  // Writes requests for the elements from `first` on, numbered from `seq` up. Returns the number of requests to send at
  // once.
  size_t Request(size_t first, uint32_t seq, std::vector<uint8_t>* requests) const;
  // Stores the answer for this element in its record. Without an answer the record keeps its count.
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
