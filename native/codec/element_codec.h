// Packed element records (ElementBatch) to NFT_MSG_NEWSETELEM / DELSETELEM messages and back.
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

// How an operation's records are spread over messages.
struct ElementPlan {
  size_t record_bound = 0;  // bytes of one encoded record at most; never less than the packed record
  uint64_t records_per_message = 0;
  uint64_t messages = 0;
  size_t message_bound = 0;  // header of each message
  size_t least = 0;          // bytes of all records at least
  size_t total_bound() const { return total_; }
  size_t total_ = 0;
};
ElementPlan PlanElements(const Op& op, const ElementsOp& elements);

// Encodes one operation's records, message by message. The packed source may lie behind the output in the same
// region: a record is read before the bytes that it becomes are written, and record_bound keeps the output behind.
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
};

// Which record of an element message the byte at `offset` of it belongs to, counted from the message's first.
// Returns false when it belongs to none.
bool RecordAtOffset(const uint8_t* message, size_t offset, uint64_t* record);

struct ElementCounter {
  uint64_t packets = 0;
  uint64_t bytes = 0;
};
// Returns the counter of a message's first element, or nothing if the message has no element or that has no counter.
std::optional<ElementCounter> CounterIn(const nlmsghdr* message);

// The parts of an element that its packed record cannot hold.
struct ElementExtra {
  uint32_t record = 0;
  std::string object;  // name of the stateful object that it maps to; empty: none
  Bytes userdata;
};

// Collects dumped elements as packed records.
class ElementCollector {
 public:
  explicit ElementCollector(const SetInfo& set);

  // Takes every element of one NFT_MSG_NEWSETELEM.
  void Add(const nlmsghdr* message);
  void Reset();

  const ElementLayout& layout() const { return layout_; }
  uint64_t count() const { return count_; }
  // Puts the elements in the order of their keys' bytes, so that those of one list lie side by side. False when one was
  // sent more than once, and with that others perhaps not at all. A set without a size is an rhashtable, which a worker
  // resizes behind the commit that filled it. A dump is a walk per datagram that passes over as many elements as were
  // sent before (nft_rhash_walk): where the order changed in between, it sends some twice and as many never. The
  // generation is the same all along, so NLM_F_DUMP_INTR does not come. Intervals, and sets that packets change, stay
  // as they came.
  bool Sort();
  std::vector<uint8_t> TakeBytes() { return std::move(bytes_); }
  const std::vector<Verdict>& verdicts() const { return verdicts_; }
  // In no order.
  const std::vector<ElementExtra>& extras() const { return extras_; }

 private:
  void AddElement(const AttrView& nest);
  uint32_t InternVerdict(const AttrView& data);
  // Gives all records so far the columns of `wider`.
  void Widen(const ElementLayout& wider);

  const ElementLayout initial_;
  // No interval, whose ends may share a key, and nothing that packets and time change without a commit.
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
