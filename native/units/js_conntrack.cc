// One compilation unit of js/: connection tracking, and monitors. README.md explains units.
#include "js/conntrack.cc"
#include "js/conntrack_dump.cc"
#include "js/conntrack_piece.cc"
#include "js/conntrack_values.cc"
#include "js/monitor.cc"
