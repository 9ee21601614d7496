#include "codec/attr.h"

#include <cerrno>

namespace nftp {

void AttrWriter::Put(uint16_t type, const void* data, size_t length) {
  if (length > UINT16_MAX - kAttrHeader || !mnl_attr_put_check(message_, capacity_, type, length, data)) {
    throw Failure::Invalid("attribute " + std::to_string(type) + " of " + std::to_string(length) +
                           " bytes does not fit the message");
  }
}

void AttrWriter::U16(uint16_t type, uint16_t value) {
  const uint16_t wire = htobe16(value);
  Put(type, &wire, sizeof wire);
}

void AttrWriter::U32(uint16_t type, uint32_t value) {
  const uint32_t wire = htobe32(value);
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

void ThrowMalformed(const char* what) { throw Malformed(what); }

void ThrowWrongLength(uint16_t type, size_t expected) {
  throw Malformed("attribute " + std::to_string(type) + " does not have " + std::to_string(expected) + " bytes");
}

std::optional<size_t> ListIndexAt(const uint8_t* message, uint16_t list, size_t offset) {
  const AttrView nest = Attributes(AttrReader(reinterpret_cast<const nlmsghdr*>(message)))[list];
  size_t index = 0;
  for (AttrReader reader(nest); reader.Next(); ++index) {
    const size_t start = static_cast<size_t>(reader.attr().data - message) - kAttrHeader;
    if (offset >= start && offset < start + kAttrHeader + reader.attr().length) return index;
  }
  return std::nullopt;
}

}  // namespace nftp
