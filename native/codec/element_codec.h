// Converts packed element records (ElementBatch) to NFT_MSG_NEWSETELEM / DELSETELEM messages and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "codec/attr.h"
#include "codec/model.h"

namespace nftp {

// NFTA_SET_ELEM_LIST_ELEMENTS must stay below 64 KiB: attribute lengths have 16 bits.
constexpr size_t kMaxElementList = 65532;
constexpr uint32_t kMaxKeyLen = 64;
constexpr uint32_t kMaxDataLen = 64;

// How an operation's records are distributed over messages.
struct ElementPlan {
  size_t record_bound = 0;  // maximum size of one encoded record; never less than the packed record
  uint64_t records_per_message = 0;
  uint64_t messages = 0;
  size_t message_bound = 0;  // header of each message
  size_t least = 0;          // minimum size of all records, in bytes
  size_t total_bound() const { return total_; }
  size_t total_ = 0;
};
ElementPlan PlanElements(const Op& op, const ElementsOp& elements);

// Encodes one operation's records, message by message. The packed source may follow the output in the same region. Each
// record is read before its encoded bytes are written, and record_bound keeps the output from overtaking the source.
class ElementEncoder {
 public:
  ElementEncoder(const Op& op, const ElementsOp& elements, const uint8_t* source);

  uint64_t next_record() const { return record_; }
  bool done() const { return record_ >= elements_.count; }
  // Writes the next message and returns its length.
  size_t EncodeMessage(uint32_t seq, uint8_t* at, const uint8_t* limit);

 private:
  uint8_t* EncodeRecord(uint8_t* out);

  const Op& op_;
  const ElementsOp& elements_;
  const ElementPlan plan_;
  const bool removes_;
  const uint8_t* source_;
  uint64_t record_ = 0;
  std::vector<Bytes> verdict_data_;  // NFTA_SET_ELEM_DATA of each verdict, ready to copy
  size_t extra_ = 0;                 // the first of the extras whose record is not written yet
};

struct ElementCounter {
  uint64_t packets = 0;
  uint64_t bytes = 0;
};
// Returns the counter of a message's first element, or nothing if there is no element or it has no counter.
std::optional<ElementCounter> CounterIn(const nlmsghdr* message);

// Collects dumped elements as packed records.
class ElementCollector {
 public:
  explicit ElementCollector(const SetInfo& set);

  // Adds every element of one NFT_MSG_NEWSETELEM.
  void Add(const nlmsghdr* message);
  void Reset();

  const ElementLayout& layout() const { return layout_; }
  uint64_t count() const { return count_; }
  // Sorts the elements by the bytes of their keys, so that the elements of one list are adjacent. Returns false if an
  // element was sent twice, because others may then be missing.
  // A set without a size is an rhashtable, which a worker resizes after the commit that filled it. Each datagram of a
  // dump walks the table and skips as many elements as were sent before (nft_rhash_walk). If the order has changed in
  // between, the kernel sends some elements twice and misses as many. The generation does not change, so
  // NLM_F_DUMP_INTR is not set.
  // Intervals, and sets that packets change, keep the order in which they arrived.
  bool Sort();
  std::vector<uint8_t> TakeBytes() { return std::move(bytes_); }
  const std::vector<Verdict>& verdicts() const { return verdicts_; }
  // The extras, in no particular order.
  const std::vector<ElementExtra>& extras() const { return extras_; }

 private:
  void AddElement(const AttrView& nest);
  uint32_t InternVerdict(const AttrView& data);
  // Converts all records so far to the columns of `wider`.
  void Widen(const ElementLayout& wider);

  const ElementLayout initial_;
  // The set has no intervals, whose ends may share a key, and changes only through commits, not through packets or
  // time.
  const bool settled_;
  const uint64_t default_timeout_;
  ElementLayout layout_;
  uint64_t count_ = 0;
  std::vector<uint8_t> bytes_;
  std::vector<Verdict> verdicts_;
  std::vector<ElementExtra> extras_;
  std::unordered_map<std::string, uint32_t> verdict_index_;
};

}  // namespace nftp
