/**
 * Rules in the style of programs that many nodes have, for the lab. There, `pod0` and `pod1` lead to pods, and `cbr0` is a bridge of pods.
 * `eth0` leads to the other node, `eth1` to clients outside the cluster.
 */

import { iptablesSave } from "./iptables-save.ts";

/** A set of ipset, with networks of IPv4: "10.244.0.0/16". */
export interface NetworkSet {
  readonly name: string;
  readonly networks: readonly string[];
}

export interface ProgramRules {
  readonly program: string;
  /** Created before the rules are loaded. */
  readonly sets?: readonly NetworkSet[];
  /** Arguments of `ip`, before the rules are loaded. */
  readonly links?: readonly string[];
  /** Input of `iptables-nft-restore`. */
  readonly iptables?: string;
  /** Input of `nft -f`. */
  readonly nft?: string;
  /** Whether the rules hold for IPv6 as well. */
  readonly ip6?: boolean;
  /** Arguments of `ip`, at the end. */
  readonly removed?: readonly string[];
}

const bridge = (name: string, address: string): Pick<ProgramRules, "links" | "removed"> => ({
  links: [`link add ${name} type bridge`, `address add ${address} dev ${name}`, `link set ${name} up`],
  removed: [`link delete ${name}`],
});

const DOCKER = iptablesSave(`*raw
-A PREROUTING -d 172.17.0.2/32 ! -i docker0 -j DROP
*nat
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A OUTPUT ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j DOCKER
-A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE
-A DOCKER ! -i docker0 -p tcp -m tcp --dport 8088 -j DNAT --to-destination 172.17.0.2:80
*filter
:FORWARD DROP
:DOCKER-USER
-A FORWARD -j DOCKER-USER
-A FORWARD -j DOCKER-FORWARD
-A DOCKER -d 172.17.0.2/32 ! -i docker0 -o docker0 -p tcp -m tcp --dport 80 -j ACCEPT
-A DOCKER ! -i docker0 -o docker0 -j DROP
-A DOCKER-BRIDGE -o docker0 -j DOCKER
-A DOCKER-CT -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A DOCKER-FORWARD -j DOCKER-CT
-A DOCKER-FORWARD -j DOCKER-BRIDGE
-A DOCKER-FORWARD -i docker0 -j ACCEPT
USER
`);

const LIBVIRT = iptablesSave(`*mangle
-A POSTROUTING -j LIBVIRT_PRT
-A LIBVIRT_PRT -o virbr0 -p udp -m udp --dport 68 -j CHECKSUM --checksum-fill
*nat
-A POSTROUTING -j LIBVIRT_PRT
-A LIBVIRT_PRT -s 192.168.122.0/24 -d 224.0.0.0/24 -j RETURN
-A LIBVIRT_PRT -s 192.168.122.0/24 -d 255.255.255.255/32 -j RETURN
-A LIBVIRT_PRT -s 192.168.122.0/24 ! -d 192.168.122.0/24 -p tcp -j MASQUERADE --to-ports 1024-65535
-A LIBVIRT_PRT -s 192.168.122.0/24 ! -d 192.168.122.0/24 -p udp -j MASQUERADE --to-ports 1024-65535
-A LIBVIRT_PRT -s 192.168.122.0/24 ! -d 192.168.122.0/24 -j MASQUERADE
*filter
-A INPUT -j LIBVIRT_INP
-A FORWARD -j LIBVIRT_FWX
-A FORWARD -j LIBVIRT_FWI
-A FORWARD -j LIBVIRT_FWO
-A OUTPUT -j LIBVIRT_OUT
-A LIBVIRT_FWI -d 192.168.122.0/24 -o virbr0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A LIBVIRT_FWI -o virbr0 -j REJECT --reject-with icmp-port-unreachable
-A LIBVIRT_FWO -s 192.168.122.0/24 -i virbr0 -j ACCEPT
-A LIBVIRT_FWO -i virbr0 -j REJECT --reject-with icmp-port-unreachable
-A LIBVIRT_FWX -i virbr0 -o virbr0 -j ACCEPT
-A LIBVIRT_INP -i virbr0 -p udp -m udp --dport 53 -j ACCEPT
-A LIBVIRT_INP -i virbr0 -p tcp -m tcp --dport 67 -j ACCEPT
-A LIBVIRT_OUT -o virbr0 -p udp -m udp --dport 53 -j ACCEPT
-A FORWARD -m physdev --physdev-is-bridged -j ACCEPT
`);

