"""Reads and writes a table of the older iptables in the kernel's format, without iptables' tools.

    python3 legacy-tables.py get ip|ip6 TABLE FILE    writes the table to the file
    python3 legacy-tables.py put ip|ip6 TABLE FILE    replaces the table by the file's contents

A table is a header (valid hooks, number of entries, length of the entries, five hook entries, five underflows: 32 bits
each), its entries and, for put, a pair of counters for each entry.
Exit code 3: this kernel has no such iptables.
"""

import ctypes
import errno
import socket
import struct
import sys

GET_INFO, GET_ENTRIES, SET_REPLACE, SET_ADD_COUNTERS = 64, 65, 64, 65
INFO = struct.Struct("=32sI5I5III")
HEADER = struct.Struct("=III5I5I")
libc = ctypes.CDLL(None, use_errno=True)


class Table:
    def __init__(self, family, name):
        v6 = family == "ip6"
        self.level = socket.IPPROTO_IPV6 if v6 else socket.IPPROTO_IP
        self.socket = socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_DGRAM)
        self.name = name.encode()

    def info(self):
        info = INFO.unpack(self.ask(GET_INFO, INFO.pack(self.name, *[0] * 13)))
        return info[1], info[2:7], info[7:12], info[12], info[13]

    def get(self):
        hooks, entry, underflow, count, size = self.info()
        header = struct.pack("=32sI4x", self.name, size)
        entries = self.ask(GET_ENTRIES, header + bytes(size))[len(header) :]
        return HEADER.pack(hooks, count, size, *entry, *underflow) + entries

    def put(self, table):
        hooks, count, size, *points = HEADER.unpack_from(table)
        entries = table[HEADER.size : HEADER.size + size]
        former = self.info()[3]
        counters = ctypes.create_string_buffer(16 * former)
        head = (self.name, hooks, count, size, *points, former, ctypes.addressof(counters))
        self.tell(SET_REPLACE, struct.pack("=32sIII10IIQ", *head) + entries)
        fresh = table[HEADER.size + size :]
        if fresh:
            self.tell(SET_ADD_COUNTERS, struct.pack("=32sI4x", self.name, count) + fresh)

    def ask(self, option, request):
        buffer = ctypes.create_string_buffer(request, len(request))
        length = ctypes.c_uint32(len(request))
        if libc.getsockopt(self.socket.fileno(), self.level, option, buffer, ctypes.byref(length)) != 0:
            raise OSError(ctypes.get_errno(), "getsockopt")
        return buffer.raw

    def tell(self, option, request):
        if libc.setsockopt(self.socket.fileno(), self.level, option, request, len(request)) != 0:
            raise OSError(ctypes.get_errno(), "setsockopt")


def main(what, family, name, file):
    table = Table(family, name)
    try:
        table.info()
    except OSError as error:
        if error.errno in (errno.ENOPROTOOPT, errno.ENOENT):
            return 3
        raise
    if what == "get":
        with open(file, "wb") as to:
            to.write(table.get())
    else:
        with open(file, "rb") as source:
            table.put(source.read())
    return 0


sys.exit(main(*sys.argv[1:]))
