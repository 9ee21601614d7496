#include "conntrack_screen.h"

#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "failure.h"

namespace nftp {

namespace {

constexpr size_t kAddressV4 = 4;
constexpr size_t kAddressV6 = 16;
// Of a record's addresses.
constexpr size_t kOriginalDestination = 1;
constexpr size_t kReplySource = 2;

uint64_t Mix(const uint8_t* bytes, size_t length) {
  uint64_t hash = 0x9e3779b97f4a7c15ULL;
  for (size_t at = 0; at < length; at += sizeof(uint32_t)) {
    uint32_t word;
    std::memcpy(&word, bytes + at, sizeof word);
    hash = (hash ^ word) * 0xff51afd7ed558ccdULL;
    hash ^= hash >> 32;
  }
  return hash;
}

void PutPort(uint8_t* into, uint16_t port) {
  into[0] = static_cast<uint8_t>(port >> 8);
  into[1] = static_cast<uint8_t>(port & 0xff);
}

}  // namespace

ConntrackScreen::ConntrackScreen(int family, std::vector<uint8_t> destinations, std::vector<uint8_t> lists,
                                 std::vector<uint8_t> endpoints)
    : family_(family),
      address_bytes_(family == AF_INET ? kAddressV4 : kAddressV6),
      destinations_(std::move(destinations)),
      list_bytes_(std::move(lists)),
      endpoints_(std::move(endpoints)) {}

void ConntrackScreen::Prepare() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!slots_.empty()) return;
  lists_.resize(list_bytes_.size() / sizeof(uint32_t));
  if (!lists_.empty()) std::memcpy(lists_.data(), list_bytes_.data(), lists_.size() * sizeof(uint32_t));
  Check();
  SortLists();
  Index();
}

uint32_t ConntrackScreen::ListOf(const uint8_t* destination) const {
  uint32_t list;
  std::memcpy(&list, destination + KeyBytes(), sizeof list);
  return list;
}

void ConntrackScreen::Check() const {
  if (family_ != AF_INET && family_ != AF_INET6) throw Failure::Invalid("screen: not a family");
  if (destinations_.size() % DestinationBytes() != 0) throw Failure::Invalid("screen: not a list of destinations");
  if (endpoints_.size() % KeyBytes() != 0) throw Failure::Invalid("screen: not a list of endpoints");
  if (list_bytes_.size() % sizeof(uint32_t) != 0 || lists_.empty() || lists_.front() != 0 ||
      !std::is_sorted(lists_.begin(), lists_.end()) || lists_.back() != endpoints_.size() / KeyBytes()) {
    throw Failure::Invalid("screen: the lists are not the endpoints");
  }
  for (size_t at = 0; at < destinations_.size(); at += DestinationBytes()) {
    if (ListOf(destinations_.data() + at) + size_t{1} >= lists_.size()) throw Failure::Invalid("screen: no such list");
  }
}

// So that an endpoint is found in a list of a thousand as well.
void ConntrackScreen::SortLists() {
  const size_t bytes = KeyBytes();
  std::vector<Key> list;
  for (size_t i = 0; i + 1 < lists_.size(); ++i) {
    uint8_t* const first = endpoints_.data() + lists_[i] * bytes;
    list.assign(lists_[i + 1] - lists_[i], Key{});
    for (size_t n = 0; n < list.size(); ++n) std::memcpy(list[n].data(), first + n * bytes, bytes);
    std::sort(list.begin(), list.end());
    for (size_t n = 0; n < list.size(); ++n) std::memcpy(first + n * bytes, list[n].data(), bytes);
  }
}

void ConntrackScreen::Index() {
  const size_t count = destinations_.size() / DestinationBytes();
  size_t size = 16;
  while (size < 2 * count) size *= 2;
  slots_.assign(size, 0);
  for (size_t i = 0; i < count; ++i) {
    size_t slot = Mix(destinations_.data() + i * DestinationBytes(), KeyBytes()) & (size - 1);
    while (slots_[slot] != 0) slot = (slot + 1) & (size - 1);
    slots_[slot] = static_cast<uint32_t>(i + 1);
  }
}

bool ConntrackScreen::InOrder(const Key& key, const Key& source) const {
  const size_t bytes = KeyBytes();
  const size_t mask = slots_.size() - 1;
  for (size_t slot = Mix(key.data(), bytes) & mask; slots_[slot] != 0; slot = (slot + 1) & mask) {
    const uint8_t* const destination = destinations_.data() + (slots_[slot] - 1) * DestinationBytes();
    if (std::memcmp(destination, key.data(), bytes) != 0) continue;
    const uint32_t list = ListOf(destination);
    size_t from = lists_[list];
    size_t to = lists_[list + 1];
    while (from < to) {
      const size_t middle = from + (to - from) / 2;
      const int order = std::memcmp(endpoints_.data() + middle * bytes, source.data(), bytes);
      if (order == 0) break;
      if (order < 0) {
        from = middle + 1;
      } else {
        to = middle;
      }
    }
    if (from >= to) return false;
  }
  return true;
}

bool ConntrackScreen::LeavesOut(const ConntrackRecord& record) const {
  if (record.family != family_ || record.kind != kKindPorts) return true;
  Key key{};
  Key any{};
  Key source{};
  std::memcpy(key.data(), record.addresses[kOriginalDestination], address_bytes_);
  std::memcpy(source.data(), record.addresses[kReplySource], address_bytes_);
  for (Key* one : {&key, &any}) {
    (*one)[address_bytes_] = record.protocol;
    PutPort(one->data() + address_bytes_ + 2, record.ports[0][1]);
  }
  PutPort(source.data() + address_bytes_, record.ports[1][0]);
  return InOrder(key, source) && InOrder(any, source);
}

}  // namespace nftp