const UFW = iptablesSave(`*filter
:INPUT DROP
:FORWARD DROP
-A INPUT -j ufw-before-input
-A INPUT -j ufw-after-input
-A FORWARD -j ufw-before-forward
-A OUTPUT -j ufw-before-output
-A ufw-before-input -i lo -j ACCEPT
-A ufw-before-input -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A ufw-before-input -m conntrack --ctstate INVALID -j ufw-logging-deny
-A ufw-before-input -m conntrack --ctstate INVALID -j DROP
-A ufw-before-input -p icmp -m icmp --icmp-type 8 -j ACCEPT
-A ufw-before-input -p udp -m udp --sport 67 --dport 68 -j ACCEPT
-A ufw-before-input -j ufw-not-local
-A ufw-before-input -d 224.0.0.251/32 -p udp -m udp --dport 5353 -j ACCEPT
-A ufw-before-input -j ufw-user-input
-A ufw-not-local -m addrtype --dst-type LOCAL -j RETURN
-A ufw-not-local -m addrtype --dst-type MULTICAST -j RETURN
-A ufw-not-local -m addrtype --dst-type BROADCAST -j RETURN
-A ufw-not-local -m limit --limit 3/min --limit-burst 10 -j ufw-logging-deny
-A ufw-not-local -j DROP
-A ufw-logging-deny -m limit --limit 3/min --limit-burst 10 -j LOG --log-prefix "[UFW BLOCK] "
-A ufw-user-input -p tcp -m multiport --dports 80,443,9100 -j ACCEPT
-A ufw-user-input -p tcp -m tcp --dport 22 -m conntrack --ctstate NEW -m recent --set --name DEFAULT --rsource
-A ufw-user-input -p tcp -m tcp --dport 22 -m conntrack --ctstate NEW -m recent --update --seconds 30 --hitcount 6 --name DEFAULT --rsource -j ufw-user-limit
-A ufw-user-limit -j REJECT --reject-with icmp-port-unreachable
-A ufw-after-input -p udp -m udp --dport 137 -j DROP
-A ufw-after-input -m addrtype --dst-type BROADCAST -j DROP
-A ufw-before-forward -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A ufw-before-forward -p icmp -m icmp --icmp-type 3 -j ACCEPT
-A ufw-before-forward -j ufw-user-forward
-A ufw-before-output -o lo -j ACCEPT
-A ufw-before-output -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A ufw-user-forward -i eth1 -d 10.244.0.0/24 -p tcp -m multiport --dports 8000:8090,443 -j ACCEPT
-A ufw-user-forward -i pod+ -j ACCEPT
-A ufw-user-forward -i cbr0 -p udp -j REJECT --reject-with icmp-port-unreachable
`);

