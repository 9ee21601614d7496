// Addresses, replies and the SCTP packets of the lab's agent.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace lab {

/// A file descriptor that closes itself.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  void reset() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  int fd_ = -1;
};

/// An IPv4 or IPv6 address with a port, comparable and printable.
class Address {
 public:
  Address() = default;

  static Address parse(const std::string& text, uint16_t port) {
    Address out;
    if (inet_pton(AF_INET, text.c_str(), out.bytes_.data()) == 1) {
      out.family_ = AF_INET;
    } else if (inet_pton(AF_INET6, text.c_str(), out.bytes_.data()) == 1) {
      out.family_ = AF_INET6;
    } else {
      throw std::runtime_error("not an address: " + text);
    }
    out.port_ = port;
    return out;
  }

  static Address any(int family, uint16_t port) {
    Address out;
    out.family_ = family;
    out.port_ = port;
    return out;
  }

  static Address of(const sockaddr_storage& from) {
    Address out;
    out.family_ = from.ss_family;
    if (from.ss_family == AF_INET) {
      const auto& in = reinterpret_cast<const sockaddr_in&>(from);
      std::memcpy(out.bytes_.data(), &in.sin_addr, 4);
      out.port_ = ntohs(in.sin_port);
    } else {
      const auto& in = reinterpret_cast<const sockaddr_in6&>(from);
      std::memcpy(out.bytes_.data(), &in.sin6_addr, 16);
      out.port_ = ntohs(in.sin6_port);
    }
    return out;
  }

  static Address of(int family, const void* bytes, uint16_t port) {
    Address out = any(family, port);
    std::memcpy(out.bytes_.data(), bytes, family == AF_INET ? 4 : 16);
    return out;
  }

  /// For the socket calls; raw sockets require port 0.
  socklen_t fill(sockaddr_storage& out, bool withPort = true) const {
    std::memset(&out, 0, sizeof out);
    const uint16_t port = htons(withPort ? port_ : 0);
    if (family_ == AF_INET) {
      auto& in = reinterpret_cast<sockaddr_in&>(out);
      in.sin_family = AF_INET;
      in.sin_port = port;
      std::memcpy(&in.sin_addr, bytes_.data(), 4);
      return sizeof in;
    }
    auto& in = reinterpret_cast<sockaddr_in6&>(out);
    in.sin6_family = AF_INET6;
    in.sin6_port = port;
    std::memcpy(&in.sin6_addr, bytes_.data(), 16);
    return sizeof in;
  }

  std::string text() const {
    char buffer[INET6_ADDRSTRLEN] = "";
    inet_ntop(family_, bytes_.data(), buffer, sizeof buffer);
    return buffer;
  }

  int family() const { return family_; }
  uint16_t port() const { return port_; }
  void port(uint16_t value) { port_ = value; }
  const uint8_t* bytes() const { return bytes_.data(); }
  bool sameHost(const Address& other) const { return family_ == other.family_ && bytes_ == other.bytes_; }

 private:
  int family_ = AF_INET;
  uint16_t port_ = 0;
  std::array<uint8_t, 16> bytes_{};
};

/// A server's reply: its name, the peer that it saw, the address and port at which it was reached.
inline std::string replyText(const std::string& name, const Address& peer, const Address& local) {
  return name + " " + peer.text() + " " + std::to_string(peer.port()) + " " + local.text() + " " +
         std::to_string(local.port());
}

inline constexpr int kSendAttempts = 50, kSendWaitMs = 100;

