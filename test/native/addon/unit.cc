// One compilation unit of this folder: native/README.md explains units.
#include "addon.cc"
#include "codec.cc"
#include "conntrack.cc"
#include "legacy_tables.cc"
#include "messages.cc"
