// A dump of the conntrack table, read datagram by datagram: the kernel makes the next one when the last one is taken.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "conntrack/filter.h"
#include "conntrack/record.h"
#include "conntrack/socket.h"

namespace nftp {

using OnConntrackRecord = std::function<void(const ConntrackRecord&)>;

// What the messages of a dump come to.
class ConntrackReading {
 public:
  // Hands over the entries of a datagram that match. False: the dump is over. Throws Failure. Pure.
  bool Read(const uint8_t* bytes, size_t length, const ConntrackFilter& filter, const OnConntrackRecord& on_record);

  // Entries that the kernel sent.
  uint64_t seen() const { return seen_; }
  // Entries may be missing, or sent twice.
  bool interrupted() const { return interrupted_; }
  // The table changed its shape.
  void Interrupt() { interrupted_ = true; }

 private:
  // False: the dump is over.
  bool Take(const nlmsghdr* message);

  uint64_t seen_ = 0;
  bool interrupted_ = false;
};

class ConntrackDump {
 public:
  // `plain` is set when the kernel turns out not to know the filters that it was asked for; no dump asks for them then.
  ConntrackDump(ConntrackSockets* sockets, ConntrackFilter filter, std::atomic<bool>* plain);

  // Reads the next datagram, some 190 entries: 0.2 ms of the kernel's work where it filters nothing, and a walk through
  // the whole table where it filters everything. On one thread at a time. Throws Failure; then there is no more.
  void Next(const OnConntrackRecord& on_record);

  bool done() const { return done_; }
  const ConntrackReading& reading() const { return reading_; }

 private:
  void Start();
  void Receive(const OnConntrackRecord& on_record);

  ConntrackSockets* const sockets_;
  const ConntrackFilter filter_;
  std::atomic<bool>* const plain_;
  std::unique_ptr<ConntrackSocket> socket_;
  bool asked_plain_ = false;
  bool done_ = false;
  ConntrackReading reading_;
  std::string buckets_;
};

}  // namespace nftp
