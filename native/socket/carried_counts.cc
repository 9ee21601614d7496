#include "socket/carried_counts.h"

#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>

#include <algorithm>
#include <cstring>

#include "codec/attr.h"
#include "codec/element_codec.h"
#include "codec/op_codec.h"

namespace nftp {

namespace {

// Each answer occupies 1 KiB of the socket's buffer until all have arrived.
constexpr size_t kMostAtOnce = 128;

size_t RequestBound(const Op& op, const ElementsOp& elements) {
  return sizeof(nlmsghdr) + sizeof(nfgenmsg) + 6 * kAttrHeader + Align4(op.ref.table.size() + 1) +
         Align4(elements.set.size() + 1) + Align4(elements.layout.key_len);
}

}  // namespace

CarriedCounts::CarriedCounts(const Batch& batch) : batch_(batch) {
  for (uint32_t op = 0; op < batch.ops().size(); ++op) {
    const auto* elements = std::get_if<ElementsOp>(&batch.ops()[op].body);
    if (elements == nullptr) continue;
    for (const uint32_t record : elements->carried) elements_.push_back({op, record});
  }
}

size_t CarriedCounts::Request(size_t first, uint32_t seq, std::vector<uint8_t>* requests) const {
  requests->clear();
  const size_t count = std::min(kMostAtOnce, elements_.size() - first);
  for (size_t i = 0; i < count; ++i) {
    const Element& element = elements_[first + i];
    const Op& op = batch_.ops()[element.op];
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
    const ElementLayout& layout = elements.layout;
    const uint8_t* const record = batch_.Record(element.op, element.record);
    if (layout.flags && (Load32(record + layout.flags_at()) & NFT_SET_ELEM_CATCHALL) != 0) {
      writer.U32(NFTA_SET_ELEM_FLAGS, NFT_SET_ELEM_CATCHALL);
    } else {
      nlattr* const key = writer.Nest(NFTA_SET_ELEM_KEY);
      writer.Put(NFTA_DATA_VALUE, record, layout.key_len);
      writer.EndNest(key);
    }
    writer.EndNest(nest);
    writer.EndNest(list);
    requests->resize(at + writer.message()->nlmsg_len);
  }
  return count;
}

void CarriedCounts::Read(size_t element, const nlmsghdr* answer) const {
  if (element >= elements_.size()) return;
  const std::optional<ElementCounter> counter = CounterIn(answer);
  if (!counter) return;
  const auto [op, record] = elements_[element];
  const ElementLayout& layout = std::get<ElementsOp>(batch_.ops()[op].body).layout;
  // A record ends with its counter.
  const uint64_t column[] = {counter->packets, counter->bytes};
  std::memcpy(batch_.Record(op, record) + layout.stride() - sizeof column, column, sizeof column);
}

}  // namespace nftp
