"""Adds user chains to a table of the older iptables, as its own tool does it, without needing that tool.

    python3 legacy-chains.py ip|ip6 TABLE CHAIN...

FORWARD:drop for a chain sets that one's policy instead.
Exit code 3: this kernel has no such iptables.
"""

import ctypes
import errno
import socket
import struct
import sys

GET_INFO, GET_ENTRIES, SET_REPLACE = 64, 65, 64
INFO = struct.Struct("=32sI5I5III")
ENTRY_SIZE = {"ip": 112, "ip6": 168}
# Offset of target_offset and next_offset in an entry.
OFFSETS_AT = {"ip": 88, "ip6": 140}
libc = ctypes.CDLL(None, use_errno=True)


def entry(family, target):
    """An entry that matches everything."""
    size = ENTRY_SIZE[family]
    bytes_ = bytearray(size)
    struct.pack_into("=HH", bytes_, OFFSETS_AT[family], size, size + len(target))
    return bytes(bytes_) + target


def chain(family, name):
    head = struct.pack("=H29sB30s2x", 64, b"ERROR", 0, name.encode())
    # XT_RETURN
    policy = struct.pack("=H29sBi4x", 40, b"", 0, -5)
    return entry(family, head) + entry(family, policy)


def main(family, table, names):
    level = socket.IPPROTO_IPV6 if family == "ip6" else socket.IPPROTO_IP
    asking = socket.socket(socket.AF_INET6 if family == "ip6" else socket.AF_INET, socket.SOCK_DGRAM)
    try:
        info = INFO.unpack(get(asking, level, GET_INFO, INFO.pack(table.encode(), *[0] * 13)))
    except OSError as error:
        if error.errno in (errno.ENOPROTOOPT, errno.ENOENT):
            return 3
        raise
    _, hooks, *points, count, size = info
    drop = "FORWARD:drop" in names
    names = [name for name in names if name != "FORWARD:drop"]
    header = struct.pack("=32sI4x", table.encode(), size)
    entries = get(asking, level, GET_ENTRIES, header + bytes(size))[len(header) :]
    if drop:
        # points: where the chains of the five hooks begin, then where they end; -1 is NF_DROP.
        entries = bytearray(entries)
        struct.pack_into("=i", entries, points[5 + 2] + ENTRY_SIZE[family] + 32, -1)
    end = ENTRY_SIZE[family] + 64
    fresh = entries[:-end] + b"".join(chain(family, name) for name in names) + entries[-end:]
    counters = ctypes.create_string_buffer(16 * count)
    head = (table.encode(), hooks, count + 2 * len(names), len(fresh), *points, count, ctypes.addressof(counters))
    replace = struct.pack("=32sIII10IIQ", *head) + fresh
    if libc.setsockopt(asking.fileno(), level, SET_REPLACE, replace, len(replace)) != 0:
        raise OSError(ctypes.get_errno(), "IPT_SO_SET_REPLACE")
    return 0


def get(asking, level, option, request):
    buffer = ctypes.create_string_buffer(request, len(request))
    length = ctypes.c_uint32(len(request))
    if libc.getsockopt(asking.fileno(), level, option, buffer, ctypes.byref(length)) != 0:
        raise OSError(ctypes.get_errno(), "getsockopt")
    return buffer.raw


sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
