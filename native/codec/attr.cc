#include "codec/attr.h"

#include <arpa/inet.h>
#include <endian.h>

#include <cerrno>

namespace nftp {

void AttrWriter::Put(uint16_t type, const void* data, size_t length) {
  if (length > UINT16_MAX - kAttrHeader || !mnl_attr_put_check(message_, capacity_, type, length, data)) {
    throw Failure::Invalid("attribute " + std::to_string(type) + " of " + std::to_string(length) +
                           " bytes does not fit the message");
  }
}

void AttrWriter::U16(uint16_t type, uint16_t value) {
  const uint16_t wire = htons(value);
  Put(type, &wire, sizeof wire);
}

void AttrWriter::U32(uint16_t type, uint32_t value) {
  const uint32_t wire = htonl(value);
  Put(type, &wire, sizeof wire);
}

void AttrWriter::U64(uint16_t type, uint64_t value) {
  const uint64_t wire = htobe64(value);
  Put(type, &wire, sizeof wire);
}

nlattr* AttrWriter::Nest(uint16_t type) {
  nlattr* nest = mnl_attr_nest_start_check(message_, capacity_, type);
  if (nest == nullptr) throw Failure::Invalid("nested attribute " + std::to_string(type) + " does not fit the message");
  return nest;
}

void AttrWriter::EndNest(nlattr* nest) {
  const auto length =
      static_cast<const uint8_t*>(mnl_nlmsg_get_payload_tail(message_)) - reinterpret_cast<const uint8_t*>(nest);
  // nla_len has 16 bits, and libmnl would truncate it silently.
  if (length > UINT16_MAX) throw Failure::Invalid("a nested attribute exceeds 65535 bytes");
  mnl_attr_nest_end(message_, nest);
}

Malformed::Malformed(const std::string& what) : Failure("system", "malformed netlink message: " + what, EBADMSG) {}

uint8_t AttrView::U8() const {
  if (length != 1) throw Malformed("expected 1 byte in attribute " + std::to_string(type()));
  return data[0];
}

uint16_t AttrView::U16() const {
  if (length != 2) throw Malformed("expected 2 bytes in attribute " + std::to_string(type()));
  uint16_t wire;
  std::memcpy(&wire, data, sizeof wire);
  return ntohs(wire);
}

uint32_t AttrView::U32() const {
  if (length != 4) throw Malformed("expected 4 bytes in attribute " + std::to_string(type()));
  return ntohl(Load32(data));
}

uint64_t AttrView::U64() const {
  if (length != 8) throw Malformed("expected 8 bytes in attribute " + std::to_string(type()));
  return be64toh(Load64(data));
}

std::string_view AttrView::Text() const {
  const char* text = reinterpret_cast<const char*>(data);
  return {text, strnlen(text, length)};
}

AttrReader::AttrReader(const nlmsghdr* message, size_t header) : at_(nullptr), left_(0) {
  const size_t offset = sizeof(nlmsghdr) + Align4(header);
  if (message->nlmsg_len < sizeof(nlmsghdr) + header) throw Malformed("the message is shorter than its header");
  if (message->nlmsg_len <= offset) return;
  at_ = reinterpret_cast<const uint8_t*>(message) + offset;
  left_ = message->nlmsg_len - offset;
}

bool AttrReader::Next() {
  if (left_ == 0) return false;
  nlattr header;
  if (left_ < sizeof header) throw Malformed("trailing bytes follow the attributes");
  std::memcpy(&header, at_, sizeof header);
  if (header.nla_len < sizeof header || header.nla_len > left_)
    throw Malformed("an attribute's length is out of bounds");
  attr_.raw_type = header.nla_type;
  attr_.data = at_ + sizeof header;
  attr_.length = static_cast<uint16_t>(header.nla_len - sizeof header);
  const size_t step = Align4(header.nla_len);
  at_ += step < left_ ? step : left_;
  left_ -= step < left_ ? step : left_;
  return true;
}

}  // namespace nftp
