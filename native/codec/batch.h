// One transaction: its operations, its netlink bytes, and the way back from a sequence number to an operation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "codec/failure.h"
#include "codec/message_decoder.h"
#include "codec/model.h"

namespace nftp {

struct BatchOptions {
  std::optional<uint32_t> expect_generation;
  bool dry_run = false;
};

// Size of the largest batch that can be sent, in bytes. sendmsg(2) takes at most MAX_RW_COUNT of linux/fs.h, which is
// INT_MAX rounded down to a whole page. It silently cuts off the rest. SO_SNDBUF, an int that the kernel doubles,
// allows more.
size_t LargestBatch();
// The error for a batch that is larger than this.
Failure BatchTooLarge();

// Zeroed memory. Pages of a large region cost nothing until they are touched, so its size may be an upper bound. A
// small region comes from the heap, because unmapping memory costs an interrupt on every processor that runs one of our
// threads.
class Region {
 public:
  Region() = default;
  explicit Region(size_t size);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  Region(Region&& other) noexcept { swap(other); }
  Region& operator=(Region&& other) noexcept {
    swap(other);
    return *this;
  }

  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  static constexpr size_t kSmall = 1 << 14;

  void swap(Region& other) noexcept;
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

// Life of a batch: AddOp for every operation, Reserve once, the packed element records copied to Source(), Encode.
//
// The records are copied to the end of the region that will hold the netlink bytes, and Encode writes from its start:
//
//   | netlink bytes written so far >     free     | packed records not yet read |
//
// An encoded record is never shorter than its packed form, so the writer cannot overtake the reader. The batch needs no
// more memory than its netlink bytes, and JS may change its buffers freely after the copy.
class Batch {
 public:
  explicit Batch(BatchOptions options) : options_(options) {}

  // Throws Failure "too-large" when the operations so far cannot be sent in one batch.
  void AddOp(Op op);
  const std::vector<Op>& ops() const { return ops_; }
  const BatchOptions& options() const { return options_; }

  // Allocates the region. AddOp must not be called afterwards.
  void Reserve();
  // All packed records go here, in the order of the operations.
  uint8_t* Source() const { return region_.data() + region_.size() - source_size_; }
  // One packed record. Do not call it after Encode.
  uint8_t* Record(uint32_t op, uint64_t record) const;
  // Whether listeners would receive events for very many objects. The kernel first builds one message per object (a
  // page of memory and a microsecond) and keeps all of them until the commit is done.
  bool loud() const { return objects_ > kLoudObjects; }

  // Maximum number of bytes that Encode writes.
  size_t bound() const { return region_.size(); }
  // Encodes with sequence numbers from `seq` (the BATCH_BEGIN) up. Call it once. Stops at `limit` bytes and returns
  // false if they do not suffice; the batch must not be sent then.
  bool Encode(uint32_t seq, size_t limit);
  const uint8_t* data() const { return region_.data(); }
  size_t size() const { return size_; }
  size_t messages() const { return messages_.size(); }
  uint32_t first_seq() const { return first_seq_; }
  // Sequence number of the last operation's message, which asks for an acknowledgement.
  uint32_t last_seq() const { return first_seq_ + static_cast<uint32_t>(messages_.size()); }

  // The fault that an error reply describes. Returns nothing if the error concerns the batch as a whole.
  std::optional<Fault> FaultOf(const ErrorReply& reply) const;
  // Describes the fault in words.
  std::string Describe(const Fault& fault, const std::optional<uint32_t>& offset) const;

  // Frees the memory; the operations stay.
  void Release() { region_ = Region(); }

 private:
  struct Message {
    uint64_t offset;
    uint64_t first_record;
    uint32_t op;
  };
  size_t EncodeElements(uint32_t index, const uint8_t** source, size_t at, size_t limit);

  static constexpr uint64_t kLoudObjects = 1000;

  BatchOptions options_;
  std::vector<Op> ops_;
  uint64_t objects_ = 0;
  size_t bound_ = 0;
  size_t least_ = 0;  // minimum number of bytes that Encode writes
  size_t source_size_ = 0;
  Region region_;
  size_t size_ = 0;
  uint32_t first_seq_ = 0;
  std::vector<Message> messages_;
};

}  // namespace nftp