/** One pod may be called on its port only; the other's traffic is open. */
const CALICO = iptablesSave(`*raw
:cali-rpf-skip
:cali-from-host-endpoint
-A PREROUTING -m comment --comment "cali:6gwbT8clXdHdC1b1" -j cali-PREROUTING
-A OUTPUT -m comment --comment "cali:tVnHkvAo15HuiPy0" -j cali-OUTPUT
-A cali-PREROUTING -m comment --comment "cali:a" -j MARK --set-xmark 0x0/0xf0000
-A cali-PREROUTING -i pod+ -m comment --comment "cali:b" -j MARK --set-xmark 0x40000/0x40000
-A cali-PREROUTING -m comment --comment "cali:c" -m mark --mark 0x40000/0x40000 -j cali-rpf-skip
-A cali-PREROUTING -m comment --comment "cali:d" -m mark --mark 0x40000/0x40000 -m rpfilter --validmark --invert -j DROP
-A cali-PREROUTING -m comment --comment "cali:e" -m mark --mark 0x0/0x40000 -j cali-from-host-endpoint
-A cali-PREROUTING -m comment --comment "cali:f" -m mark --mark 0x10000/0x10000 -j ACCEPT
-A cali-OUTPUT -m comment --comment "cali:g" -j MARK --set-xmark 0x0/0xf0000
*mangle
-A PREROUTING -m comment --comment "cali:h" -j cali-PREROUTING
-A POSTROUTING -m comment --comment "cali:i" -j cali-POSTROUTING
-A cali-PREROUTING -m comment --comment "cali:j" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A cali-PREROUTING -m comment --comment "cali:k" -m mark --mark 0x10000/0x10000 -j ACCEPT
-A cali-POSTROUTING -m comment --comment "cali:l" -m mark --mark 0x10000/0x10000 -j RETURN
-A cali-POSTROUTING -m comment --comment "cali:m" -j MARK --set-xmark 0x0/0xf0000
-A cali-POSTROUTING -m comment --comment "cali:n" -m conntrack --ctstate DNAT -j MARK --set-xmark 0x80000/0x80000
*nat
:cali-fip-dnat
-A PREROUTING -m comment --comment "cali:o" -j cali-PREROUTING
-A POSTROUTING -m comment --comment "cali:p" -j cali-POSTROUTING
-A cali-PREROUTING -m comment --comment "cali:q" -j cali-fip-dnat
-A cali-POSTROUTING -m comment --comment "cali:r" -j cali-nat-outgoing
-A cali-nat-outgoing -m comment --comment "cali:t" -m set --match-set cali40masq-ipam-pools src -m set ! --match-set cali40all-ipam-pools dst -j MASQUERADE --random-fully
-A cali-POSTROUTING -o vxlan.calico -m comment --comment "cali:s" -m addrtype ! --src-type LOCAL --limit-iface-out -m addrtype --src-type LOCAL -j MASQUERADE --random-fully
*filter
-A INPUT -m comment --comment "cali:A" -j cali-INPUT
-A FORWARD -m comment --comment "cali:B" -j cali-FORWARD
-A FORWARD -m comment --comment "cali:C" -m mark --mark 0x10000/0x10000 -j ACCEPT
-A FORWARD -m comment --comment "cali:D" -j MARK --set-xmark 0x10000/0x10000
-A OUTPUT -m comment --comment "cali:E" -j cali-OUTPUT
-A cali-FORWARD -m comment --comment "cali:F" -j MARK --set-xmark 0x0/0xe0000
-A cali-FORWARD -i pod+ -m comment --comment "cali:G" -j cali-from-wl-dispatch
-A cali-FORWARD -o pod+ -m comment --comment "cali:H" -j cali-to-wl-dispatch
-A cali-INPUT -i pod+ -m comment --comment "cali:I" -g cali-wl-to-host
-A cali-INPUT -m comment --comment "cali:J" -m mark --mark 0x10000/0x10000 -j ACCEPT
-A cali-INPUT -m comment --comment "cali:K" -j MARK --set-xmark 0x0/0xf0000
-A cali-OUTPUT -m comment --comment "cali:L" -m mark --mark 0x10000/0x10000 -j ACCEPT
-A cali-OUTPUT -o pod+ -m comment --comment "cali:M" -j RETURN
-A cali-OUTPUT -m comment --comment "cali:N" -m conntrack ! --ctstate DNAT -j ACCEPT
-A cali-wl-to-host -p udp -m comment --comment "cali:O" -m multiport --dports 53 -j ACCEPT
-A cali-wl-to-host -m comment --comment "cali:P" -j cali-from-wl-dispatch
-A cali-wl-to-host -m comment --comment "cali:Q" -j RETURN
-A cali-from-wl-dispatch -i pod0 -m comment --comment "cali:R" -g cali-fw-pod0
-A cali-from-wl-dispatch -i pod1 -m comment --comment "cali:S" -g cali-fw-pod1
-A cali-from-wl-dispatch -m comment --comment "cali:T Unknown interface" -j DROP
-A cali-to-wl-dispatch -o pod0 -m comment --comment "cali:U" -g cali-tw-pod0
-A cali-to-wl-dispatch -o pod1 -m comment --comment "cali:V" -g cali-tw-pod1
-A cali-to-wl-dispatch -m comment --comment "cali:W Unknown interface" -j DROP
-A cali-tw-pod0 -m comment --comment "cali:X" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A cali-tw-pod0 -m comment --comment "cali:Y" -m conntrack --ctstate INVALID -j DROP
-A cali-tw-pod0 -m comment --comment "cali:Z" -j MARK --set-xmark 0x0/0x30000
-A cali-tw-pod0 -m comment --comment "cali:0 Start of policies" -j MARK --set-xmark 0x0/0x20000
-A cali-tw-pod0 -m comment --comment "cali:1" -m mark --mark 0x0/0x20000 -j cali-pi-web
-A cali-tw-pod0 -m comment --comment "cali:2 Return if policy accepted" -m mark --mark 0x10000/0x10000 -j RETURN
-A cali-tw-pod0 -m comment --comment "cali:3 Drop if no policies passed packet" -m mark --mark 0x0/0x20000 -j NFLOG --nflog-prefix DPI --nflog-group 1
-A cali-tw-pod0 -m comment --comment "cali:4 Drop if no policies passed packet" -m mark --mark 0x0/0x20000 -j DROP
-A cali-pi-web -p udp -m comment --comment "cali:14" -m set --match-set cali40s:clients src -m multiport --dports 8080 -j MARK --set-xmark 0x10000/0x10000
-A cali-pi-web -p tcp -m comment --comment "cali:5" -m multiport --dports 8080,8443 -j MARK --set-xmark 0x10000/0x10000
-A cali-pi-web -m comment --comment "cali:6" -m mark --mark 0x10000/0x10000 -j RETURN
-A cali-tw-pod1 -m comment --comment "cali:7" -j MARK --set-xmark 0x10000/0x10000
-A cali-fw-pod0 -m comment --comment "cali:8" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A cali-fw-pod0 -p udp -m comment --comment "cali:9 Drop VXLAN" -m multiport --dports 4789 -j DROP
-A cali-fw-pod0 -m comment --comment "cali:10" -j MARK --set-xmark 0x10000/0x10000
-A cali-fw-pod1 -m comment --comment "cali:11" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A cali-fw-pod1 -m comment --comment "cali:12" -m conntrack --ctstate INVALID -j DROP
-A cali-fw-pod1 -m comment --comment "cali:13" -j MARK --set-xmark 0x10000/0x10000
`);

