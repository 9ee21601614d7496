// Measures how long the first packets of a connection take from a client's socket to a server's, through a node. It
// measures the first packet, the second one before any answer, and one after an answer.
//
//   first-packet COUNT PATH...     PATH is
//   LABEL|CLIENT_NS|SERVER_NS|SOURCE|FIRST_DESTINATION|DESTINATIONS|PORT|SERVER_PORT|udp or tcp
//
// The paths take turns, COUNT times each, so that other load on the machine affects all of them. Each turn, a new UDP
// socket in the client's namespace sends two datagrams to one of the destinations, receives an answer, and sends a
// third. With TCP, the first time is that of the handshake, and the others are those of bytes in the open connection,
// before and after an answer. The destinations are consecutive addresses, drawn at random. A veth hands packets on
// within the send itself, so no scheduler is between the two ends. IPv4 addresses are mapped to IPv6. Prints one line
// of JSON: for each path and each of the three moments the quantiles of the time in ns, and the number of lost packets.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr uint16_t kFirstPort = 2000, kLastPort = 65000;
constexpr auto kPatience = std::chrono::milliseconds(200);

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what + ": " + std::strerror(errno)); }

int openNamespace(const std::string& name) {
  const int fd = open(("/run/netns/" + name).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail("namespace " + name);
  return fd;
}

void enter(int netns) {
  if (setns(netns, CLONE_NEWNET) != 0) fail("setns");
}

constexpr const char* kMoments[] = {"first", "second", "answered"};
constexpr size_t kMomentCount = 3;

sockaddr_in6 endOf(in6_addr address, uint16_t port) {
  sockaddr_in6 end{};
  end.sin6_family = AF_INET6;
  end.sin6_addr = address;
  end.sin6_port = htons(port);
  return end;
}

int boundSocket(int type, in6_addr address, uint16_t port) {
  const int fd = socket(AF_INET6, type | SOCK_CLOEXEC | (type == SOCK_DGRAM ? SOCK_NONBLOCK : 0), 0);
  if (fd < 0) fail("socket");
  const int on = 1;
  if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0) fail("SO_REUSEADDR");
  const sockaddr_in6 at = endOf(address, port);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0) fail("bind");
  return fd;
}

in6_addr parseAddress(const std::string& text) {
  in6_addr address;
  const std::string mapped = text.find(':') == std::string::npos ? "::ffff:" + text : text;
  if (inet_pton(AF_INET6, mapped.c_str(), &address) != 1) throw std::runtime_error("not an address: " + text);
  return address;
}

/// The address `distance` after another one, of which only the last 32 bits change.
in6_addr addressAfter(in6_addr address, uint32_t distance) {
  uint32_t last;
  std::memcpy(&last, address.s6_addr + 12, sizeof last);
  last = htonl(ntohl(last) + distance);
  std::memcpy(address.s6_addr + 12, &last, sizeof last);
  return address;
}

/// A client's namespace and its next source port. Several paths may begin there.
struct Client {
  int netns = -1;
  uint16_t nextPort = kFirstPort;
};

/// State that the paths share.
struct Ends {
  std::map<std::string, Client> clients;
  /// Sockets, by namespace and port.
  std::map<std::string, int> servers;
};

struct Path {
  std::string label;
  Client* client = nullptr;
  int server = -1;
  in6_addr source{}, destination{};
  uint32_t destinations = 1;
  uint16_t port = 0;
  int type = SOCK_DGRAM;
  std::vector<int64_t> times[kMomentCount];
  int lost[kMomentCount] = {};

  Path(const std::string& text, Ends& ends) {
    std::istringstream in(text);
    std::vector<std::string> words;
    for (std::string word; std::getline(in, word, '|');) words.push_back(word);
    if (words.size() != 9) throw std::runtime_error("not a path: " + text);
    label = words[0];
    client = &ends.clients[words[1]];
    if (client->netns < 0) client->netns = openNamespace(words[1]);
    source = parseAddress(words[3]);
    destination = parseAddress(words[4]);
    destinations = static_cast<uint32_t>(std::stoul(words[5]));
    port = static_cast<uint16_t>(std::stoul(words[6]));
    if (words[8] == "tcp") type = SOCK_STREAM;
    const auto [socket, added] = ends.servers.try_emplace(words[2] + ":" + words[7] + words[8], -1);
    if (added) {
      const int netns = openNamespace(words[2]);
      enter(netns);
      close(netns);
      socket->second = boundSocket(type, in6addr_any, static_cast<uint16_t>(std::stoul(words[7])));
      const int on = 1;
      if (type == SOCK_STREAM && listen(socket->second, 16) != 0) fail("listen");
      if (type == SOCK_DGRAM && setsockopt(socket->second, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof on) != 0)
        fail("IPV6_RECVPKTINFO");
    }
    server = socket->second;
  }

