#include "codec/batch.h"

#include <libnftnl/common.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <utility>

#include "codec/element_codec.h"
#include "codec/expr_codec.h"
#include "codec/op_codec.h"

namespace nftp {

namespace {

constexpr size_t kBeginBound = sizeof(nlmsghdr) + sizeof(nfgenmsg) + kAttrHeader + 4;
constexpr size_t kEndBound = sizeof(nlmsghdr) + sizeof(nfgenmsg);

const ElementsOp* RecordsOf(const Op& op) {
  if (op.verb == Verb::Flush) return nullptr;
  return std::get_if<ElementsOp>(&op.body);
}

}  // namespace

size_t LargestBatch() {
  static const size_t largest = static_cast<size_t>(INT_MAX) & ~(static_cast<size_t>(sysconf(_SC_PAGESIZE)) - 1);
  return largest;
}

Failure BatchTooLarge() {
  return Failure("too-large",
                 "the batch has more than the " + std::to_string(LargestBatch()) +
                     " bytes that the kernel accepts at once; split it",
                 EMSGSIZE);
}

Region::Region(size_t size) : size_(size) {
  if (size <= kSmall) {
    data_ = static_cast<uint8_t*>(std::calloc(size, 1));
    if (data_ == nullptr) throw Failure::System("allocating memory for a batch", ENOMEM);
    return;
  }
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    throw Failure::System("allocating memory for a batch of " + std::to_string(size) + " bytes", errno);
  data_ = static_cast<uint8_t*>(memory);
}

Region::~Region() {
  if (data_ == nullptr) return;
  if (size_ <= kSmall) {
    std::free(data_);
  } else {
    munmap(data_, size_);
  }
}

void Region::swap(Region& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
}

void Batch::AddOp(Op op) {
  if (const ElementsOp* elements = RecordsOf(op)) {
    const ElementPlan plan = PlanElements(op, *elements);
    bound_ += plan.total_bound();
    least_ += plan.least;
    objects_ += elements->count;
    source_size_ += elements->count * elements->layout.stride();
  } else {
    bound_ += OpBound(op);
    least_ += kEndBound;
    // Only the kernel knows how many elements a flush removes.
    objects_ += op.verb == Verb::Flush && std::holds_alternative<ElementsOp>(op.body) ? kLoudObjects + 1 : 1;
  }
  ops_.push_back(std::move(op));
  if (least_ > LargestBatch()) throw BatchTooLarge();
}

void Batch::Reserve() { region_ = Region(kBeginBound + bound_ + kEndBound); }

uint8_t* Batch::Record(uint32_t op, uint64_t record) const {
  uint8_t* at = Source();
  for (uint32_t before = 0; before < op; ++before) {
    if (const ElementsOp* elements = RecordsOf(ops_[before])) at += elements->count * elements->layout.stride();
  }
  return at + record * std::get<ElementsOp>(ops_[op].body).layout.stride();
}

size_t Batch::EncodeElements(uint32_t index, const uint8_t** source, size_t at, size_t limit) {
  const Op& op = ops_[index];
  const ElementsOp& elements = std::get<ElementsOp>(op.body);
  ElementEncoder encoder(op, elements, *source);
  while (!encoder.done() && at <= limit) {
    messages_.push_back(Message{at, encoder.next_record(), index});
    at += encoder.EncodeMessage(last_seq(), region_.data() + at, region_.data() + region_.size());
  }
  *source += elements.count * elements.layout.stride();
  return at;
}

bool Batch::Encode(uint32_t seq, size_t limit) {
  // The memory after the written bytes must stay untouched.
  if (least_ > limit) return false;
  first_seq_ = seq;
  const uint8_t* const end = region_.data() + region_.size();
  nlmsghdr* begin = nftnl_batch_begin(reinterpret_cast<char*>(region_.data()), seq);
  if (options_.expect_generation) AttrWriter(begin, end).U32(NFNL_BATCH_GENID, *options_.expect_generation);
  size_t at = begin->nlmsg_len;
  const uint8_t* source = Source();
  for (uint32_t index = 0; index < ops_.size() && at <= limit; ++index) {
    try {
      if (RecordsOf(ops_[index]) != nullptr) {
        at = EncodeElements(index, &source, at, limit);
      } else {
        messages_.push_back(Message{at, 0, index});
        at += EncodeOp(ops_[index], index, last_seq(), region_.data() + at, end);
      }
    } catch (const Failure& failure) {
      throw Failure(failure.code(),
                    "op " + std::to_string(index) + " (" + DescribeOp(ops_[index]) + "): " + failure.message(),
                    failure.error());
    }
  }
  // The acknowledgement of the last operation proves that the whole batch was committed.
  if (!messages_.empty()) {
    reinterpret_cast<nlmsghdr*>(region_.data() + messages_.back().offset)->nlmsg_flags |= NLM_F_ACK;
  }
  // Without BATCH_END, the kernel checks the batch and rolls it back.
  if (!options_.dry_run) {
    at += nftnl_batch_end(reinterpret_cast<char*>(region_.data() + at), last_seq() + 1)->nlmsg_len;
  }
  size_ = at;
  return size_ <= limit;
}

std::optional<Fault> Batch::FaultOf(const ErrorReply& reply) const {
  const uint32_t number = reply.seq - first_seq_;
  if (number == 0 || number > messages_.size()) return std::nullopt;
  const Message& message = messages_[number - 1];
  Fault fault;
  fault.op = message.op;
  fault.error = reply.error;
  fault.text = reply.text;
  if (reply.offset && RecordsOf(ops_[message.op]) != nullptr) {
    const auto record = ListIndexAt(region_.data() + message.offset, NFTA_SET_ELEM_LIST_ELEMENTS, *reply.offset);
    if (record) fault.element = message.first_record + *record;
  }
  return fault;
}

std::string Batch::Describe(const Fault& fault, const std::optional<uint32_t>& offset) const {
  const Op& op = ops_[fault.op];
  std::string text = "op " + std::to_string(fault.op) + " (" + DescribeOp(op) + "): " + DescribeErrno(fault.error);
  if (!fault.text.empty()) text += ": " + fault.text;
  if (fault.element) text += ", at element " + std::to_string(*fault.element);
  const RuleOp* rule = std::get_if<RuleOp>(&op.body);
  if (rule == nullptr || rule->exprs.empty()) return text;
  if (offset) {
    for (const Message& message : messages_) {
      if (message.op != fault.op) continue;
      const auto index = ListIndexAt(region_.data() + message.offset, NFTA_RULE_EXPRESSIONS, *offset);
      if (index && *index < rule->exprs.size()) {
        text += ", at expression " + std::to_string(*index) + " (" + rule->exprs[*index].name + ")";
      }
      break;
    }
  }
  if (fault.error == ENOENT) {
    // The kernel lacks either an object that the rule names or an expression.
    text += "; the rule uses these expressions:";
    for (const Expr& expr : rule->exprs) text += " " + expr.name;
  }
  return text;
}

}  // namespace nftp
