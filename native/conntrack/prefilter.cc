#include "conntrack/prefilter.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "codec/failure.h"

namespace nftp {

namespace {

constexpr size_t kAddressV4 = 4;
constexpr size_t kAddressV6 = 16;
// Indices into a record's addresses.
constexpr size_t kOriginalDestination = 1;
constexpr size_t kReplySource = 2;

// A destination: address, protocol and zero, port in network order. An endpoint: address, port, two zeros.
template <size_t kAddress>
constexpr size_t kKey = kAddress + 4;

// Lists up to this length are searched linearly: the compiler turns that into a few instructions without a branch.
constexpr size_t kShortList = 16;

template <size_t kAddress>
size_t Hash(const uint8_t* key) {
  uint64_t hash = 0x9e3779b97f4a7c15ULL;
  for (size_t at = 0; at < kKey<kAddress>; at += sizeof(uint32_t)) {
    uint32_t word;
    std::memcpy(&word, key + at, sizeof word);
    hash = (hash ^ word) * 0xff51afd7ed558ccdULL;
    hash ^= hash >> 32;
  }
  return hash;
}

uint16_t PortOf(const uint8_t* at) {
  uint16_t port;
  std::memcpy(&port, at, sizeof port);
  return port;
}

void PutPort(uint8_t* into, uint16_t port) {
  port = htons(port);
  std::memcpy(into, &port, sizeof port);
}

}  // namespace

ConntrackPrefilter::ConntrackPrefilter(int family, std::vector<uint8_t> destinations, std::vector<uint8_t> lists,
                                       std::vector<uint8_t> endpoints)
    : family_(family),
      address_bytes_(family == AF_INET ? kAddressV4 : kAddressV6),
      destinations_(std::move(destinations)),
      list_bytes_(std::move(lists)),
      endpoints_(std::move(endpoints)) {}

void ConntrackPrefilter::Prepare() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!slots_.empty()) return;
  lists_.resize(list_bytes_.size() / sizeof(uint32_t));
  if (!lists_.empty()) std::memcpy(lists_.data(), list_bytes_.data(), lists_.size() * sizeof(uint32_t));
  Check();
  if (family_ == AF_INET) {
    SortLists<kAddressV4>();
    Index<kAddressV4>();
  } else {
    SortLists<kAddressV6>();
    Index<kAddressV6>();
  }
}

uint32_t ConntrackPrefilter::ListOf(const uint8_t* destination) const {
  uint32_t list;
  std::memcpy(&list, destination + KeyBytes(), sizeof list);
  return list;
}

void ConntrackPrefilter::Check() const {
  if (family_ != AF_INET && family_ != AF_INET6) throw Failure::Invalid("prefilter: unknown family");
  if (destinations_.size() % DestinationBytes() != 0) throw Failure::Invalid("prefilter: not a list of destinations");
  if (endpoints_.size() % KeyBytes() != 0) throw Failure::Invalid("prefilter: not a list of endpoints");
  if (list_bytes_.size() % sizeof(uint32_t) != 0 || lists_.empty() || lists_.front() != 0 ||
      !std::is_sorted(lists_.begin(), lists_.end()) || lists_.back() != endpoints_.size() / KeyBytes()) {
    throw Failure::Invalid("prefilter: the lists do not match the endpoints");
  }
  for (size_t at = 0; at < destinations_.size(); at += DestinationBytes()) {
    if (ListOf(destinations_.data() + at) + size_t{1} >= lists_.size())
      throw Failure::Invalid("prefilter: a destination refers to an unknown list");
  }
}

// Sorts the endpoints, so that one is found quickly even in a list of a thousand.
template <size_t kAddress>
void ConntrackPrefilter::SortLists() {
  using Key = std::array<uint8_t, kKey<kAddress>>;
  static_assert(sizeof(Key) == kKey<kAddress>);
  std::vector<Key> list;
  for (size_t i = 0; i + 1 < lists_.size(); ++i) {
    list.resize(lists_[i + 1] - lists_[i]);
    if (list.size() <= kShortList) continue;
    uint8_t* const first = endpoints_.data() + lists_[i] * sizeof(Key);
    std::memcpy(list.data(), first, list.size() * sizeof(Key));
    std::sort(list.begin(), list.end());
    std::memcpy(first, list.data(), list.size() * sizeof(Key));
  }
}

template <size_t kAddress>
void ConntrackPrefilter::Index() {
  constexpr uint8_t kAny[kAddress] = {};
  const size_t count = destinations_.size() / DestinationBytes();
  size_t size = 16;
  while (size < 2 * count) size *= 2;
  slots_.assign(size, 0);
  for (size_t i = 0; i < count; ++i) {
    const uint8_t* const destination = destinations_.data() + i * DestinationBytes();
    size_t slot = Hash<kAddress>(destination) & (size - 1);
    while (slots_[slot] != 0) slot = (slot + 1) & (size - 1);
    slots_[slot] = static_cast<uint32_t>(i + 1);
    if (std::memcmp(destination, kAny, kAddress) == 0) any_address_.set(PortOf(destination + kAddress + 2));
  }
}

template <size_t kAddress>
bool ConntrackPrefilter::Lists(uint32_t list, const uint8_t* source) const {
  constexpr size_t kBytes = kKey<kAddress>;
  size_t from = lists_[list];
  size_t to = lists_[list + 1];
  if (to - from <= kShortList) {
    bool found = false;
    for (; from < to; ++from) found |= std::memcmp(endpoints_.data() + from * kBytes, source, kBytes) == 0;
    return found;
  }
  while (from < to) {
    const size_t middle = from + (to - from) / 2;
    const int order = std::memcmp(endpoints_.data() + middle * kBytes, source, kBytes);
    if (order == 0) return true;
    if (order < 0) {
      from = middle + 1;
    } else {
      to = middle;
    }
  }
  return false;
}

template <size_t kAddress>
bool ConntrackPrefilter::InOrder(const uint8_t* key, const uint8_t* source) const {
  constexpr size_t kBytes = kKey<kAddress>;
  const size_t mask = slots_.size() - 1;
  for (size_t slot = Hash<kAddress>(key) & mask; slots_[slot] != 0; slot = (slot + 1) & mask) {
    const uint8_t* const destination = destinations_.data() + (slots_[slot] - 1) * (kBytes + sizeof(uint32_t));
    if (std::memcmp(destination, key, kBytes) != 0) continue;
    if (!Lists<kAddress>(ListOf(destination), source)) return false;
  }
  return true;
}

template <size_t kAddress>
bool ConntrackPrefilter::SkipsIn(const ConntrackRecord& record) const {
  uint8_t key[kKey<kAddress>] = {};
  uint8_t source[kKey<kAddress>] = {};
  std::memcpy(key, record.addresses[kOriginalDestination], kAddress);
  key[kAddress] = record.protocol;
  PutPort(key + kAddress + 2, record.ports[0][1]);
  std::memcpy(source, record.addresses[kReplySource], kAddress);
  PutPort(source + kAddress, record.ports[1][0]);
  if (!InOrder<kAddress>(key, source)) return false;
  if (!any_address_.test(PortOf(key + kAddress + 2))) return true;
  std::memset(key, 0, kAddress);
  return InOrder<kAddress>(key, source);
}

bool ConntrackPrefilter::Skips(const ConntrackRecord& record) const {
  if (record.family != family_ || record.kind != kKindPorts) return true;
  return family_ == AF_INET ? SkipsIn<kAddressV4>(record) : SkipsIn<kAddressV6>(record);
}

}  // namespace nftp
