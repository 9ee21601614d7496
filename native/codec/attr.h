// Netlink attributes: a bounds-checked writer over libmnl, and a reader that trusts no length.
#pragma once

#include <libmnl/libmnl.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "codec/failure.h"
#include "codec/model.h"

namespace nftp {

constexpr size_t Align4(size_t length) { return (length + 3) & ~size_t{3}; }
constexpr size_t kAttrHeader = sizeof(nlattr);

inline uint32_t Load32(const uint8_t* at) {
  uint32_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
inline uint64_t Load64(const uint8_t* at) {
  uint64_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Appends attributes to one message, never beyond `limit`.
class AttrWriter {
 public:
  AttrWriter(nlmsghdr* message, const uint8_t* limit)
      : message_(message), capacity_(static_cast<size_t>(limit - reinterpret_cast<uint8_t*>(message))) {}

  nlmsghdr* message() { return message_; }
  void Put(uint16_t type, const void* data, size_t length);
  void U8(uint16_t type, uint8_t value) { Put(type, &value, sizeof value); }
  void U16(uint16_t type, uint16_t value);  // network order
  void U32(uint16_t type, uint32_t value);  // network order
  void U64(uint16_t type, uint64_t value);  // network order
  void String(uint16_t type, const std::string& text) { Put(type, text.c_str(), text.size() + 1); }
  nlattr* Nest(uint16_t type);
  void EndNest(nlattr* nest);

 private:
  nlmsghdr* message_;
  size_t capacity_;
};

// A message that violates the rules of netlink attributes.
class Malformed : public Failure {
 public:
  explicit Malformed(const std::string& what);
};

// One attribute as found in a message.
struct AttrView {
  uint16_t raw_type = 0;
  const uint8_t* data = nullptr;
  uint16_t length = 0;

  uint16_t type() const { return raw_type & NLA_TYPE_MASK; }
  // Integers in network order. They throw Malformed if the attribute has another length.
  uint8_t U8() const;
  uint16_t U16() const;
  uint32_t U32() const;
  uint64_t U64() const;
  // The text up to the first NUL.
  std::string_view Text() const;
  Bytes Copy() const { return Bytes(data, data + length); }
};

// Walks a stream of attributes: `for (AttrReader r(data, length); r.Next();) use(r.attr());`
class AttrReader {
 public:
  AttrReader(const uint8_t* data, size_t length) : at_(data), left_(length) {}
  explicit AttrReader(const AttrView& nest) : AttrReader(nest.data, nest.length) {}
  // The attributes that follow a message's fixed header of `header` bytes.
  AttrReader(const nlmsghdr* message, size_t header);

  bool Next();
  const AttrView& attr() const { return attr_; }

 private:
  const uint8_t* at_;
  size_t left_;
  AttrView attr_;
};

}  // namespace nftp
