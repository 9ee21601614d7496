// Conntrack over bare netlink, without a library: the baseline for measuring the addon.
//   conntrack fill COUNT [FIRST]   makes COUNT entries; the table then looks as entryOf() says. Prints {"made":N}.
//   conntrack dump                 reads all entries as cheaply as possible. Prints {"entries":N,"bytes":N,"ms":N}.
#include <arpa/inet.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>
#include <linux/netlink.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr uint8_t kUdp = 17;
constexpr uint32_t kTimeout = 86400;
// The acknowledgements of one message must fit the default receive buffer.
constexpr size_t kBatch = 64;

[[noreturn]] void fail(const std::string& what, int error) {
  throw std::runtime_error(what + ": " + std::strerror(error));
}

class Socket {
 public:
  Socket() : fd_(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER)), buffer_(1 << 16) {
    sockaddr_nl address{};
    address.nl_family = AF_NETLINK;
    if (fd_ < 0 || bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) fail("socket", errno);
    const int on = 1;
    setsockopt(fd_, SOL_NETLINK, NETLINK_CAP_ACK, &on, sizeof on);
  }
  ~Socket() { close(fd_); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  void send(const void* data, size_t length) const {
    if (::send(fd_, data, length, 0) < 0) fail("send", errno);
  }
  // Receives one datagram into buffer() and returns its length.
  int receive() {
    const ssize_t got = recv(fd_, buffer_.data(), buffer_.size(), MSG_TRUNC);
    if (got < 0) fail("recv", errno);
    if (static_cast<size_t>(got) > buffer_.size()) fail("recv", EMSGSIZE);
    return static_cast<int>(got);
  }
  const nlmsghdr* messages() const { return reinterpret_cast<const nlmsghdr*>(buffer_.data()); }

 private:
  int fd_;
  std::vector<uint8_t> buffer_;
};

class Message {
 public:
  Message(uint8_t type, uint16_t flags, uint32_t seq) {
    nlmsghdr header{};
    header.nlmsg_type = static_cast<uint16_t>(NFNL_SUBSYS_CTNETLINK << 8 | type);
    header.nlmsg_flags = static_cast<uint16_t>(NLM_F_REQUEST | flags);
    header.nlmsg_seq = seq;
    append(&header, sizeof header);
    nfgenmsg family{};
    family.nfgen_family = AF_INET;
    append(&family, sizeof family);
  }

  void put(uint16_t type, const void* data, size_t length) {
    const nlattr attribute{static_cast<uint16_t>(sizeof attribute + length), type};
    append(&attribute, sizeof attribute);
    append(data, length);
    bytes_.resize((bytes_.size() + 3) & ~size_t{3});
  }
  void put32(uint16_t type, uint32_t value) {
    const uint32_t wire = htonl(value);
    put(type, &wire, sizeof wire);
  }
  void put16(uint16_t type, uint16_t value) {
    const uint16_t wire = htons(value);
    put(type, &wire, sizeof wire);
  }
  size_t nest(uint16_t type) {
    const size_t at = bytes_.size();
    put(static_cast<uint16_t>(type | NLA_F_NESTED), nullptr, 0);
    return at;
  }
  void end(size_t nest) {
    const auto length = static_cast<uint16_t>(bytes_.size() - nest);
    std::memcpy(&bytes_[nest], &length, sizeof length);
  }
  const std::vector<uint8_t>& finish() {
    const auto length = static_cast<uint32_t>(bytes_.size());
    std::memcpy(bytes_.data(), &length, sizeof length);
    return bytes_;
  }

 private:
  void append(const void* data, size_t length) {
    const auto* from = static_cast<const uint8_t*>(data);
    bytes_.insert(bytes_.end(), from, from + length);
  }
  std::vector<uint8_t> bytes_;
};

struct Tuple {
  uint32_t source;
  uint32_t destination;
  uint16_t sourcePort;
  uint16_t destinationPort;
};