/// Sends from a given source address (IP_PKTINFO, IPV6_PKTINFO), so that a wildcard socket answers from the address
/// that the client used.
inline ssize_t sendFrom(int fd, const Address& local, const Address& peer, bool withPort, const void* data,
                        size_t size) {
  sockaddr_storage to;
  iovec part{const_cast<void*>(data), size};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(in6_pktinfo))] = {};
  msghdr message{};
  message.msg_name = &to;
  message.msg_namelen = peer.fill(to, withPort);
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  const bool v4 = local.family() == AF_INET;
  message.msg_controllen = v4 ? CMSG_SPACE(sizeof(in_pktinfo)) : CMSG_SPACE(sizeof(in6_pktinfo));
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = v4 ? IPPROTO_IP : IPPROTO_IPV6;
  header->cmsg_type = v4 ? IP_PKTINFO : IPV6_PKTINFO;
  header->cmsg_len = v4 ? CMSG_LEN(sizeof(in_pktinfo)) : CMSG_LEN(sizeof(in6_pktinfo));
  if (v4) {
    in_pktinfo info{};
    std::memcpy(&info.ipi_spec_dst, local.bytes(), 4);
    std::memcpy(CMSG_DATA(header), &info, sizeof info);
  } else {
    in6_pktinfo info{};
    std::memcpy(&info.ipi6_addr, local.bytes(), 16);
    std::memcpy(CMSG_DATA(header), &info, sizeof info);
  }
  // A burst of replies can fill the socket's buffer for a moment. An unsent reply would look as if a rule dropped it.
  for (int attempt = 0;; ++attempt) {
    const ssize_t sent = sendmsg(fd, &message, 0);
    if (sent >= 0 || (errno != EAGAIN && errno != ENOBUFS) || attempt == kSendAttempts) return sent;
    pollfd entry{fd, POLLOUT, 0};
    poll(&entry, 1, kSendWaitMs);
  }
}

/// A datagram and the address that it was sent to.
struct Received {
  std::vector<uint8_t> data;
  Address peer;
  Address local;  ///< port 0
};

inline std::optional<Received> receive(int fd) {
  Received out;
  out.data.resize(4096);
  sockaddr_storage from{};
  iovec part{out.data.data(), out.data.size()};
  alignas(cmsghdr) char control[256];
  msghdr message{};
  message.msg_name = &from;
  message.msg_namelen = sizeof from;
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t size = recvmsg(fd, &message, MSG_DONTWAIT);
  if (size < 0) return std::nullopt;
  out.data.resize(static_cast<size_t>(size));
  out.peer = Address::of(from);
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level == IPPROTO_IP && header->cmsg_type == IP_PKTINFO) {
      in_pktinfo info;
      std::memcpy(&info, CMSG_DATA(header), sizeof info);
      out.local = Address::of(AF_INET, &info.ipi_addr, 0);
    } else if (header->cmsg_level == IPPROTO_IPV6 && header->cmsg_type == IPV6_PKTINFO) {
      in6_pktinfo info;
      std::memcpy(&info, CMSG_DATA(header), sizeof info);
      out.local = Address::of(AF_INET6, &info.ipi6_addr, 0);
    }
  }
  return out;
}

/// Makes room for bursts, beyond the system's limit for other programs if permitted.
inline void enlargeBuffer(int fd, int forced, int usual) {
  const int size = 4 << 20;
  if (setsockopt(fd, SOL_SOCKET, forced, &size, sizeof size) != 0)
    setsockopt(fd, SOL_SOCKET, usual, &size, sizeof size);
}

/// Requests the destination address of arriving packets, and lets answers leave from any address that is routed here.
inline void wantDestination(int fd, int family) {
  const int on = 1;
  if (family == AF_INET) {
    setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof on);
    setsockopt(fd, IPPROTO_IP, IP_FREEBIND, &on, sizeof on);
  } else {
    setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof on);
    setsockopt(fd, IPPROTO_IPV6, IPV6_FREEBIND, &on, sizeof on);
  }
}

namespace sctp {

// Many kernels have no SCTP sockets, but all track and translate SCTP. The handshake's first two packets (RFC 9260)
// over raw sockets suffice to see where an association goes.
constexpr uint8_t kInit = 1, kInitAck = 2, kAbort = 6;
constexpr uint16_t kStateCookie = 7;
constexpr size_t kHeader = 12, kInitChunk = 20;

inline uint32_t crc32c(const std::vector<uint8_t>& data) {
  uint32_t crc = ~0U;
  for (const uint8_t byte : data) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78U : 0U);
  }
  return ~crc;
}

