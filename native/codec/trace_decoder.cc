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
  const Attributes attrs{AttrReader(nest)};
  Verdict verdict;
  if (const AttrView& code = attrs[NFTA_VERDICT_CODE]) verdict.code = static_cast<int32_t>(code.U32());
  attrs[NFTA_VERDICT_CHAIN].To(&verdict.chain);
  if (verdict.code >= 0) verdict.code &= NF_VERDICT_MASK;
  return verdict;
}

}  // namespace

TraceEvent DecodeTrace(const nlmsghdr* message) {
  const Attributes attrs{AttrReader(message)};
  TraceEvent event;
  event.family = FamilyOf(message);
  attrs[NFTA_TRACE_TABLE].To(&event.table);
  attrs[NFTA_TRACE_CHAIN].To(&event.chain);
  attrs[NFTA_TRACE_RULE_HANDLE].To(&event.rule);
  attrs[NFTA_TRACE_TYPE].To(&event.type);
  if (const AttrView& verdict = attrs[NFTA_TRACE_VERDICT]) event.verdict = DecodePacketVerdict(verdict);
  attrs[NFTA_TRACE_ID].To(&event.id);
  attrs[NFTA_TRACE_NETWORK_HEADER].To(&event.network);
  attrs[NFTA_TRACE_TRANSPORT_HEADER].To(&event.transport);
  attrs[NFTA_TRACE_IIF].To(&event.iif);
  attrs[NFTA_TRACE_OIF].To(&event.oif);
  attrs[NFTA_TRACE_MARK].To(&event.mark);
  attrs[NFTA_TRACE_NFPROTO].To(&event.nfproto);
  attrs[NFTA_TRACE_POLICY].To(&event.policy);
  attrs[kTraceCtId].To(&event.ct_id);
  attrs[kTraceCtState].To(&event.ct_state);
  return event;
}

}  // namespace nftp
