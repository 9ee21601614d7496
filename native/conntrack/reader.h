// The single thread that reads all dumps, which take turns. Reading then occupies at most one core, and no thread of
// libuv's pool, which commits wait for.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

namespace nftp {

// Something to read in small steps.
class ConntrackSource {
 public:
  virtual ~ConntrackSource() = default;
  ConntrackSource(const ConntrackSource&) = delete;
  ConntrackSource& operator=(const ConntrackSource&) = delete;

  // Reads a little, on the thread. Returns false if there is nothing to read; the source then gets no turn until it is
  // added again. Must not throw.
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

  // Starts giving turns to a source.
  void Add(std::shared_ptr<ConntrackSource> source);
  // Waits for the current turn to end. No turn starts afterwards.
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