void putTuple(Message& message, uint16_t type, const Tuple& tuple) {
  const size_t outer = message.nest(type);
  const size_t addresses = message.nest(CTA_TUPLE_IP);
  message.put32(CTA_IP_V4_SRC, tuple.source);
  message.put32(CTA_IP_V4_DST, tuple.destination);
  message.end(addresses);
  const size_t protocol = message.nest(CTA_TUPLE_PROTO);
  message.put(CTA_PROTO_NUM, &kUdp, 1);
  message.put16(CTA_PROTO_SRC_PORT, tuple.sourcePort);
  message.put16(CTA_PROTO_DST_PORT, tuple.destinationPort);
  message.end(protocol);
  message.end(outer);
}

// Entry i: a client of 10.128.0.0/9 that asks VIP 10.96.0.0 + i / 100, port 53. One of the VIP's ten endpoints answers:
// 10.0.0.0 + i / 100 * 16 + i % 10, port 5353.
const std::vector<uint8_t>& entryOf(uint32_t i, uint32_t seq) {
  static Message message(0, 0, 0);
  message = Message(IPCTNL_MSG_CT_NEW, NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK, seq);
  const uint32_t client = 0x0a800000 + i;
  const uint32_t vip = 0x0a600000 + i / 100;
  const uint32_t endpoint = 0x0a000000 + i / 100 * 16 + i % 10;
  const auto port = static_cast<uint16_t>(1024 + i % 50000);
  putTuple(message, CTA_TUPLE_ORIG, {client, vip, port, 53});
  putTuple(message, CTA_TUPLE_REPLY, {endpoint, client, 5353, port});
  message.put32(CTA_TIMEOUT, kTimeout);
  return message.finish();
}

void fill(uint32_t count, uint32_t first) {
  Socket socket;
  for (uint32_t from = first; from < first + count; from += kBatch) {
    std::vector<uint8_t> batch;
    uint32_t waiting = 0;
    for (uint32_t i = from; i < first + count && i < from + kBatch; ++i, ++waiting) {
      const std::vector<uint8_t>& message = entryOf(i, i + 1);
      batch.insert(batch.end(), message.begin(), message.end());
    }
    socket.send(batch.data(), batch.size());
    while (waiting > 0) {
      auto left = static_cast<unsigned>(socket.receive());
      for (const nlmsghdr* at = socket.messages(); NLMSG_OK(at, left); at = NLMSG_NEXT(at, left), --waiting) {
        const auto* error = static_cast<const nlmsgerr*>(NLMSG_DATA(at));
        if (at->nlmsg_type != NLMSG_ERROR || error->error != 0) fail("entry", -error->error);
      }
    }
  }
  std::cout << "{\"made\":" << count << "}" << std::endl;
}

void dump() {
  const auto start = std::chrono::steady_clock::now();
  Socket socket;
  Message request(IPCTNL_MSG_CT_GET, NLM_F_DUMP, 1);
  const std::vector<uint8_t>& bytes = request.finish();
  socket.send(bytes.data(), bytes.size());
  uint64_t entries = 0;
  uint64_t total = 0;
  for (bool more = true; more;) {
    const int got = socket.receive();
    total += static_cast<uint64_t>(got);
    auto left = static_cast<unsigned>(got);
    for (const nlmsghdr* at = socket.messages(); more && NLMSG_OK(at, left); at = NLMSG_NEXT(at, left)) {
      if (at->nlmsg_type == NLMSG_ERROR) fail("dump", -static_cast<const nlmsgerr*>(NLMSG_DATA(at))->error);
      if (at->nlmsg_type == NLMSG_DONE)
        more = false;
      else
        ++entries;
    }
  }
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  std::cout << "{\"entries\":" << entries << ",\"bytes\":" << total << ",\"ms\":" << took.count() << "}" << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string verb = argc > 1 ? argv[1] : "";
    if (verb == "fill" && argc > 2) {
      fill(static_cast<uint32_t>(std::stoul(argv[2])), argc > 3 ? static_cast<uint32_t>(std::stoul(argv[3])) : 0);
    } else if (verb == "dump") {
      dump();
    } else {
      throw std::runtime_error("usage: conntrack fill COUNT [FIRST] | conntrack dump");
    }
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "conntrack: " << error.what() << std::endl;
    return 1;
  }
}
