// Netlink attributes: a bounds-checked writer over libmnl, and a reader that trusts no length.
#pragma once

#include <endian.h>
#include <libmnl/libmnl.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "codec/failure.h"
#include "codec/model.h"

namespace nftp {

constexpr size_t Align4(size_t length) { return (length + 3) & ~size_t{3}; }
constexpr size_t kAttrHeader = sizeof(nlattr);

inline uint16_t Load16(const uint8_t* at) {
  uint16_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
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

// The readers below are inline: an entry of connection tracking has some thirty attributes, a dump a million entries,
// and reading must not take longer than the kernel's writing. Only their errors are function calls.
[[noreturn]] void ThrowMalformed(const char* what);
[[noreturn]] void ThrowWrongLength(uint16_t type, size_t expected);

// One attribute as found in a message.
struct AttrView {
  uint16_t raw_type = 0;
  uint16_t length = 0;
  const uint8_t* data = nullptr;

  uint16_t type() const { return raw_type & NLA_TYPE_MASK; }
  // Whether it was found.
  explicit operator bool() const { return data != nullptr; }
  // Integers in network order. They throw Malformed if the attribute has another length.
  uint8_t U8() const { return *Whole(1); }
  uint16_t U16() const { return be16toh(Load16(Whole(2))); }
  uint32_t U32() const { return be32toh(Load32(Whole(4))); }
  uint64_t U64() const { return be64toh(Load64(Whole(8))); }
  // The text up to the first NUL.
  std::string_view Text() const {
    const char* text = reinterpret_cast<const char*>(data);
    return {text, length == 0 ? 0 : strnlen(text, length)};
  }
  Bytes Copy() const { return Bytes(data, data + length); }

  // Stores the value of an attribute that was found.
  void To(uint32_t* number) const {
    if (data != nullptr) *number = U32();
  }
  void To(uint64_t* number) const {
    if (data != nullptr) *number = U64();
  }
  void To(std::string* text) const {
    if (data != nullptr) *text = Text();
  }
  void To(Bytes* bytes) const {
    if (data != nullptr) *bytes = Copy();
  }
  template <typename T>
  void To(std::optional<T>* value) const {
    if (data != nullptr) To(&value->emplace());
  }

 private:
  const uint8_t* Whole(size_t expected) const {
    if (length != expected) ThrowWrongLength(type(), expected);
    return data;
  }
};

// Walks a stream of attributes: `for (AttrReader r(data, length); r.Next();) use(r.attr());`
class AttrReader {
 public:
  AttrReader(const uint8_t* data, size_t length) : at_(data), left_(length) {}
  explicit AttrReader(const AttrView& nest) : AttrReader(nest.data, nest.length) {}
  // The attributes that follow a message's fixed header of `header` bytes.
  AttrReader(const nlmsghdr* message, size_t header) {
    if (message->nlmsg_len < sizeof(nlmsghdr) + header) ThrowMalformed("the message is shorter than its header");
    const size_t offset = std::min<size_t>(message->nlmsg_len, sizeof(nlmsghdr) + Align4(header));
    at_ = reinterpret_cast<const uint8_t*>(message) + offset;
    left_ = message->nlmsg_len - offset;
  }
  // The attributes of an nfnetlink message.
  explicit AttrReader(const nlmsghdr* message) : AttrReader(message, sizeof(nfgenmsg)) {}

  bool Next() {
    if (left_ == 0) return false;
    nlattr header;
    if (left_ < sizeof header) ThrowMalformed("trailing bytes follow the attributes");
    std::memcpy(&header, at_, sizeof header);
    if (header.nla_len < sizeof header || header.nla_len > left_) {
      ThrowMalformed("an attribute's length is out of bounds");
    }
    attr_.raw_type = header.nla_type;
    attr_.data = at_ + sizeof header;
    attr_.length = static_cast<uint16_t>(header.nla_len - sizeof header);
    const size_t step = std::min(Align4(header.nla_len), left_);
    at_ += step;
    left_ -= step;
    return true;
  }
  const AttrView& attr() const { return attr_; }

 private:
  const uint8_t* at_ = nullptr;
  size_t left_ = 0;
  AttrView attr_;
};

// The attributes of a message or nest by type. Of several attributes of one type, the last counts.
class Attributes {
 public:
  explicit Attributes(AttrReader reader) {
    while (reader.Next()) {
      if (const uint16_t type = reader.attr().type(); type < found_.size()) found_[type] = reader.attr();
    }
  }
  // The attribute, or an empty view if there is none.
  const AttrView& operator[](uint16_t type) const { return found_[type]; }

 private:
  std::array<AttrView, 24> found_;
};

// Returns the index of the attribute that the byte at `offset` of the message belongs to, among those in the message's
// list of type `list`. Returns nothing if it is outside of the list.
std::optional<size_t> ListIndexAt(const uint8_t* message, uint16_t list, size_t offset);

}  // namespace nftp