const KUBE_ROUTER = iptablesSave(`*mangle
-A FORWARD -p tcp -m tcp --tcp-flags SYN,RST SYN -m comment --comment "kube-router: MSS" -j TCPMSS --clamp-mss-to-pmtu
*nat
-A POSTROUTING -m comment --comment "kube-router: pod egress" -m set --match-set kube-router-pod-subnets src -m set ! --match-set kube-router-pod-subnets dst -m set ! --match-set kube-router-node-ips dst -m addrtype ! --dst-type LOCAL -j MASQUERADE --random-fully
*filter
-A INPUT -m comment --comment "kube-router netpol" -j KUBE-ROUTER-INPUT
-A FORWARD -m comment --comment "kube-router netpol" -j KUBE-ROUTER-FORWARD
-A OUTPUT -m comment --comment "kube-router netpol" -j KUBE-ROUTER-OUTPUT
-A KUBE-ROUTER-INPUT -d 10.96.0.0/16 -m comment --comment "allow traffic to primary cluster IP range" -j RETURN
-A KUBE-ROUTER-INPUT -p tcp -m comment --comment "allow LOCAL TCP traffic to node ports" -m addrtype --dst-type LOCAL -m multiport --dports 30000:32767 -j RETURN
-A KUBE-ROUTER-INPUT -p udp -m comment --comment "allow LOCAL UDP traffic to node ports" -m addrtype --dst-type LOCAL -m multiport --dports 30000:32767 -j RETURN
-A KUBE-ROUTER-FORWARD -d 10.244.0.5/32 -m comment --comment "to pod" -j KUBE-POD-FW-A
-A KUBE-ROUTER-FORWARD -d 10.244.0.5/32 -m physdev --physdev-is-bridged -m comment --comment "bridged" -j KUBE-POD-FW-A
-A KUBE-ROUTER-FORWARD -s 10.244.0.5/32 -m comment --comment "from pod" -j KUBE-POD-FW-A
-A KUBE-ROUTER-OUTPUT -d 10.244.0.5/32 -m comment --comment "to pod" -j KUBE-POD-FW-A
-A KUBE-ROUTER-FORWARD -m comment --comment "accept traffic that complies with policies" -m mark --mark 0x20000/0x20000 -j ACCEPT
-A KUBE-POD-FW-A -m comment --comment "stateful" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A KUBE-POD-FW-A -m comment --comment "invalid" -m conntrack --ctstate INVALID -j DROP
-A KUBE-POD-FW-A -d 10.244.0.5/32 -m comment --comment "from the local node" -m addrtype --src-type LOCAL -j ACCEPT
-A KUBE-POD-FW-A -m comment --comment "policy" -j KUBE-NWPLCY-WEB
-A KUBE-POD-FW-A -s 10.244.0.5/32 -m comment --comment "egress" -j KUBE-NWPLCY-DEFAULT
-A KUBE-POD-FW-A -m comment --comment "log dropped traffic" -m mark ! --mark 0x10000/0x10000 -m limit --limit 10/min --limit-burst 10 -j NFLOG --nflog-group 100
-A KUBE-POD-FW-A -m comment --comment "reject" -m mark ! --mark 0x10000/0x10000 -j REJECT --reject-with icmp-port-unreachable
-A KUBE-POD-FW-A -j MARK --set-xmark 0x0/0x10000
-A KUBE-POD-FW-A -m comment --comment "set mark to ACCEPT" -j MARK --set-xmark 0x20000/0x20000
-A KUBE-NWPLCY-WEB -p tcp -m comment --comment "web" -m tcp --dport 8080 -j MARK --set-xmark 0x10000/0x10000
-A KUBE-NWPLCY-WEB -p udp -m comment --comment "from clients" -m set --match-set KUBE-SRC-WEB src -m udp --dport 8080 -j MARK --set-xmark 0x10000/0x10000
-A KUBE-NWPLCY-WEB -m iprange --src-range 198.51.100.1-198.51.100.20 -m mark --mark 0x10000/0x10000 -j RETURN
-A KUBE-NWPLCY-DEFAULT -m comment --comment "no policy selects it" -j MARK --set-xmark 0x10000/0x10000
`);