inline void put16(std::vector<uint8_t>& out, uint32_t value) {
  out.push_back(static_cast<uint8_t>(value >> 8));
  out.push_back(static_cast<uint8_t>(value));
}
inline void put32(std::vector<uint8_t>& out, uint32_t value) {
  put16(out, value >> 16);
  put16(out, value);
}
inline uint32_t get16(const std::vector<uint8_t>& in, size_t at) { return uint32_t{in[at]} << 8 | in[at + 1]; }
inline uint32_t get32(const std::vector<uint8_t>& in, size_t at) { return get16(in, at) << 16 | get16(in, at + 2); }

/// The checksum is the packet's CRC with the field set to zero, little-endian, without a pseudo header in either
/// family.
inline void seal(std::vector<uint8_t>& packet) {
  const uint32_t crc = crc32c(packet);
  for (size_t i = 0; i < 4; ++i) packet[8 + i] = static_cast<uint8_t>(crc >> (8 * i));
}

inline bool sealed(const std::vector<uint8_t>& packet) {
  std::vector<uint8_t> copy = packet;
  std::fill(copy.begin() + 8, copy.begin() + 12, uint8_t{0});
  seal(copy);
  return copy == packet;
}

/// INIT (no cookie, verification tag 0) or INIT ACK (with a cookie and the INIT's tag).
inline std::vector<uint8_t> handshake(uint8_t type, uint16_t from, uint16_t to, uint32_t verification, uint32_t tag,
                                      const std::string& cookie) {
  std::vector<uint8_t> out;
  put16(out, from);
  put16(out, to);
  put32(out, verification);
  put32(out, 0);
  const size_t parameter = cookie.empty() ? 0 : 4 + cookie.size();
  out.push_back(type);
  out.push_back(0);
  put16(out, static_cast<uint32_t>(kInitChunk + parameter));
  put32(out, tag);
  put32(out, 65536);  // receiver window
  put16(out, 1);      // outbound streams
  put16(out, 1);      // inbound streams
  put32(out, tag);    // initial TSN
  if (!cookie.empty()) {
    put16(out, kStateCookie);
    put16(out, static_cast<uint32_t>(parameter));
    out.insert(out.end(), cookie.begin(), cookie.end());
    while (out.size() % 4 != 0) out.push_back(0);
  }
  seal(out);
  return out;
}

inline std::vector<uint8_t> abort(uint16_t from, uint16_t to, uint32_t verification) {
  std::vector<uint8_t> out;
  put16(out, from);
  put16(out, to);
  put32(out, verification);
  put32(out, 0);
  out.push_back(kAbort);
  out.push_back(0);
  put16(out, 4);
  seal(out);
  return out;
}

struct Packet {
  uint16_t from = 0, to = 0;
  uint32_t verification = 0, tag = 0;
  uint8_t type = 0;
  std::string cookie;
};

/// Returns nothing if the bytes are not an SCTP packet or the checksum is wrong (receivers drop those silently).
inline std::optional<Packet> parse(const std::vector<uint8_t>& in) {
  if (in.size() < kHeader + 4 || !sealed(in)) return std::nullopt;
  Packet out;
  out.from = static_cast<uint16_t>(get16(in, 0));
  out.to = static_cast<uint16_t>(get16(in, 2));
  out.verification = get32(in, 4);
  out.type = in[kHeader];
  if (out.type == kInit || out.type == kInitAck) {
    if (in.size() < kHeader + kInitChunk) return std::nullopt;
    out.tag = get32(in, kHeader + 4);
    const size_t at = kHeader + kInitChunk;
    if (in.size() >= at + 4 && get16(in, at) == kStateCookie) {
      const size_t length = get16(in, at + 2);
      if (length >= 4 && at + length <= in.size())
        out.cookie.assign(in.begin() + static_cast<ptrdiff_t>(at + 4),
                          in.begin() + static_cast<ptrdiff_t>(at + length));
    }
  }
  return out;
}

/// A raw IPv4 socket delivers the IP header too.
inline void stripIpHeader(Received& packet) {
  if (packet.peer.family() != AF_INET || packet.data.empty()) return;
  const size_t header = (packet.data[0] & 0x0fU) * 4U;
  packet.data.erase(packet.data.begin(),
                    packet.data.begin() + static_cast<ptrdiff_t>(std::min(header, packet.data.size())));
}

}  // namespace sctp
}  // namespace lab
