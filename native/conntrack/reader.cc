#include "conntrack/reader.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

namespace nftp {

namespace {

// struct sched_attr in the form of sched_setattr(2): the kernel's header and libc's conflict.
struct SchedulingAttributes {
  uint32_t size;
  uint32_t policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t runtime;  // SCHED_OTHER: the slice, ns
  uint64_t deadline;
  uint64_t period;
};
static_assert(sizeof(SchedulingAttributes) == 48);

// Lets other runnable threads have the core soon. The usual slice is some 3 ms, and a thread that wakes up, such as the
// one that writes rules, may have to wait until it ends. Here the slice is half the time of a datagram. Linux 6.12
// applies it; older kernels ignore it.
void TakeShortSlices() {
  constexpr uint64_t kSliceNs = 100'000;
  if (sched_getscheduler(0) != SCHED_OTHER) return;
  SchedulingAttributes attributes{};
  attributes.size = sizeof attributes;
  attributes.policy = SCHED_OTHER;
  attributes.nice = getpriority(PRIO_PROCESS, 0);
  attributes.runtime = kSliceNs;
  static_cast<void>(syscall(SYS_sched_setattr, 0, &attributes, 0));
}

}  // namespace

void ConntrackReader::Add(std::shared_ptr<ConntrackSource> source) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    waiting_.push_back(std::move(source));
  }
  changed_.notify_one();
}

void ConntrackReader::Stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
  waiting_.clear();
}

void ConntrackReader::Run() {
  pthread_setname_np(pthread_self(), "conntrack-dump");
  TakeShortSlices();
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (stopping_) return;
    std::shared_ptr<ConntrackSource> source = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    const bool more = source->Turn();
    lock.lock();
    if (more) waiting_.push_back(std::move(source));
  }
}

}  // namespace nftp
