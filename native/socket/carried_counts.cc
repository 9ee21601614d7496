#include "socket/carried_counts.h"

#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "codec/attr.h"
#include "codec/element_codec.h"
#include "codec/message_decoder.h"
#include "codec/op_codec.h"

namespace nftp {

namespace {

// Each answer waits in the socket's buffer until all are there, and takes a KiB of it.
constexpr size_t kMostAtOnce = 128;
// A counter's column: packets, bytes.
constexpr size_t kCounterBytes = 2 * sizeof(uint64_t);

// Names hold no NUL.
std::string Id(uint8_t family, std::string_view table, std::string_view set, std::string_view key) {
  std::string id(1, static_cast<char>(family));
  return id.append(table).append(1, '\0').append(set).append(1, '\0').append(key);
}

size_t RequestBound(const Op& op, const ElementsOp& elements) {
  return sizeof(nlmsghdr) + sizeof(nfgenmsg) + 6 * kAttrHeader + Align4(op.ref.table.size() + 1) +
         Align4(elements.set.size() + 1) + Align4(elements.layout.key_len);
}

}  // namespace

CarriedCounts::CarriedCounts(Batch* batch) : batch_(batch) {
  for (uint32_t op = 0; op < batch->ops().size(); ++op) {
    const auto* elements = std::get_if<ElementsOp>(&batch->ops()[op].body);
    if (elements == nullptr) continue;
    const TableRef& table = batch->ops()[op].ref;
    for (const uint32_t record : elements->carried) {
      const uint8_t* const at = batch->Record(op, record);
      const uint8_t* const counter = at + elements->layout.stride() - kCounterBytes;
      const std::string_view key(reinterpret_cast<const char*>(at), elements->layout.key_len);
      by_key_.try_emplace(Id(table.family, table.table, elements->set, key), elements_.size());
      elements_.push_back({op, record, {Load64(counter), Load64(counter + sizeof(uint64_t)), 0}});
    }
  }
}

size_t CarriedCounts::Request(size_t first, uint32_t seq, std::vector<uint8_t>* requests) const {
  requests->clear();
  const size_t count = std::min(kMostAtOnce, elements_.size() - first);
  for (size_t i = 0; i < count; ++i) {
    const Element& element = elements_[first + i];
    const Op& op = batch_->ops()[element.op];
    const auto& elements = std::get<ElementsOp>(op.body);
    const size_t at = requests->size();
    requests->resize(at + RequestBound(op, elements));
    AttrWriter writer(
        BeginMessage(requests->data() + at, NFT_MSG_GETSETELEM, 0, op.ref.family, seq + static_cast<uint32_t>(i)),
        requests->data() + requests->size());
    writer.String(NFTA_SET_ELEM_LIST_TABLE, op.ref.table);
    writer.String(NFTA_SET_ELEM_LIST_SET, elements.set);
    nlattr* const list = writer.Nest(NFTA_SET_ELEM_LIST_ELEMENTS);
    nlattr* const nest = writer.Nest(NFTA_LIST_ELEM);
    nlattr* const key = writer.Nest(NFTA_SET_ELEM_KEY);
    writer.Put(NFTA_DATA_VALUE, batch_->Record(element.op, element.record), elements.layout.key_len);
    writer.EndNest(key);
    writer.EndNest(nest);
    writer.EndNest(list);
    requests->resize(at + writer.message()->nlmsg_len);
  }
  return count;
}

void CarriedCounts::Read(size_t element, const nlmsghdr* answer) {
  if (element >= elements_.size()) return;
  Element& carried = elements_[element];
  const auto& elements = std::get<ElementsOp>(batch_->ops()[carried.op].body);
  ForEachCounter(answer, [&](std::string_view, const ElementCounter& counter) {
    carried.count.packets = counter.packets;
    carried.count.bytes = counter.bytes;
    uint8_t* const record = batch_->Record(carried.op, carried.record);
    const uint64_t column[] = {counter.packets, counter.bytes};
    static_assert(sizeof column == kCounterBytes);
    std::memcpy(record + elements.layout.stride() - kCounterBytes, column, sizeof column);
  });
}

void CarriedCounts::End(const nlmsghdr* deletion) {
  if (elements_.empty() || deletion->nlmsg_type != (NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_DELSETELEM)) return;
  const uint8_t family = FamilyOf(deletion);
  const std::string_view table = TableOfElements(deletion);
  const std::string_view set = SetOfElements(deletion);
  ForEachCounter(deletion, [&](std::string_view key, const ElementCounter& counter) {
    const auto found = by_key_.find(Id(family, table, set, key));
    if (found == by_key_.end()) return;
    CarriedCount& count = elements_[found->second].count;
    count.missed = counter.packets - std::min(counter.packets, count.packets);
  });
}

std::vector<CarriedCounts::OfOp> CarriedCounts::Take() {
  std::vector<OfOp> ops;
  for (const Element& element : elements_) {
    if (ops.empty() || ops.back().op != element.op) ops.push_back({element.op, {}});
    ops.back().counts.push_back(element.count);
  }
  return ops;
}

}  // namespace nftp
