// Converts operations to nf_tables messages. Pure. Elements, the hot path, have codec/element_codec.h.
#pragma once

#include <cstddef>
#include <string>

#include "codec/attr.h"
#include "codec/model.h"

namespace nftp {

// Limits of the kernel: NFT_NAME_MAXLEN - 1, NFT_USERDATA_MAXLEN, IFNAMSIZ - 1, NFT_NETDEVICE_MAX, NFT_RULE_MAXEXPRS.
constexpr size_t kMaxName = 255;
constexpr size_t kMaxUserdata = 256;
constexpr size_t kMaxDeviceName = 15;
constexpr size_t kMaxDevices = 256;
constexpr size_t kMaxExprs = 128;
// A list of expressions is one attribute, and an attribute's length has 16 bits.
constexpr size_t kMaxExprListBytes = 65000;
// Ids for sets whose operation has none: the kernel requires one in every NFT_MSG_NEWSET.
constexpr uint32_t kAutomaticSetIds = 0x80000000;

// Describes an operation for errors: "add rule ip nft-proxier services".
std::string DescribeOp(const Op& op);

// Maximum size of an operation's single message. Not for elements with records.
size_t OpBound(const Op& op);

// Writes the operation's message at `at` and returns its length. `index` is the position of the operation in the batch.
size_t EncodeOp(const Op& op, uint32_t index, uint32_t seq, uint8_t* at, const uint8_t* limit);

// Writes the header of an nf_tables message (NFT_MSG_*), or of an operation's message, at `at`.
nlmsghdr* BeginMessage(uint8_t* at, uint16_t type, uint16_t flags, uint8_t family, uint32_t seq);
nlmsghdr* BeginMessage(const Op& op, uint32_t seq, uint8_t* at);

}  // namespace nftp
