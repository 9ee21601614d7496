// One compilation unit of socket/: README.md explains units.
#include "socket/socket.cc"

#include "socket/address_monitor.cc"
#include "socket/addresses.cc"
#include "socket/carried_counts.cc"
#include "socket/connection.cc"
#include "socket/dump.cc"
#include "socket/exchange.cc"
#include "socket/legacy_tables.cc"
#include "socket/listener.cc"
#include "socket/monitor.cc"
#include "socket/trace_monitor.cc"
