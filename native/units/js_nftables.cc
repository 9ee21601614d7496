// One compilation unit of js/: nf_tables, and everything that has nothing to do with connection tracking. README.md
// explains units.

// First, because Linux's headers would define the same types again.
#include <netinet/in.h>

#include "js/async_task.cc"
#include "js/batch.cc"
#include "js/end_signals.cc"
#include "js/exprs.cc"
#include "js/inotify.cc"
#include "js/legacy_tables.cc"
#include "js/ops.cc"
#include "js/startup_snapshot.cc"
#include "js/values.cc"
#include "js/writer.cc"
