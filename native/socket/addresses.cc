#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <memory>
#include <unordered_map>

#include "socket/connection.h"
#include "socket/dump.h"

namespace nftp {

namespace {

template <typename Body>
struct RouteRequest {
  nlmsghdr header{};
  Body body{};

  explicit RouteRequest(uint16_t type) {
    header.nlmsg_len = sizeof *this;
    header.nlmsg_type = type;
    header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
    header.nlmsg_seq = 1;
  }
};

template <typename Body>
Body BodyOf(const nlmsghdr* message) {
  if (message->nlmsg_len < NLMSG_LENGTH(sizeof(Body))) throw Malformed("the message is shorter than its header");
  Body body;
  std::memcpy(&body, NLMSG_DATA(message), sizeof body);
  return body;
}

InterfaceAddress DecodeAddress(const nlmsghdr* message) {
  const auto body = BodyOf<ifaddrmsg>(message);
  InterfaceAddress address;
  address.family = body.ifa_family;
  address.prefix_length = body.ifa_prefixlen;
  address.interface_index = body.ifa_index;
  for (AttrReader reader(message, sizeof(ifaddrmsg)); reader.Next();) {
    const AttrView& attr = reader.attr();
    // On a point-to-point link, IFA_ADDRESS is the peer's address and IFA_LOCAL is ours.
    if (attr.type() == IFA_LOCAL || (attr.type() == IFA_ADDRESS && address.address.empty())) {
      address.address = attr.Copy();
    }
  }
  return address;
}

}  // namespace

std::vector<LinkName> Connection::Links() const {
  ReadSockets sockets(1, [this] { return std::make_unique<NetlinkSocket>(netns_, NETLINK_ROUTE); });
  std::vector<LinkName> links;
  const RouteRequest<ifinfomsg> request(RTM_GETLINK);
  RunRequest(
      sockets, &request.header, "dump interfaces", [&] { links.clear(); },
      [&](const nlmsghdr* message) {
        if (message->nlmsg_type != RTM_NEWLINK) return;
        const auto body = BodyOf<ifinfomsg>(message);
        for (AttrReader reader(message, sizeof(ifinfomsg)); reader.Next();) {
          if (reader.attr().type() != IFLA_IFNAME) continue;
          links.push_back({static_cast<uint32_t>(body.ifi_index), std::string(reader.attr().Text())});
        }
      });
  return links;
}

std::vector<InterfaceAddress> Connection::Addresses() const {
  std::unordered_map<uint32_t, std::string> names;
  for (LinkName& link : Links()) names[link.index] = std::move(link.name);
  ReadSockets sockets(1, [this] { return std::make_unique<NetlinkSocket>(netns_, NETLINK_ROUTE); });
  std::vector<InterfaceAddress> addresses;
  const RouteRequest<ifaddrmsg> request(RTM_GETADDR);
  RunRequest(
      sockets, &request.header, "dump addresses", [&] { addresses.clear(); },
      [&](const nlmsghdr* message) {
        if (message->nlmsg_type != RTM_NEWADDR) return;
        InterfaceAddress address = DecodeAddress(message);
        const size_t length = address.family == AF_INET ? 4 : 16;
        if ((address.family != AF_INET && address.family != AF_INET6) || address.address.size() != length) return;
        const auto name = names.find(address.interface_index);
        if (name == names.end()) return;  // it was removed between the two dumps
        address.interface_name = name->second;
        addresses.push_back(std::move(address));
      });
  return addresses;
}

}  // namespace nftp
