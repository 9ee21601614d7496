#include "codec/trace_decoder.h"

#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>

#include "codec/attr.h"
#include "codec/message_decoder.h"

namespace nftp {

namespace {

// NFTA_TRACE_CT_*, which headers of Linux before 6.16 lack.
constexpr uint16_t kTraceCtId = 18;
constexpr uint16_t kTraceCtState = 21;

// Unlike a rule's own verdict, the verdict of a packet may have any value: NF_STOLEN occurs, and NF_QUEUE and NF_DROP
// carry a number in their upper half.
Verdict DecodePacketVerdict(const AttrView& nest) {
  Verdict verdict;
  for (AttrReader reader(nest); reader.Next();) {
    const AttrView& attr = reader.attr();
    if (attr.type() == NFTA_VERDICT_CODE) verdict.code = static_cast<int32_t>(attr.U32());
    if (attr.type() == NFTA_VERDICT_CHAIN) verdict.chain = std::string(attr.Text());
  }
  if (verdict.code >= 0) verdict.code &= NF_VERDICT_MASK;
  return verdict;
}

}  // namespace

TraceEvent DecodeTrace(const nlmsghdr* message) {
  TraceEvent event;
  event.family = FamilyOf(message);
  for (AttrReader reader(message, sizeof(nfgenmsg)); reader.Next();) {
    const AttrView& attr = reader.attr();
    switch (attr.type()) {
      case NFTA_TRACE_TABLE:
        event.table = std::string(attr.Text());
        break;
      case NFTA_TRACE_CHAIN:
        event.chain = std::string(attr.Text());
        break;
      case NFTA_TRACE_RULE_HANDLE:
        event.rule = attr.U64();
        break;
      case NFTA_TRACE_TYPE:
        event.type = attr.U32();
        break;
      case NFTA_TRACE_VERDICT:
        event.verdict = DecodePacketVerdict(attr);
        break;
      case NFTA_TRACE_ID:
        event.id = attr.U32();
        break;
      case NFTA_TRACE_NETWORK_HEADER:
        event.network = attr.Copy();
        break;
      case NFTA_TRACE_TRANSPORT_HEADER:
        event.transport = attr.Copy();
        break;
      case NFTA_TRACE_IIF:
        event.iif = attr.U32();
        break;
      case NFTA_TRACE_OIF:
        event.oif = attr.U32();
        break;
      case NFTA_TRACE_MARK:
        event.mark = attr.U32();
        break;
      case NFTA_TRACE_NFPROTO:
        event.nfproto = attr.U32();
        break;
      case NFTA_TRACE_POLICY:
        event.policy = attr.U32();
        break;
      case kTraceCtId:
        event.ct_id = attr.U32();
        break;
      case kTraceCtState:
        event.ct_state = attr.U32();
        break;
      default:
        break;
    }
  }
  return event;
}

}  // namespace nftp
