#include "codec/element_codec.h"

#include <arpa/inet.h>
#include <endian.h>
#include <linux/netfilter/nf_tables.h>

#include <algorithm>
#include <cstring>

#include "codec/expr_codec.h"
#include "codec/op_codec.h"

namespace nftp {

namespace {

// The inner loop writes attributes itself: a whole message's bounds are checked once, because a call per attribute is
// measurably slower.
uint8_t* PutHeader(uint8_t* out, uint16_t type, size_t payload) {
  const nlattr header{static_cast<uint16_t>(kAttrHeader + payload), type};
  std::memcpy(out, &header, sizeof header);
  return out + sizeof header;
}

uint8_t* PutBytes(uint8_t* out, uint16_t type, const void* data, size_t length) {
  out = PutHeader(out, type, length);
  std::memcpy(out, data, length);
  std::memset(out + length, 0, Align4(length) - length);
  return out + Align4(length);
}

uint8_t* PutNestedValue(uint8_t* out, uint16_t type, const uint8_t* data, size_t length) {
  out = PutHeader(out, type | NLA_F_NESTED, kAttrHeader + Align4(length));
  return PutBytes(out, NFTA_DATA_VALUE, data, length);
}

// Bytes of the attributes that EncodeRecord writes for it.
size_t ExtraSize(const ElementExtra& extra) {
  return (extra.object.empty() ? 0 : kAttrHeader + Align4(extra.object.size() + 1)) +
         (extra.userdata.empty() ? 0 : kAttrHeader + Align4(extra.userdata.size()));
}

uint8_t* Put32(uint8_t* out, uint16_t type, uint32_t value) {
  const uint32_t wire = htonl(value);
  return PutBytes(out, type, &wire, sizeof wire);
}

uint8_t* Put64(uint8_t* out, uint16_t type, uint64_t value) {
  const uint64_t wire = htobe64(value);
  return PutBytes(out, type, &wire, sizeof wire);
}

constexpr char kCounterName[] = "counter";
constexpr size_t kCounterData = 2 * (kAttrHeader + sizeof(uint64_t));
// NFTA_SET_ELEM_EXPR with its name and data.
constexpr size_t kCounterBound = 2 * kAttrHeader + Align4(sizeof kCounterName) + kAttrHeader + kCounterData;

uint8_t* PutCounter(uint8_t* out, uint64_t packets, uint64_t bytes) {
  out = PutHeader(out, NFTA_SET_ELEM_EXPR | NLA_F_NESTED, kCounterBound - kAttrHeader);
  out = PutBytes(out, NFTA_EXPR_NAME, kCounterName, sizeof kCounterName);
  out = PutHeader(out, NFTA_EXPR_DATA | NLA_F_NESTED, kCounterData);
  out = Put64(out, NFTA_COUNTER_BYTES, bytes);
  return Put64(out, NFTA_COUNTER_PACKETS, packets);
}

}  // namespace

ElementPlan PlanElements(const Op& op, const ElementsOp& elements) {
  const ElementLayout& layout = elements.layout;
  const size_t key = 2 * kAttrHeader + Align4(layout.key_len);
  // An element with flags may be the catch-all element, which has no key, or an interval's end, which has no data.
  constexpr size_t kFlags = 8;
  ElementPlan plan;
  plan.record_bound = kAttrHeader + key * (layout.key_end ? 2 : 1);
  size_t record_least = layout.flags ? kAttrHeader + kFlags : plan.record_bound;
  if (!Removes(op.verb)) {
    if (layout.verdict_map && !layout.flags) record_least += VerdictDataBound(Verdict());
    if (layout.verdict_map) {
      size_t longest = 0;
      for (const Verdict& verdict : elements.verdicts) longest = std::max(longest, VerdictDataBound(verdict));
      plan.record_bound += longest;
    } else if (layout.data_len != 0) {
      plan.record_bound += 2 * kAttrHeader + Align4(layout.data_len);
      if (!layout.flags) record_least += 2 * kAttrHeader + Align4(layout.data_len);
    }
    plan.record_bound +=
        (layout.timeouts ? 12u : 0u) + (layout.expirations ? 12u : 0u) + (layout.counters ? kCounterBound : 0u);
    size_t longest = 0;
    for (const ElementExtra& extra : elements.extras) longest = std::max(longest, ExtraSize(extra));
    plan.record_bound += longest;
  }
  if (layout.flags) plan.record_bound += kFlags;
  plan.least = elements.count * record_least;
  plan.message_bound = sizeof(nlmsghdr) + sizeof(nfgenmsg) + 4 * kAttrHeader + Align4(op.ref.table.size() + 1) +
                       Align4(elements.set.size() + 1) + 8;
  plan.records_per_message = std::max<uint64_t>(1, (kMaxElementList - kAttrHeader) / plan.record_bound);
  plan.messages = (elements.count + plan.records_per_message - 1) / plan.records_per_message;
  // The packed records are located after the output while it is written (see Batch), so reserve the larger of the two
  // sizes.
  plan.total_ =
      plan.messages * plan.message_bound + elements.count * std::max<size_t>(plan.record_bound, layout.stride());
  return plan;
}

ElementEncoder::ElementEncoder(const Op& op, const ElementsOp& elements, const uint8_t* source)
    : op_(op), elements_(elements), plan_(PlanElements(op, elements)), removes_(Removes(op.verb)), source_(source) {
  if (removes_) return;
  for (const Verdict& verdict : elements.verdicts) {
    Bytes buffer(sizeof(nlmsghdr) + VerdictDataBound(verdict));
    nlmsghdr* message = mnl_nlmsg_put_header(buffer.data());
    AttrWriter writer(message, buffer.data() + buffer.size());
    EncodeVerdictData(writer, NFTA_SET_ELEM_DATA, verdict);
    verdict_data_.emplace_back(buffer.begin() + sizeof(nlmsghdr), buffer.begin() + message->nlmsg_len);
  }
}

uint8_t* ElementEncoder::EncodeRecord(uint8_t* out) {
  const ElementLayout& layout = elements_.layout;
  uint8_t record[2 * kMaxKeyLen + kMaxDataLen + 36];
  std::memcpy(record, source_ + record_ * layout.stride(), layout.stride());
  const uint8_t* key = record;
  const uint8_t* key_end = key + layout.key_len;
  const uint8_t* data = layout.key_end ? key_end + layout.key_len : key_end;
  const uint8_t* tail = data + layout.data_len;
  const uint32_t flags = layout.flags ? Load32(tail) : 0;
  if (layout.flags) tail += sizeof flags;

  uint8_t* const start = out;
  out += kAttrHeader;
  if (flags != 0) out = Put32(out, NFTA_SET_ELEM_FLAGS, flags);
  if ((flags & NFT_SET_ELEM_CATCHALL) == 0) {
    out = PutNestedValue(out, NFTA_SET_ELEM_KEY, key, layout.key_len);
    if (layout.key_end) out = PutNestedValue(out, NFTA_SET_ELEM_KEY_END, key_end, layout.key_len);
  }
  // The end of an interval has neither data nor timeouts (nft_add_set_elem), and a deletion needs only the key.
  if (!removes_ && (flags & NFT_SET_ELEM_INTERVAL_END) == 0) {
    if (layout.verdict_map) {
      const uint32_t index = Load32(data);
      if (index >= verdict_data_.size()) {
        throw Failure::Invalid("elements: verdict index " + std::to_string(index) + " of record " +
                               std::to_string(record_) + " is not in verdicts");
      }
      const Bytes& verdict = verdict_data_[index];
      std::memcpy(out, verdict.data(), verdict.size());
      out += verdict.size();
    } else if (layout.data_len != 0) {
      out = PutNestedValue(out, NFTA_SET_ELEM_DATA, data, layout.data_len);
    }
    if (layout.timeouts) {
      if (const uint64_t timeout = Load64(tail); timeout != 0) out = Put64(out, NFTA_SET_ELEM_TIMEOUT, timeout);
      tail += sizeof(uint64_t);
    }
    if (layout.expirations) {
      if (const uint64_t left = Load64(tail); left != 0) out = Put64(out, NFTA_SET_ELEM_EXPIRATION, left);
      tail += sizeof(uint64_t);
    }
    if (layout.counters) {
      // Without this attribute the kernel starts the counter at zero.
      const uint64_t packets = Load64(tail);
      if (packets != 0) out = PutCounter(out, packets, Load64(tail + sizeof packets));
    }
  }
  if (!removes_ && extra_ < elements_.extras.size() && elements_.extras[extra_].record == record_) {
    const ElementExtra& extra = elements_.extras[extra_++];
    if (!extra.object.empty()) out = PutBytes(out, NFTA_SET_ELEM_OBJREF, extra.object.c_str(), extra.object.size() + 1);
    if (!extra.userdata.empty()) {
      out = PutBytes(out, NFTA_SET_ELEM_USERDATA, extra.userdata.data(), extra.userdata.size());
    }
  }
  PutHeader(start, NFTA_LIST_ELEM | NLA_F_NESTED, static_cast<size_t>(out - start) - kAttrHeader);
  return out;
}

size_t ElementEncoder::EncodeMessage(uint32_t seq, uint8_t* at, const uint8_t* limit) {
  const uint64_t records = std::min(plan_.records_per_message, elements_.count - record_);
  if (static_cast<size_t>(limit - at) < plan_.message_bound + records * plan_.record_bound) {
    throw Failure::Invalid("the batch is larger than computed");
  }
  nlmsghdr* message = BeginMessage(op_, seq, at);
  AttrWriter writer(message, limit);
  writer.String(NFTA_SET_ELEM_LIST_TABLE, op_.ref.table);
  writer.String(NFTA_SET_ELEM_LIST_SET, elements_.set);
  if (elements_.set_id) writer.U32(NFTA_SET_ELEM_LIST_SET_ID, *elements_.set_id);
  nlattr* list = writer.Nest(NFTA_SET_ELEM_LIST_ELEMENTS);
  uint8_t* const start = static_cast<uint8_t*>(mnl_nlmsg_get_payload_tail(message));
  uint8_t* out = start;
  for (const uint64_t end = record_ + records; record_ < end; ++record_) out = EncodeRecord(out);
  message->nlmsg_len += static_cast<uint32_t>(out - start);
  writer.EndNest(list);
  return message->nlmsg_len;
}

namespace {

ElementLayout LayoutOf(const SetInfo& set) {
  ElementLayout layout;
  layout.key_len = set.key_len;
  layout.verdict_map = set.data_type == static_cast<uint32_t>(NFT_DATA_VERDICT);
  layout.data_len = layout.verdict_map ? 4 : set.data_len.value_or(0);
  const bool interval = (set.flags & NFT_SET_INTERVAL) != 0;
  // A range of a concatenation is one element with both ends; any other range is two elements, one with a flag.
  layout.key_end = interval && set.field_lens.size() > 1;
  layout.flags = interval && !layout.key_end;
  layout.timeouts = (set.flags & NFT_SET_TIMEOUT) != 0;
  layout.expirations = layout.timeouts;
  layout.counters = set.exprs.size() == 1 && set.exprs.front().name == kCounterName;
  return layout;
}

// Payload of the nested NFTA_DATA_VALUE, which must have this length.
const uint8_t* ValueOf(const AttrView& nest, uint32_t length, const char* what) {
  for (AttrReader reader(nest); reader.Next();) {
    if (reader.attr().type() != NFTA_DATA_VALUE) continue;
    if (reader.attr().length == length) return reader.attr().data;
    throw Failure::Invalid(std::string("elements have a ") + what + " of " + std::to_string(reader.attr().length) +
                           " bytes; expected " + std::to_string(length));
  }
  throw Malformed(std::string("an element has a ") + what + " without a value");
}

// The counter in an element's expression; zeros if the expression is not a counter.
ElementCounter CounterOf(const AttrView& expr) {
  const Attributes attrs{AttrReader(expr)};
  ElementCounter counter;
  if (attrs[NFTA_EXPR_NAME].Text() != kCounterName) return counter;
  const Attributes data{AttrReader(attrs[NFTA_EXPR_DATA])};
  data[NFTA_COUNTER_PACKETS].To(&counter.packets);
  data[NFTA_COUNTER_BYTES].To(&counter.bytes);
  return counter;
}

}  // namespace

std::optional<ElementCounter> CounterIn(const nlmsghdr* message) {
  AttrReader list{Attributes(AttrReader(message))[NFTA_SET_ELEM_LIST_ELEMENTS]};
  if (!list.Next()) return std::nullopt;
  const AttrView expr = Attributes(AttrReader(list.attr()))[NFTA_SET_ELEM_EXPR];
  return expr ? std::optional(CounterOf(expr)) : std::nullopt;
}

ElementCollector::ElementCollector(const SetInfo& set)
    : initial_(LayoutOf(set)),
      settled_((set.flags & (NFT_SET_INTERVAL | NFT_SET_TIMEOUT | NFT_SET_EVAL)) == 0),
      default_timeout_(set.timeout.value_or(0)),
      layout_(initial_) {}

void ElementCollector::Reset() {
  layout_ = initial_;
  count_ = 0;
  bytes_.clear();
  verdicts_.clear();
  extras_.clear();
  verdict_index_.clear();
}

bool ElementCollector::Sort() {
  if (!settled_) return true;
  const size_t stride = layout_.stride();
  const size_t flags_at = layout_.flags_at();
  const auto record = [&](uint32_t index) { return bytes_.data() + index * stride; };
  // The catch-all element's key is stored as zeros.
  const auto flags = [&](uint32_t index) { return layout_.flags ? Load32(record(index) + flags_at) : 0; };
  struct Place {
    uint64_t start;  // start of the key: decides nearly all comparisons without reading the records
    uint32_t index;
  };
  const auto compare = [&](const Place& a, const Place& b) {
    if (a.start != b.start) return a.start < b.start ? -1 : 1;
    if (const int order = std::memcmp(record(a.index), record(b.index), layout_.key_len); order != 0) return order;
    return flags(a.index) == flags(b.index) ? 0 : flags(a.index) < flags(b.index) ? -1 : 1;
  };
  std::vector<Place> places(count_);
  for (uint32_t i = 0; i < count_; ++i) {
    uint64_t start = 0;
    std::memcpy(&start, record(i), std::min<size_t>(sizeof start, layout_.key_len));
    places[i] = {be64toh(start), i};
  }
  std::sort(places.begin(), places.end(), [&](const Place& a, const Place& b) { return compare(a, b) < 0; });
  std::vector<uint8_t> sorted(bytes_.size());
  for (uint32_t i = 0; i < count_; ++i) {
    if (i > 0 && compare(places[i - 1], places[i]) == 0) return false;
    std::memcpy(sorted.data() + i * stride, record(places[i].index), stride);
  }
  bytes_ = std::move(sorted);
  if (!extras_.empty()) {
    std::vector<uint32_t> moved(count_);
    for (uint32_t i = 0; i < count_; ++i) moved[places[i].index] = i;
    for (ElementExtra& extra : extras_) extra.record = moved[extra.record];
  }
  return true;
}

void ElementCollector::Widen(const ElementLayout& wider) {
  std::vector<uint8_t> wide(count_ * wider.stride());
  for (uint64_t i = 0; i < count_; ++i) {
    const uint8_t* from = bytes_.data() + i * layout_.stride();
    uint8_t* to = wide.data() + i * wider.stride();
    const auto move = [&](bool had, bool has, size_t length) {
      if (had && has) std::memcpy(to, from, length);
      if (had) from += length;
      if (has) to += length;
    };
    const uint8_t* key = from;
    move(true, true, layout_.key_len);
    if (wider.key_end && !layout_.key_end) {
      // An element without an end is a range of one key.
      std::memcpy(to, key, layout_.key_len);
      to += layout_.key_len;
    } else {
      move(layout_.key_end, wider.key_end, layout_.key_len);
    }
    move(true, true, layout_.data_len);
    move(layout_.flags, wider.flags, 4);
    move(layout_.timeouts, wider.timeouts, 8);
    move(layout_.expirations, wider.expirations, 8);
    move(layout_.counters, wider.counters, 16);
  }
  bytes_ = std::move(wide);
  layout_ = wider;
}

uint32_t ElementCollector::InternVerdict(const AttrView& data) {
  for (AttrReader reader(data); reader.Next();) {
    if (reader.attr().type() != NFTA_DATA_VERDICT) continue;
    Verdict verdict;
    if (!DecodeVerdict(reader.attr(), &verdict)) throw Malformed("an element has an unknown verdict");
    const std::string name = std::to_string(verdict.code) + " " + verdict.chain;
    const auto [entry, added] = verdict_index_.try_emplace(name, static_cast<uint32_t>(verdicts_.size()));
    if (added) verdicts_.push_back(std::move(verdict));
    return entry->second;
  }
  throw Malformed("an element of a verdict map has no verdict");
}

void ElementCollector::AddElement(const AttrView& nest) {
  const Attributes attrs{AttrReader(nest)};
  const AttrView& key = attrs[NFTA_SET_ELEM_KEY];
  const AttrView& key_end = attrs[NFTA_SET_ELEM_KEY_END];
  const AttrView& data = attrs[NFTA_SET_ELEM_DATA];
  uint32_t flags = 0;
  uint64_t timeout = 0;
  uint64_t expiration = 0;
  ElementCounter counter;
  ElementExtra extra;
  attrs[NFTA_SET_ELEM_FLAGS].To(&flags);
  attrs[NFTA_SET_ELEM_TIMEOUT].To(&timeout);
  attrs[NFTA_SET_ELEM_EXPIRATION].To(&expiration);
  if (const AttrView& expr = attrs[NFTA_SET_ELEM_EXPR]; expr && layout_.counters) counter = CounterOf(expr);
  attrs[NFTA_SET_ELEM_OBJREF].To(&extra.object);
  attrs[NFTA_SET_ELEM_USERDATA].To(&extra.userdata);
  // The kernel omits the set's own timeout from the message.
  if (!attrs[NFTA_SET_ELEM_TIMEOUT] && expiration != 0) timeout = default_timeout_;
  ElementLayout needed = layout_;
  needed.flags |= flags != 0;
  needed.key_end |= static_cast<bool>(key_end);
  needed.timeouts |= timeout != 0;
  needed.expirations |= expiration != 0;
  if (needed.stride() != layout_.stride()) Widen(needed);

  const size_t at = bytes_.size();
  bytes_.resize(at + layout_.stride());
  uint8_t* out = bytes_.data() + at;
  const auto put = [&out](const void* from, size_t length) {
    std::memcpy(out, from, length);
    out += length;
  };
  if (key) {
    put(ValueOf(key, layout_.key_len, "key"), layout_.key_len);
    if (layout_.key_end) {
      put(key_end ? ValueOf(key_end, layout_.key_len, "key end") : out - layout_.key_len, layout_.key_len);
    }
  } else {
    out += layout_.key_len * (layout_.key_end ? 2 : 1);
  }
  if (data && layout_.verdict_map) {
    const uint32_t index = InternVerdict(data);
    put(&index, sizeof index);
  } else if (data && layout_.data_len != 0) {
    put(ValueOf(data, layout_.data_len, "data"), layout_.data_len);
  } else {
    out += layout_.data_len;
  }
  if (layout_.flags) put(&flags, sizeof flags);
  if (layout_.timeouts) put(&timeout, sizeof timeout);
  if (layout_.expirations) put(&expiration, sizeof expiration);
  if (layout_.counters) {
    put(&counter.packets, sizeof counter.packets);
    put(&counter.bytes, sizeof counter.bytes);
  }
  if (!extra.object.empty() || !extra.userdata.empty()) {
    extra.record = static_cast<uint32_t>(count_);
    extras_.push_back(std::move(extra));
  }
  ++count_;
}

void ElementCollector::Add(const nlmsghdr* message) {
  const AttrView elements = Attributes(AttrReader(message))[NFTA_SET_ELEM_LIST_ELEMENTS];
  for (AttrReader list(elements); list.Next();) AddElement(list.attr());
}

}  // namespace nftp
