// One compilation unit of conntrack/: README.md explains units.

// First, because Linux's headers would define the same types again.
#include <netinet/in.h>

#include "conntrack/codec.cc"
#include "conntrack/dump.cc"
#include "conntrack/filter.cc"
#include "conntrack/monitor.cc"
#include "conntrack/pack.cc"
#include "conntrack/prefilter.cc"
#include "conntrack/reader.cc"
#include "conntrack/requests.cc"
#include "conntrack/socket.cc"
#include "conntrack/table.cc"
