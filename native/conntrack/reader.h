// The thread that dumps are read on. One for all of them, which take turns: reading keeps no more than one core, and
// none of libuv's pool, which commits wait for.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

namespace nftp {

// Something to read, little by little.
class ConntrackSource {
 public:
  virtual ~ConntrackSource() = default;
  ConntrackSource(const ConntrackSource&) = delete;
  ConntrackSource& operator=(const ConntrackSource&) = delete;

  // Reads a little, on the thread. False: there is nothing to read, until it is added again. Must not throw.
  virtual bool Turn() = 0;

 protected:
  ConntrackSource() = default;
};

class ConntrackReader {
 public:
  ConntrackReader() : thread_([this] { Run(); }) {}
  ~ConntrackReader() { Stop(); }
  ConntrackReader(const ConntrackReader&) = delete;
  ConntrackReader& operator=(const ConntrackReader&) = delete;

  // Its turns begin.
  void Add(std::shared_ptr<ConntrackSource> source);
  // No turn behind this. Waits for the one that is being taken.
  void Stop();

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<ConntrackSource>> waiting_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace nftp