  void connectOnce(uint32_t draw) {
    enter(client->netns);
    const int fd = boundSocket(type, source, client->nextPort);
    if (++client->nextPort == kLastPort) client->nextPort = kFirstPort;
    const sockaddr_in6 to = endOf(addressAfter(destination, draw % destinations), port);
    const auto start = Clock::now();
    if (connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) fail("connect");
    if (type == SOCK_STREAM) {
      times[0].push_back(std::chrono::nanoseconds(Clock::now() - start).count());
      inStream(fd);
      close(fd);
      return;
    }
    for (size_t moment = 0; moment < kMomentCount; ++moment) {
      Peer peer;
      if (!sendOne(fd, moment, peer)) break;
      if (moment == 1 && !answer(fd, peer)) break;
    }
    close(fd);
  }

  /// Bytes in an open connection, before and after an answer. Ends it with a reset, so that no port stays in use.
  void inStream(int fd) {
    const int on = 1;
    const linger atOnce{1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &atOnce, sizeof atOnce);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    const int accepted = accept4(server, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (accepted < 0) fail("accept");
    char byte = '?';
    for (const size_t moment : {1, 2}) {
      const auto start = Clock::now();
      bool arrived = false;
      auto now = start;
      if (send(fd, &byte, 1, 0) != 1) fail("send");
      while (!arrived && now - start < kPatience) {
        arrived = recv(accepted, &byte, 1, 0) == 1;
        now = Clock::now();
      }
      if (!arrived) ++lost[moment];
      if (!arrived) break;
      times[moment].push_back(std::chrono::nanoseconds(now - start).count());
      if (send(accepted, &byte, 1, 0) != 1 || recv(fd, &byte, 1, 0) != 1) fail("answer");
    }
    close(accepted);
  }

  /// The peer that a server must answer, and the address to answer from.
  struct Peer {
    sockaddr_in6 address{};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(in6_pktinfo))];
    char byte = '?';
    iovec data{&byte, 1};
    msghdr message{&address, sizeof address, &data, 1, control, sizeof control, 0};
  };

  bool sendOne(int fd, size_t moment, Peer& peer) {
    const char byte = '?';
    const auto start = Clock::now();
    const bool sent = send(fd, &byte, 1, 0) == 1;
    bool arrived = false;
    auto now = start;
    while (sent && !arrived && now - start < kPatience) {
      arrived = recvmsg(server, &peer.message, 0) == 1;
      now = Clock::now();
    }
    if (arrived) times[moment].push_back(std::chrono::nanoseconds(now - start).count());
    if (!arrived) ++lost[moment];
    return arrived;
  }

  /// Whether the client has received the answer. The datagram's control data names the interface of arrival, which is
  /// not the way back.
  bool answer(int fd, Peer& peer) {
    for (cmsghdr* part = CMSG_FIRSTHDR(&peer.message); part != nullptr; part = CMSG_NXTHDR(&peer.message, part)) {
      if (part->cmsg_level == IPPROTO_IPV6 && part->cmsg_type == IPV6_PKTINFO)
        reinterpret_cast<in6_pktinfo*>(CMSG_DATA(part))->ipi6_ifindex = 0;
    }
    peer.message.msg_flags = 0;
    if (sendmsg(server, &peer.message, 0) != 1) return false;
    const auto start = Clock::now();
    char byte;
    while (recv(fd, &byte, 1, 0) != 1)
      if (Clock::now() - start > kPatience) return false;
    return true;
  }

  void print(bool first) {
    std::printf("%s\"%s\":{", first ? "" : ",", label.c_str());
    for (size_t moment = 0; moment < kMomentCount; ++moment) {
      auto& all = times[moment];
      std::sort(all.begin(), all.end());
      const auto quantile = [&all](double q) -> long long {
        return all.empty() ? 0
                           : all[std::min(all.size() - 1, static_cast<size_t>(q * static_cast<double>(all.size())))];
      };
      std::printf("%s\"%s\":{\"p10\":%lld,\"p50\":%lld,\"p90\":%lld,\"p99\":%lld,\"count\":%zu,\"lost\":%d}",
                  moment == 0 ? "" : ",", kMoments[moment], quantile(0.1), quantile(0.5), quantile(0.9), quantile(0.99),
                  all.size(), lost[moment]);
    }
    std::printf("}");
  }
};

void run(int argc, char** argv) {
  if (argc < 3) throw std::runtime_error("usage: first-packet COUNT PATH...");
  const int count = std::stoi(argv[1]);
  Ends ends;
  std::vector<Path> paths;
  for (int i = 2; i < argc; ++i) paths.emplace_back(argv[i], ends);
  std::mt19937 random(20240229);
  for (int i = 0; i < count; ++i) {
    // Change the order each time, so that no path always follows the same one.
    const size_t offset = random() % paths.size();
    for (size_t j = 0; j < paths.size(); ++j)
      paths[(offset + j) % paths.size()].connectOnce(static_cast<uint32_t>(random()));
  }
  std::printf("{");
  for (size_t i = 0; i < paths.size(); ++i) paths[i].print(i == 0);
  std::printf("}\n");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc, argv);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "first-packet: %s\n", error.what());
    return 1;
  }
}
