#include "conntrack_reader.h"

#include <pthread.h>

#include <utility>

namespace nftp {

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