const TAILSCALE = iptablesSave(`*nat
-A POSTROUTING -j ts-postrouting
-A ts-postrouting -m mark --mark 0x40000/0xff0000 -j MASQUERADE
*filter
-A INPUT -j ts-input
-A FORWARD -j ts-forward
-A ts-input -s 100.101.102.103/32 -i lo -j ACCEPT
-A ts-input -s 100.115.92.0/23 ! -i tailscale0 -j RETURN
-A ts-input -s 100.64.0.0/10 ! -i tailscale0 -j DROP
-A ts-input -i tailscale0 -j ACCEPT
-A ts-input -p udp -m udp --dport 41641 -j ACCEPT
-A ts-forward -i tailscale0 -j MARK --set-xmark 0x40000/0xff0000
-A ts-forward -m mark --mark 0x40000/0xff0000 -j ACCEPT
-A ts-forward -s 100.64.0.0/10 -o tailscale0 -j DROP
-A ts-forward -o tailscale0 -j ACCEPT
`);

const FIREWALLD = `table inet firewalld {
  chain mangle_PREROUTING {
    type filter hook prerouting priority -140; policy accept;
    jump mangle_PREROUTING_ZONES
  }
  chain mangle_PREROUTING_ZONES { }
  chain nat_PREROUTING {
    type nat hook prerouting priority -90; policy accept;
    jump nat_PREROUTING_ZONES
  }
  chain nat_PREROUTING_ZONES {
    iifname "eth1" tcp dport 8088 redirect to :8089
    return
  }
  chain nat_POSTROUTING {
    type nat hook postrouting priority 110; policy accept;
    oifname "virbr0" masquerade
  }
  chain filter_PREROUTING {
    type filter hook prerouting priority 10; policy accept;
    icmpv6 type { nd-router-advert, nd-neighbor-solicit } accept
    meta nfproto ipv6 fib saddr . mark . iif oif missing drop
  }
  chain filter_INPUT {
    type filter hook input priority 10; policy accept;
    ct state { established, related } accept
    ct status dnat accept
    iifname "lo" accept
    ct state invalid drop
    jump filter_INPUT_ZONES
    reject with icmpx admin-prohibited
  }
  chain filter_INPUT_ZONES {
    iifname "cbr0" goto filter_IN_trusted
    iifname { "eth0", "eth1" } goto filter_IN_public
    goto filter_IN_public
  }
  chain filter_IN_trusted {
    accept
  }
  chain filter_IN_public {
    tcp dport 22 accept
    ip6 daddr fe80::/64 udp dport 546 accept
    meta l4proto { icmp, ipv6-icmp } accept
  }
  chain filter_FORWARD {
    type filter hook forward priority 10; policy accept;
    ct state { established, related } accept
    ct status dnat accept
    iifname "lo" accept
    ct state invalid drop
    ip6 daddr { ::/96, ::ffff:0.0.0.0/96, 2002::/24 } reject with icmpv6 addr-unreachable
    jump filter_FORWARD_ZONES
    reject with icmpx admin-prohibited
  }
  chain filter_FORWARD_ZONES {
    iifname "cbr0" accept
    meta l4proto { icmp, ipv6-icmp } accept
  }
  chain filter_OUTPUT {
    type filter hook output priority 10; policy accept;
    ct state { established, related } accept
    oifname "lo" accept
    ip6 daddr { ::/96, ::ffff:0.0.0.0/96 } reject with icmpv6 addr-unreachable
  }
}
`;

