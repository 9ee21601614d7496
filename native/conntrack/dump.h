// A dump of the conntrack table, read datagram by datagram. The kernel produces the next datagram when the last one is
// received.
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

// Accumulates the result of a dump's messages.
class ConntrackReading {
 public:
  // Hands over the matching entries of a datagram. Returns false at the end of the dump. Throws Failure. Pure.
  bool Read(const uint8_t* bytes, size_t length, const ConntrackFilter& filter, const OnConntrackRecord& on_record);

  // Number of entries that the kernel sent.
  uint64_t seen() const { return seen_; }
  // Whether entries may be missing or sent twice.
  bool interrupted() const { return interrupted_; }
  // Notes that the hash table was resized.
  void Interrupt() { interrupted_ = true; }

 private:
  // Returns false at the end of the dump.
  bool Take(const nlmsghdr* message);

  uint64_t seen_ = 0;
  bool interrupted_ = false;
};

class ConntrackDump {
 public:
  // `plain` is set if the kernel turns out not to know the requested filters; later dumps then do not request them.
  ConntrackDump(ConntrackSockets* sockets, ConntrackFilter filter, std::atomic<bool>* plain);

  // Reads the next datagram, some 190 entries. That is 0.2 ms of kernel work if the filter rejects nothing, and a walk
  // through the whole table if it rejects everything. Call it on one thread at a time. Throws Failure, which ends the
  // dump.
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
