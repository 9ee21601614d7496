// Sends first packets of new connections as fast as two threads can, until stdin ends:
//   flood SOURCE FIRST_DESTINATION DESTINATIONS PORT
//
// Sends UDP datagrams from all source ports in turn to consecutive addresses, bypassing the sockets of this namespace.
// A veth hands each on within the send itself, so nearly all of the time is spent in the node's rules. Prints the
// number of packets sent.
#include <arpa/inet.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

constexpr uint16_t kFirstPort = 1024, kPorts = 60000;

struct Packet {
  iphdr ip;
  udphdr udp;
  char data;
} __attribute__((packed));

struct Flood {
  in_addr_t source;
  uint32_t firstDestination, destinations;
  uint16_t port;
  std::atomic<bool> ended{false};
  std::atomic<uint64_t> sent{0};

  static int open() {
    const int fd = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW);
    if (fd < 0) throw std::runtime_error(std::string("raw socket: ") + std::strerror(errno));
    return fd;
  }

  void send(int fd, uint32_t next) {
    Packet packet{};
    packet.ip.version = 4;
    packet.ip.ihl = sizeof packet.ip / 4;
    packet.ip.ttl = 64;
    packet.ip.protocol = IPPROTO_UDP;
    packet.ip.tot_len = htons(sizeof packet);
    packet.ip.saddr = source;
    packet.udp.dest = htons(port);
    packet.udp.len = htons(sizeof packet.udp + sizeof packet.data);
    uint64_t count = 0;
    for (; !ended.load(std::memory_order_relaxed); ++next) {
      packet.udp.source = htons(static_cast<uint16_t>(kFirstPort + next % kPorts));
      packet.ip.daddr = htonl(firstDestination + next % destinations);
      sockaddr_in to{};
      to.sin_family = AF_INET;
      to.sin_addr.s_addr = packet.ip.daddr;
      if (sendto(fd, &packet, sizeof packet, 0, reinterpret_cast<const sockaddr*>(&to), sizeof to) > 0) ++count;
    }
    sent += count;
    close(fd);
  }
};

void run(int argc, char** argv) {
  if (argc != 5) throw std::runtime_error("usage: flood SOURCE FIRST_DESTINATION DESTINATIONS PORT");
  Flood flood{inet_addr(argv[1]), ntohl(inet_addr(argv[2])), static_cast<uint32_t>(std::stoul(argv[3])),
              static_cast<uint16_t>(std::stoul(argv[4]))};
  std::thread other(&Flood::send, &flood, Flood::open(), kPorts / 2);
  std::thread one(&Flood::send, &flood, Flood::open(), 0);
  char ignored;
  while (read(STDIN_FILENO, &ignored, 1) > 0) {
  }
  flood.ended = true;
  one.join();
  other.join();
  std::printf("%llu\n", static_cast<unsigned long long>(flood.sent.load()));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc, argv);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "flood: %s\n", error.what());
    return 1;
  }
}