const STRICT = `table inet filter {
  set admins {
    type ipv4_addr
    flags interval
    elements = { 198.51.100.0/28, 192.0.2.0/24 }
  }
  chain input {
    type filter hook input priority filter; policy drop;
    ct state vmap { established : accept, related : accept, invalid : drop }
    iif "lo" accept
    meta l4proto { icmp, ipv6-icmp } accept
    ip saddr @admins tcp dport { 22, 6443, 10250 } accept
    tcp dport 22 ct state new limit rate 10/minute accept
    limit rate 5/minute log prefix "input: " counter
    counter
  }
  chain forward {
    type filter hook forward priority filter; policy drop;
    ct state vmap { established : accept, related : accept, invalid : drop }
    iifname { "docker0", "wg0", "br-lan" } accept
    iifname "pod*" oifname != "out0" counter accept
    iifname "eth1" ip saddr @admins ct status dnat tcp dport { 8080, 8443 } accept
    meta l4proto { icmp, ipv6-icmp } accept
    limit rate 5/minute log prefix "forward: "
    iifname "cbr0" ip daddr 10.244.0.0/16 meta mark set 0x1
    meta mark 0x1 reject with icmpx admin-prohibited
  }
  chain output {
    type filter hook output priority filter; policy accept;
    oifname "eth1" ip daddr 198.51.100.99 drop
  }
}
table ip accounting {
  chain seen {
    type filter hook forward priority filter; policy accept;
    ip saddr 10.244.0.0/16 counter
    tcp flags syn tcp option maxseg size set rt mtu
  }
}
`;

const accepting =
  "-A DOCKER-USER -m conntrack --ctstate DNAT -j ACCEPT\n-A DOCKER-USER -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT";
const ownRules =
  "-A DOCKER-USER -i eth1 -p tcp -m conntrack --ctorigdstport 30001 --ctdir ORIGINAL -j ACCEPT\n-A DOCKER-USER -m conntrack --ctstate ESTABLISHED -j ACCEPT\n-A DOCKER-USER -j RETURN";
const docker = bridge("docker0", "172.17.0.1/16");

export const PROGRAM_RULES: readonly ProgramRules[] = [
  { program: "docker", ...docker, iptables: DOCKER.replace("USER\nCOMMIT", "COMMIT") },
  {
    program: "docker, accepting services",
    ...docker,
    iptables: DOCKER.replace("USER\nCOMMIT", `${accepting}\nCOMMIT`),
  },
  { program: "docker, accepting one port", ...docker, iptables: DOCKER.replace("USER\nCOMMIT", `${ownRules}\nCOMMIT`) },
  { program: "libvirt", ...bridge("virbr0", "192.168.122.1/24"), iptables: LIBVIRT },
  { program: "firewalld", nft: FIREWALLD, ip6: true },
  { program: "ufw", iptables: UFW },
  {
    program: "calico",
    sets: [
      { name: "cali40masq-ipam-pools", networks: ["10.244.0.0/16"] },
      { name: "cali40all-ipam-pools", networks: ["10.244.0.0/16"] },
      { name: "cali40s:clients", networks: ["10.244.0.6/32", "198.51.100.0/24"] },
    ],
    iptables: CALICO,
  },
  {
    program: "kube-router",
    sets: [
      { name: "kube-router-pod-subnets", networks: ["10.244.0.0/24", "10.244.1.0/24"] },
      { name: "kube-router-node-ips", networks: ["192.0.2.10/32", "192.0.2.11/32"] },
      { name: "KUBE-SRC-WEB", networks: ["10.244.0.7/32", "198.51.100.10/32"] },
    ],
    iptables: KUBE_ROUTER,
  },
  {
    program: "tailscale",
    links: [
      "link add tailscale0 type veth peer name tailscale1",
      "address add 100.101.102.103/32 dev tailscale0",
      "link set tailscale0 up",
      "route add 100.64.0.0/10 dev tailscale0 table 52",
      "rule add pref 5210 fwmark 0x80000/0xff0000 lookup main",
      "rule add pref 5270 lookup 52",
    ],
    iptables: TAILSCALE,
    removed: ["rule delete pref 5210", "rule delete pref 5270", "link delete tailscale0"],
  },
  { program: "/etc/nftables.conf", nft: STRICT, ip6: true },
];
